"""Turn a recipe into a running pipeline: the typed recipe, the DAG, and the commands.

Each module here is a command, called a verb (``python -m pipelines.VERB``), or ``definition``,
which builds the DAG. Packages contain what the verbs need: ``recipe`` → ``compile`` → ``delivery``,
then ``registry`` and ``endpoint``; ``infrastructure``, ``advice``, ``rules`` and ``run_report`` are
independent of this order. To add a verb, add a module with ``main`` and a row in README. Nothing
here imports torch or the emulator, so that a verb starts within a second.
"""
