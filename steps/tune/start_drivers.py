"""Start AWS's drivers in a training job of a tuning job, whose API has no entry point.

The image's own entry point, the sagemaker-training toolkit, runs the program that hyperparameter
``sagemaker_program`` names: this file, beside the drivers. The program that the drivers start gets
its own hyperparameters only. Standard library only: an image of any framework will do.
"""

import json
import os
from pathlib import Path

HYPERPARAMETERS = Path("/opt/ml/input/config/hyperparameters.json")
DRIVERS = "/opt/ml/input/data/sm_drivers/sm_train.sh"
OBJECTIVE = "_tuning_objective_metric"


def main() -> None:
    """Leave out the toolkit's hyperparameters, and become the drivers' script."""
    hyperparameters = json.loads(HYPERPARAMETERS.read_bytes())
    own_parameters = {
        name: value
        for name, value in hyperparameters.items()
        if not name.startswith("sagemaker_") and name != OBJECTIVE
    }
    draft = HYPERPARAMETERS.with_suffix(".tmp")
    draft.write_text(json.dumps(own_parameters), encoding="utf-8")
    draft.replace(HYPERPARAMETERS)
    os.execv("/bin/bash", ["/bin/bash", DRIVERS])


if __name__ == "__main__":
    main()
