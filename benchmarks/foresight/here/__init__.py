"""Predicted against measured CPU seconds and peak memory of trainings on this machine.

settings    the trainings, drawn by a seed
rank        one rank of a real training, which notes what each step took
measure     runs a setting
work        what a setting's steps do, counted without doing it
prices      what its calls, messages and pages cost
prediction  what that makes of a step, by these prices and what was calibrated
"""
