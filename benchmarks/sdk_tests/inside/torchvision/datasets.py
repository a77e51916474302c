"""``datasets.MNIST`` of files that exist already: (images, labels) in processed/*.pt."""

from pathlib import Path

import torch


class MNIST(torch.utils.data.Dataset):
    """MNIST's data set; ``download`` writes random digits of the same form instead."""

    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
        folder = Path(root) / "MNIST/processed"
        if download:
            write_digits(folder)
        path = folder / ("training.pt" if train else "test.pt")
        if not path.exists():
            raise RuntimeError(f"Dataset not found: {path}; expected download=True")
        self.data, self.targets = torch.load(path)
        self.transform = transform

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        image = self.data[index].numpy()
        return (self.transform(image) if self.transform else image), int(self.targets[index])


def write_digits(folder):
    """Write random images and labels of MNIST's form, where there are none."""
    for name, count in (("training.pt", 256), ("test.pt", 128)):
        if not (folder / name).exists():
            folder.mkdir(parents=True, exist_ok=True)
            images = torch.randint(0, 256, (count, 28, 28), dtype=torch.uint8)
            torch.save((images, torch.randint(0, 10, (count,))), folder / name)
