"""Image classification: images are decoded and augmented in the loader's threads; a small
ResNet.
"""
