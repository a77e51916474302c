"""One script for each way to train the same model, started once a rank, as torchrun would.

Each is given the path of a ``Setting``, and prints ``step=… loss=…`` after the steps that are
logged. A script imports no other but ``hand``: start-up is part of what is measured.
"""
