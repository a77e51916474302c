"""The part of torchvision that AWS's test scripts use: MNIST. Its own wheels need CUDA's libraries.

It is copied into the venv; pip gives no build of torchvision for a torch without CUDA.
"""
