"""Plan an upsert: its changes, the steps that would run again and why, and their possible cost.

``deployed_pipeline`` reads the deployed pipeline, ``definition_diff`` finds what changes,
``cache_prediction`` predicts by AWS's documented rules which steps are taken from the cache, and
``run_cost`` estimates what the others may cost. A plan changes nothing.
"""
