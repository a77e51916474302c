"""Hugging Face Accelerate, as its quick tour shows."""

from accelerate import Accelerator

from benchmarks.training.contenders.hand import compute_mean_loss
from benchmarks.training.setting import print_mean_loss, read_setting


def main() -> None:
    setting = read_setting()
    accelerator = Accelerator(cpu=True)
    model = setting.model()
    optimizer = setting.optimizer(model)
    schedule = setting.make_schedule(optimizer)
    model, optimizer = accelerator.prepare(model, optimizer)
    share = setting.iter_share(accelerator.process_index, accelerator.num_processes)
    for step, tokens in enumerate(share, 1):
        loss = compute_mean_loss(model, tokens, setting)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), setting.grad_clip)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if setting.is_logged(step):
            print_mean_loss(step, loss)
    accelerator.end_training()


if __name__ == "__main__":
    main()
