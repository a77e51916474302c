"""The endpoint of a recipe's model: its requests, the shift to a new model, and the way back."""
