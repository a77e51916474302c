"""Landing zones of invented companies: folders of settings, for which no file of ours is edited."""
