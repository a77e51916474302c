"""What AWS's test scripts use of torchvision, whose wheels need CUDA's libraries: MNIST, as read.

It is copied into the venv; pip gives no build of torchvision for a torch without CUDA.
"""
