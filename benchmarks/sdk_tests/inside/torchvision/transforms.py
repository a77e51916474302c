"""The transforms that AWS's MNIST scripts use, of arrays of bytes."""

import torch


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image


class ToTensor:
    def __call__(self, image):
        return torch.as_tensor(image).unsqueeze(0).float() / 255


class Normalize:
    def __init__(self, mean, std):
        self.mean, self.std = (torch.tensor(value).view(-1, 1, 1) for value in (mean, std))

    def __call__(self, image):
        return (image - self.mean) / self.std
