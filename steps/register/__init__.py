"""Register the model. No job of ours runs, because the service creates the model package itself.

``step`` declares the package, its metadata, metrics and model card; ``config`` has the group and
what the package serves. The status is always PendingManualApproval: ``pipelines.approve`` decides.
"""
