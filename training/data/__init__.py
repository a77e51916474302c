"""The dataset as the training sees it: manifest, writer, reader, order of samples.

``dataset`` and ``loader`` are the loop's way from shard to batch, ``torch_dataset`` and
``hugging_face`` that of other people's loops; ``sample_order`` and ``mixture`` are pure functions
of (fingerprint, seed, position). Ranks import no pyarrow, and what the shard step shares
(``shard_writer``, ``manifest``) no torch.
"""
