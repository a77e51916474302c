"""The recipe's endpoint: the rollout of a model package, and what is monitored while it serves.

``rollout.py`` shifts the requests, ``endpoint_requests.py`` builds them, ``period.py`` reads what
was captured, ``drift.py`` and ``answer_quality.py`` compare it with the baseline. The verbs
``pipelines.deploy`` and ``pipelines.monitor`` use it.
"""
