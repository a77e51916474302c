"""What a training will need, take and cost, before anything of it has run."""
