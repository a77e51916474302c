"""Our views of an execution: gate, test split, curves and pace, in the terminal and on the page.

``run_panels`` has the console's panels, ``run_pictures`` their figures, ``training_pace`` the
tables of watch and the functions that read evaluation.json and gate.json. ``trainyard.console``
knows none of them.
"""
