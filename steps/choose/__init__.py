"""Step that judges the best trainings of a tuning again, on data that none was compared on."""
