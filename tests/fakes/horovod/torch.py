"""A fake of horovod.torch over torch's gloo group; what of its API Trainyard uses, no more.

After horovod.readthedocs.io/en/stable/api.html#module-horovod.torch (0.28.1): hooks count down
``backward_passes_per_step`` backward passes before a gradient is reduced; more of them before
``synchronize`` are an error; the optimizer is made again, as a subclass, from its groups alone;
``step`` synchronizes unless inside ``skip_synchronize``.
"""

import contextlib
import os

import torch
import torch.distributed as dist

Average, Sum = "Average", "Sum"
_started = False


def init() -> None:
    """Horovod finds its ranks by MPI; without mpirun it is alone."""
    global _started
    _started = True


def rank() -> int:
    assert _started, "Horovod has not been initialized; use hvd.init()."
    return int(os.environ.get("OMPI_COMM_WORLD_RANK", 0))


def size() -> int:
    assert _started, "Horovod has not been initialized; use hvd.init()."
    return int(os.environ.get("OMPI_COMM_WORLD_SIZE", 1))


def broadcast_parameters(params, root_rank: int) -> None:
    for tensor in params.values():
        dist.broadcast(tensor, root_rank)


class _Distributed:
    def __init__(self, params, named_parameters, passes, op):
        super(self.__class__, self).__init__(params)
        self._names = {parameter: name for name, parameter in named_parameters}
        held = {p for group in self.param_groups for p in group["params"]}
        assert held <= set(self._names), "one or more model parameters were not named"
        self._passes, self._op = passes, op
        self._left = dict.fromkeys(held, passes)
        self._handles, self._synchronized, self._should_synchronize = {}, False, True
        for parameter in held if size() > 1 else ():
            parameter.register_post_accumulate_grad_hook(self._count)

    def _count(self, parameter):
        if self._left[parameter] <= 0:
            raise AssertionError(
                "Gradients were computed more than backward_passes_per_step times before call to "
                "step(). Increase backward_passes_per_step to accumulate gradients locally."
            )
        self._left[parameter] -= 1
        if self._left[parameter] == 0:
            self._handles[parameter] = None

    def synchronize(self):
        if size() > 1:
            for parameter in sorted(self._left, key=self._names.__getitem__):
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                dist.all_reduce(parameter.grad)
                if self._op == Average:
                    parameter.grad /= size()
                self._left[parameter] = self._passes
        self._handles.clear()
        self._synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self):
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure=None):
        if self._should_synchronize:
            assert not self._synchronized, "step() after synchronize() without skip_synchronize()"
            self.synchronize()
        self._synchronized = False
        return super(self.__class__, self).step()

    def zero_grad(self, *arguments, **named):
        if self._handles:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before "
                "optimizer.step() or optimizer.synchronize()."
            )
        return super(self.__class__, self).zero_grad(*arguments, **named)


def DistributedOptimizer(  # noqa: N802  as Horovod names it
    optimizer, named_parameters=None, backward_passes_per_step=1, op=Average
):
    kind = type(optimizer).__name__, (type(optimizer),), dict(_Distributed.__dict__)
    made = type(*kind)
    return made(optimizer.param_groups, named_parameters, backward_passes_per_step, op)
