"""One command that shows on a GPU what the rest of the project shows on processors."""
