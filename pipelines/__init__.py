"""Turn a recipe into a running pipeline: the typed recipe, the DAG, and the verbs."""
