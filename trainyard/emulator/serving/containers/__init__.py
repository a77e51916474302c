"""What stands in for a container's ``serve``: scripts that run as a container, none as a module."""
