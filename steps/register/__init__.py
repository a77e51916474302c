"""Register the model; no job of ours runs, since the service creates the model package itself.

``step`` declares package, metadata and metrics; ``model_card`` fills in AWS's card; ``config`` has
the group and what it serves. The status is PendingManualApproval, always: ``pipelines.approve``
decides.
"""
