"""Recipes: typed, validated, and errors that name the field."""
