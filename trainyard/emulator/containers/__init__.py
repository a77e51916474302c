"""Run a job's nodes: as processes in namespaces, or as containers of docker or podman.

``node`` and ``cluster`` are one job's nodes either way; ``isolation``, ``relocation`` and
``interpreter`` make a process see what a container would, ``container_engine`` starts real ones.
``supervisor`` and ``container_supervisor`` are processes of their own, which end a job's when the
emulator is killed. ``container_entry``, ``torchrun_shim`` and ``relocated_imports`` run inside
jobs: standard library only.
"""
