"""Our views of a run: gate, test split, curves and pace, in the terminal and on the page.

``run_panels`` are the console's panels, ``run_pictures`` their figures, ``training_pace`` the
tables of watch; ``run_documents`` reads evaluation.json and gate.json. ``trainyard.console`` knows
none of them.
"""
