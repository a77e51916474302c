"""The hand-written loop with DeepSpeed's engine; the second argument is the ZeRO stage."""

import sys

import deepspeed
import torch.distributed as dist

from benchmarks.training.contenders.hand import compute_mean_loss
from benchmarks.training.setting import print_mean_loss, read_setting


def main() -> None:
    setting = read_setting()
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    rank, world = dist.get_rank(), dist.get_world_size()
    model = setting.model()
    config = {
        "train_batch_size": setting.global_batch,
        "train_micro_batch_size_per_gpu": setting.global_batch // world,
        "gradient_clipping": setting.grad_clip,
        "zero_optimization": {"stage": int(sys.argv[2])},
        "steps_per_print": setting.steps + 1,
    }
    # ZeRO's own partitioned update: torch's fused one is kept, as everywhere else here.
    engine, optimizer, _, _ = deepspeed.initialize(
        model=model, optimizer=setting.optimizer(model), config=config
    )
    for step, tokens in enumerate(setting.iter_share(rank, world), 1):
        for group in optimizer.param_groups:
            group["lr"] = setting.rates[step - 1]
        loss = compute_mean_loss(engine, tokens, setting)
        engine.backward(loss)
        engine.step()
        if setting.is_logged(step):
            print_mean_loss(step, loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
