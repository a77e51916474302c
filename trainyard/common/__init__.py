"""What every room shares: the standard library alone, since it travels into containers."""
