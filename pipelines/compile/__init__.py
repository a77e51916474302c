"""What a definition is compiled with: code folders, images, policies, provenance."""
