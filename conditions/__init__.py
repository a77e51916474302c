"""The gate: its checks as pure functions, and the condition step that reads their verdict.

``check_table`` is the table of checks, from which recipe, job, report and picture are derived.
``score_checks`` runs the checks that need the scores of single examples. ``mean_tests`` contains
the statistics, each with its source. To add a check, add a module in ``checks/``. Do not import
torch, pipelines or training here. What every gate imports (the table, ``gate_arguments``,
``verdict``) must not import numpy either, because AWS's images may not have it.
"""
