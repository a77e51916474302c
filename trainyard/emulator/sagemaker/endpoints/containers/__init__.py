"""Scripts that replace a container's ``serve``; they run as containers, not as modules.

Each is started by its path in the job's Python, so it imports nothing of Trainyard. Which image
gets which script is a row of ``trainyard.emulator.sagemaker.endpoints.model_containers``.
"""
