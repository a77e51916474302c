"""Checkpoints: written and read at any number of ranks; ``checkpoints.py`` is the way in.

table.py     which file has which part of which tensor; who writes what several ranks hold
image.py     the file that a rank writes, byte for byte, in memory that is shared with its writer
writer.py    starts the process that writes, and hears from it; process.py: that process
header.py    the beginning of such a file
blocks.py    hashes of a file's blocks, so that a part of it can be verified without the rest
meeting.py   what the ranks tell each other, through the job's store and without its clock
saving.py    one save, from the image to the marker
finding.py   the newest checkpoint whose files are all there, on whichever machines
reading.py   this rank's slices, verified; peers.py: bytes that only another machine has
"""
