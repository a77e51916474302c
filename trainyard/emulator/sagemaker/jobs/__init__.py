"""Training, processing and transform jobs: the container contract, from S3 in to S3 out."""
