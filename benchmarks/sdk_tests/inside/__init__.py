"""Modules for the SDK's venv, which has nothing of this project, only pytest."""
