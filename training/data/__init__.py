"""Shards of fixed-width samples: the manifest, the writer, the reader, the order of samples."""
