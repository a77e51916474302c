"""Decide whether two definitions mean the same, by their normal forms and by executing both.

``static_comparison`` compares the texts of the definitions, in the form of ``normal_form``.
``observed_run`` executes each definition on its own emulator, with local processes, and compares
the requests of the jobs and the files that the jobs wrote.
"""
