"""Advice for a recipe: the layouts that our training loop supports, and the recipe for the best.

``training_setting`` reads from a job what ``trainyard.foresight`` has to know. ``traced_shapes``
stores the shapes of workloads that no formula covers. ``recipe_advice`` lists the possible layouts,
and writes the advised recipe. The predictions themselves are made by ``trainyard.foresight``. No
torch is imported here: shapes are traced by ``training.tools.shapes``, in another process.
"""
