"""Code shared by all rooms: standard library only, since it travels into containers."""
