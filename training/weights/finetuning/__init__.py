"""Weights that training starts from if they are not fresh: base models and adapters.

``base_model`` reads an artifact (as an archive or as files) or a Hugging Face folder; ``adapters``
and ``lora`` add low-rank weights, which are trained while the base is frozen.
``hugging_face_folder`` and ``adapters`` import no torch, because recipes and the registry use them.
"""
