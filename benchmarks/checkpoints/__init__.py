import os

# Read when torch is loaded; else it warns of each of 1,024 connections that it has no host name.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
