"""Recipes: typed and validated; errors name file, line, field, value and the nearest name.

``config`` is the whole model, of ``sections`` and each step's own ``config``; ``read_recipe`` reads
YAML and says what is wrong; ``extended_recipe`` and ``environments`` say what a recipe inherits. To
add a field: one class, then ``python -m pipelines.recipe.schema``. No torch and no SDK: validation
is fast.
"""
