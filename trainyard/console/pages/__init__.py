"""The console's pages: each module has a Blueprint ``page``, which is found by being there."""
