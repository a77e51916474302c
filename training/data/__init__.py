"""Shards of fixed-width samples: manifest, writer, reader, order of samples."""
