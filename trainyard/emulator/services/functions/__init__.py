"""AWS Lambda: python functions that really run, in the runtime that jobs have."""
