"""The train step: Trainyard's training loop or the user's script, started by a launcher.

``job_program`` and ``train_script`` define what the job starts. ``step`` adds machines, data and
checkpoints. ``job`` runs in the container, and ``driver/`` is sent to it for a user's script. A
launcher or strategy that AWS supports is a row of a table in ``config``. Validation imports this
package, so it must not import torch.
"""
