"""Whether GPUs and fabric are fit for the training, before hours are spent; what a hang leaves."""
