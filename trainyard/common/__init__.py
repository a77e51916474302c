"""Code shared by all packages: errors, atomic writes, hashes, the list of measures.

It uses only the standard library, because it is copied into containers. It is all of ``trainyard``
that steps, training and conditions may import. Code belongs here if a job and a tool both need it.
"""
