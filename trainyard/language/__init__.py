"""The language of pipeline definitions: the meaning of their JSON.

The emulator, ``validate`` and ``plan`` are based on it; it imports none of them.
"""
