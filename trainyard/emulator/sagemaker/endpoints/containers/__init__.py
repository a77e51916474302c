"""Scripts that replace a container's ``serve`` command. They are run, not imported.

Each script is started by its path with the job's Python interpreter, so it must not depend on an
installed Trainyard. ``trainyard.emulator.sagemaker.endpoints.model_containers`` has the table of
which image gets which script.
"""
