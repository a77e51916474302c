"""Compare a registered model's handler with AWS's toolkit as it comes, behind TorchServe."""
