"""Watch what a deployed model is asked, and say what is no longer as it was."""
