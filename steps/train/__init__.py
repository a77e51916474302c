"""Declare the training: Trainyard's loop or the user's script, under a launcher.

``job_program`` and ``train_script`` say what the job starts, ``step`` adds machines, data and
checkpoints; ``job`` runs in the container, and ``driver/`` goes there with a script. A launcher or
strategy that AWS has is a row of a table here. No torch, since validation imports it.
"""
