"""Advice for a recipe: the layouts that our loop supports, and the recipe that adopts
one of them.
"""
