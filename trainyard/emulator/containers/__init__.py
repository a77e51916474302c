"""Run a job's nodes: as processes in namespaces, or as containers of docker or podman.

``node`` and ``cluster`` represent one job's nodes in both cases. ``isolation`` makes a process see
what a container would see, with namespaces or, without them, by ``install_layer``'s relocation;
``container_engine`` and ``containers`` start real containers. ``supervisor`` and
``container_supervisor`` are separate processes, which end a job's processes if the emulator is
killed. ``container_entry``, ``torchrun_shim`` and ``relocated_imports`` run inside jobs, so they
use only the standard library.
"""
