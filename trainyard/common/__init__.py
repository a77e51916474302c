"""Code shared by all rooms: errors, atomic writes, hashes, the list of measures.

Standard library only, since it travels into containers, and is all that steps, training and
conditions may import of ``trainyard``. Something belongs here when a job and a tool both need it.
"""
