from training.workloads.language_model.config import SPEC as SPEC
