"""What the ranks send each other in a step: counted, beside the formulas of training.traffic."""
