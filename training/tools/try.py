"""Try a workload: ``python -m training.tools.try my_package.my_workload --data sample/``."""

import typer

from training.tools.contract_tests.try_command import main

if __name__ == "__main__":
    typer.run(main)
