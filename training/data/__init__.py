"""The dataset as the training reads it: manifests, writer, reader, order of samples.

``dataset`` and ``loader`` lead from shard to batch for our training loop, ``torch_dataset`` and
``hugging_face`` for other people's loops. ``sample_order`` and ``mixture`` are pure functions of
(fingerprint, seed, position). Ranks import no pyarrow, and the modules that the shard step uses too
(``shard_writer``, ``manifest``) import no torch.
"""
