"""Turn a recipe into a running pipeline: the typed recipe, the DAG, and the verbs.

Each module here is a verb (``python -m pipelines.VERB``) or ``definition``, which builds the DAG.
What they need lies in rooms: ``recipe`` → ``compile`` → ``delivery``, then ``registry`` and
``endpoint``; ``infrastructure``, ``advice``, ``rules`` and ``run_report`` stand beside. To add a
verb: a module with ``main`` and a row in README. No torch and no emulator: a verb starts in a
second.
"""
