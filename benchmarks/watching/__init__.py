"""Whether each watch rule fires on its fault, and none on healthy trainings."""
