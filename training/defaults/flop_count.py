"""Floating-point operations of a model, counted where torch dispatches them."""

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from training.data.manifest import Samples, no_samples
from training.defaults.default_scores import Batches
from training.workloads import Workload


def counted(workload: Workload, model: nn.Module, sample: Samples | None) -> float:
    """Forward and backward of a unit: three times the forward pass of one sample.

    The backward pass multiplies twice for each product of the forward pass, by the weights and by
    the inputs. torch counts matrix products, convolutions and attention, and no elementwise
    operations. The model, which may be on meta, is left as it was found, as are torch's
    random numbers.
    """
    modes = {module: module.training for module in model.modules()}
    device = next(model.parameters()).device
    batch = Batches(workload).of(sample or _zeros(workload))
    counter = FlopCounterMode(display=False)
    model.eval()
    with torch.random.fork_rng(devices=[]), torch.no_grad(), counter:
        model(*(one.to(device) for one in workload.inputs(batch)))
    for module, training in modes.items():
        module.training = training
    return 3.0 * counter.get_total_flops() / max(1.0, float(workload.units(batch)))


def of_unit(workload: Workload, model: nn.Module) -> float:
    """``Workload.flops`` of a model that may be on meta.

    A pass that looks at numbers cannot be made there; then a real model is built for it.
    """
    try:
        return workload.flops(model)
    except (NotImplementedError, RuntimeError):
        if not next(model.parameters()).is_meta:
            raise
        return workload.flops(workload.model())


def _zeros(workload: Workload) -> Samples:
    """A sample of zeros, where none was seen; of a field of any width one."""
    fields = workload.packing.fields
    samples = {name: array.repeat(0) for name, array in no_samples(fields).items()}
    for name, field in fields.items():
        samples[name] = torch.zeros((1, *(field.shape or ()))).numpy().astype(field.dtype)
        if field.shape is None:
            samples[f"{name}_offsets"] = torch.arange(2).numpy()
    return samples
