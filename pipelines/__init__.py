"""From a recipe to a running pipeline: the typed recipe, the DAG, and the verbs."""
