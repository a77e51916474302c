"""How fast one knows: validate and plan beside the import of the SDK."""
