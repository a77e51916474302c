"""What scripts import of the toolkit before ``sagemaker_training``, which XGBoost's images have."""
