"""Write random digits in MNIST's form into folders that lack theirs.

python digits.py FOLDER...
"""

import sys
from pathlib import Path

from torchvision.datasets import write_digits

for folder in map(Path, sys.argv[1:]):
    write_digits(folder)
