from training.workloads.language_model.config import SPEC as SPEC  # noqa: PLC0414 - re-exported
