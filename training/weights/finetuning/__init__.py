"""Weights that a training starts from if they are not fresh: base models and adapters.

``base_model`` reads an artifact, its folder or a Hugging Face folder; ``adapters`` and ``lora`` add
what is trained beside it. ``model_files`` stands apart, without torch, since recipes and the
registry read it.
"""
