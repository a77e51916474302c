"""Count the floating-point operations of a model as torch dispatches them.

This is a separate module because the loop imports it without the other defaults.
"""

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from training.data.manifest import Samples, create_empty_samples
from training.defaults.default_scores import Batches
from training.workloads import Workload


def count_flops(workload: Workload, model: nn.Module, sample: Samples | None) -> float:
    """Return the operations of forward and backward pass per unit: three times a sample's forward
    pass.

    The backward pass has two products for each product of the forward pass, one with the weights
    and one with the inputs. torch counts matrix products, convolutions and attention, and no
    elementwise operations. The model, which may be on meta, and torch's random numbers are left
    unchanged.

    Args:
        sample: samples to run the model with; None for a sample of zeros.
    """
    modes = {module: module.training for module in model.modules()}
    device = next(model.parameters()).device
    batch = Batches(workload).make_batch(sample or _make_zero_sample(workload))
    counter = FlopCounterMode(display=False)
    model.eval()
    with torch.random.fork_rng(devices=[]), torch.no_grad(), counter:
        model(*(tensor.to(device) for tensor in workload.inputs(batch)))
    for module, training in modes.items():
        module.training = training
    return 3.0 * counter.get_total_flops() / max(1.0, float(workload.units(batch)))


def count_flops_per_unit(workload: Workload, model: nn.Module) -> float:
    """Return ``Workload.flops`` of a model that may be on meta.

    A forward pass that reads values cannot run on meta; in that case a real model is built for it.
    """
    try:
        return workload.flops(model)
    except (NotImplementedError, RuntimeError):
        if not next(model.parameters()).is_meta:
            raise
        return workload.flops(workload.model())


def _make_zero_sample(workload: Workload) -> Samples:
    """Return a sample of zeros; a variable-width field gets one value."""
    fields = workload.packing.fields
    samples = {name: array.repeat(0) for name, array in create_empty_samples(fields).items()}
    for name, field in fields.items():
        samples[name] = torch.zeros((1, *(field.shape or ()))).numpy().astype(field.dtype)
        if field.shape is None:
            samples[f"{name}_offsets"] = torch.arange(2).numpy()
    return samples
