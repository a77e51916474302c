"""Do two definitions mean the same? Their normal forms, and an execution of each.

``static_comparison`` compares what is written, in ``normal_form``; ``observed_run`` executes both
on emulators of their own, as processes, and compares what the jobs were asked and left.
"""
