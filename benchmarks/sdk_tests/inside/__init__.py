"""What runs in the SDK's venv: of this project nothing, only the standard library and pytest."""
