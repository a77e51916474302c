"""Recipes: typed and validated. Errors name file, line, field, value and the nearest name.

``config`` is the whole model, made of ``sections`` and each step's own ``config``. ``read_recipe``
reads YAML and describes errors. ``extended_recipe`` and ``environments`` handle what a recipe
inherits. To add a field, add it to one class, then run ``python -m pipelines.recipe.schema``.
Nothing here imports torch or the SDK, so validation is fast.
"""
