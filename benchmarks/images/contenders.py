"""Who takes part: each makes its data of a folder of images, and gives shuffled batches of pixels.

All cut out a random part (area 0.08 to 1, ratio 3/4 to 4/3), scale it to SIZE and mirror half of
them. Pixels are uint8.
"""

import io
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

BATCH, SIZE = 32, 224

Batches = Generator[Tensor, None, None]


class Ours:
    """The shard job, then the loop's loader with threads."""

    def make(self, images: Path, folder: Path) -> None:
        from steps.shard import job

        places = ["--input", str(images), "--output", str(folder), "--root", str(folder / "ml")]
        (folder / "ml").mkdir(parents=True)
        shares = ["--validation_share", "0.01", "--test_share", "0.01"]
        job.main(["--workload", "image", *places, *shares])

    def batches(self, folder: Path, workers: int) -> Batches:
        from training.data.dataset import Dataset
        from training.data.loader import Loader
        from training.data.order import uniform
        from training.data.preparation import Preparation
        from training.workloads import load

        train = Dataset(folder / "train")
        workload = load("image", {"size": SIZE})
        workload.fit(train)
        preparation = Preparation.of(workload, threads=workers)
        order = uniform(train.fingerprint, 0, len(train))
        sizes = {"global_batch": BATCH, "micro_batch": BATCH}
        return _pixels(Loader(train, order, **sizes, preparation=preparation))


class Torchvision:
    """ImageFolder and DataLoader, as PyTorch's ImageNet example has them."""

    def make(self, images: Path, folder: Path) -> None:
        folder.symlink_to(images)

    def batches(self, folder: Path, workers: int) -> Batches:
        datasets, augment = _torchvision()
        found = datasets.ImageFolder(str(folder), augment)
        loader = torch.utils.data.DataLoader(
            found, BATCH, shuffle=True, num_workers=workers, drop_last=True,
            persistent_workers=workers > 0,
        )  # fmt: skip
        return _epochs(loader)


class Litdata:
    """``optimize``'s chunks of encoded images, and StreamingDataLoader, as its README has them."""

    def make(self, images: Path, folder: Path) -> None:
        from litdata.streaming.writer import BinaryWriter

        writer = BinaryWriter(str(folder), chunk_bytes="64MB")
        for number, path in enumerate(sorted(images.rglob("*.jpg"))):
            writer[number] = {"image": path.read_bytes(), "label": path.parent.name}
        writer.done()
        writer.merge()

    def batches(self, folder: Path, workers: int) -> Batches:
        from litdata import StreamingDataLoader

        dataset = _decoding(str(folder))
        loader = StreamingDataLoader(dataset, batch_size=BATCH, num_workers=workers, drop_last=True)
        return _epochs(loader)


def _pixels(loader: Any) -> Batches:
    with loader:
        for batch in loader:
            yield batch["pixels"]


def _epochs(loader: Any) -> Batches:
    while True:
        for batch in loader:
            yield batch if isinstance(batch, Tensor) else batch[0]


CONTENDERS: dict[str, Callable[[], Any]] = {
    "ours": Ours,
    "torchvision": Torchvision,
    "litdata": Litdata,
}


def _torchvision() -> tuple[Any, Any]:
    """(datasets, the augmentation).

    PyPI's wheel is linked against CUDA: beside a torch for processors its own operators (nms) are
    missing, which no transform of images needs.
    """
    registered, torch.library.register_fake = torch.library.register_fake, _unregistered
    try:
        from torchvision import datasets, transforms
    finally:
        torch.library.register_fake = registered
    steps = [transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip()]
    return datasets, transforms.Compose([*steps, transforms.PILToTensor()])


def _unregistered(name: str, *_: Any, **__: Any) -> Callable[[Any], Any]:
    return lambda function: function


def _decoding(folder: str) -> Any:
    from litdata import StreamingDataset
    from PIL import Image

    _, augment = _torchvision()

    class Decoding(StreamingDataset):
        def __getitem__(self, index: Any) -> Tensor:
            found = super().__getitem__(index)
            return augment(Image.open(io.BytesIO(found["image"])).convert("RGB"))

    return Decoding(folder, shuffle=True, drop_last=True)
