"""Our views of an execution: gate, test split, curves and pace, in the terminal and on the page.

``run_panels`` has the console's panels, ``run_pictures`` their figures, ``run_progress`` the tables
of watch, ``training_pace`` how fast a training is and was expected to be, and ``step_documents``
the functions that read evaluation.json and gate.json. ``trainyard.console`` knows none of them.
"""
