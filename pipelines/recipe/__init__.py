"""Recipes: typed and validated; errors name the field."""
