"""Checkpoints: written and read at any number of ranks; ``checkpoints.py`` is the entry point.

tensor_table.py    which file has which part of which tensor, and which rank writes a part that
                   several hold
block_hashes.py    hashes of a file's blocks, to verify a part of it without the rest
save.py            one save, from the copy in memory to the marker
writer_process.py  the process that writes a rank's file
rendezvous.py      exchange between the ranks, through the job's store, without its timeout
marker.py          the marker of a complete checkpoint, and the lineage: what it was trained with
find_files.py      finds the newest checkpoint whose files all exist, on whichever machines
read_slices.py     reads and verifies this rank's slices; the copy of its file in memory
"""
