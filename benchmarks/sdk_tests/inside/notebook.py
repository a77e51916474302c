"""Run a notebook's code cells, one after the other, as Jupyter would.

python notebook.py FILE
"""

import json
import os
import sys
import time

from IPython.core.interactiveshell import InteractiveShell

sys.path[:0] = ["", os.path.dirname(__file__)]


def main(path):
    if os.environ.get("SDK_TESTS_IDLE"):
        import plugin  # noqa: F401  the same sleeps
    with open(path) as file:
        cells = json.load(file)["cells"]
    shell = InteractiveShell.instance()
    for cell in cells:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code" and text.strip():
            result = shell.run_cell(text)
            if not result.success:
                print(f"cell failed after {time.process_time():.0f} s:\n{text}", file=sys.stderr)
                raise SystemExit(1)


if __name__ == "__main__":
    main(sys.argv[1])
