"""Hugging Face Accelerate, as its quick tour shows."""

from accelerate import Accelerator

from benchmarks.training.contenders.hand import loss_of
from benchmarks.training.setting import print_mean_loss, read


def main() -> None:
    setting = read()
    accelerator = Accelerator(cpu=True)
    model = setting.model()
    optimizer = setting.optimizer(model)
    schedule = setting.schedule(optimizer)
    model, optimizer = accelerator.prepare(model, optimizer)
    share = setting.share(accelerator.process_index, accelerator.num_processes)
    for step, tokens in enumerate(share, 1):
        loss = loss_of(model, tokens, setting)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), setting.grad_clip)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if setting.logs(step):
            print_mean_loss(step, loss)
    accelerator.end_training()


if __name__ == "__main__":
    main()
