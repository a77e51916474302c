"""Plan an upsert: its changes, the steps that would run again and why, and their possible cost.

``deployed_pipeline`` reads what is there, ``definition_diff`` says what changes,
``cache_prediction`` which steps are answered by AWS's documented rules, ``run_cost`` what the rest
may cost. It changes nothing.
"""
