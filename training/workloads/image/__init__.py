"""Classification of images: decoded and augmented in the loader's threads, a small ResNet."""
