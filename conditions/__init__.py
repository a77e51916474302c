"""The gate: its checks as pure functions, and the condition step that reads their verdict.

``check_table`` is the table that recipe, job, report and picture derive from; ``score_checks``
judges what needs the scores of single examples; ``mean_tests`` has the statistics, each with its
source. To add a check: a module in ``checks/``. No torch, pipelines or training here, and in what
every gate reads (the table, ``gate_arguments``, ``verdict``) no numpy either: AWS's images may lack
it.
"""
