"""Advice for a recipe: the layouts that our loop supports, and the recipe that adopts one.

``training_setting`` reads from a job what foresight has to know; ``traced_shapes`` keeps the shapes
of workloads that no formula covers; ``recipe_advice`` ranks, and writes the advised recipe. The
forecasts themselves are ``trainyard.foresight``'s. No torch: shapes are traced by
``training.tools.shapes``.
"""
