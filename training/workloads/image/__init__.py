"""Image classification with a small ResNet; the loader's threads decode and augment."""
