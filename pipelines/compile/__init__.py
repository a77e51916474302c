"""Parts of a compiled definition: code folders, images, policies, provenance."""
