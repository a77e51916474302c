"""Lightning Fabric, as its guide shows."""

import torch
from lightning.fabric import Fabric

from benchmarks.training.contenders.hand import loss_of
from benchmarks.training.setting import read, say


def main() -> None:
    setting = read()
    from os import environ

    fabric = Fabric(accelerator="cpu", strategy="ddp", devices=int(environ["WORLD_SIZE"]))
    fabric.launch()
    module = setting.model()
    model, optimizer = fabric.setup(module, setting.optimizer(module))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: setting.rates[min(step, setting.steps - 1)] / setting.rates[0]
    )
    for step, tokens in enumerate(setting.share(fabric.global_rank, fabric.world_size), 1):
        loss = loss_of(model, tokens, setting)
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=setting.grad_clip)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if setting.logs(step):
            say(step, loss)


if __name__ == "__main__":
    main()
