"""Whether the derived roles suffice, and whether each of their statements is needed."""
