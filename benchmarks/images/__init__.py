"""Decoded and augmented images: ours beside torchvision's ImageFolder and litdata."""
