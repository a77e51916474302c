"""What the page of a step reads: what it made, its attempts, arguments, files, cache and times."""
