"""What foresight predicts against what was measured, here and elsewhere."""
