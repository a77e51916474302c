"""Checkpoints: written and read at any number of ranks; ``checkpoints.py`` is the entry point.

tensor_table.py    which file has which part of which tensor; who writes what several ranks hold
file_image.py      the file that a rank writes, byte for byte, in memory shared with its writer
save.py            one save, from the image to the marker
writer_process.py  the process that writes the file
block_hashes.py    hashes of a file's blocks, to verify a part of it without the rest
rendezvous.py      exchange between the ranks, through the job's store, without its timeout
marker.py          the marker of a complete checkpoint; lineage.py: what it was trained with
find_files.py      the newest checkpoint whose files all exist, on whichever machines
read_slices.py     this rank's slices, verified
"""
