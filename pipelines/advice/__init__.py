"""Advice for a recipe: the layouts that our loop has, and the recipe that takes one of them."""
