"""Start AWS's drivers in a training job of a tuning job, whose API has no entry point.

The image's own entry point, the sagemaker-training toolkit, runs the program that the
hyperparameter ``sagemaker_program`` names. That is this file, which is in the drivers' folder. It
removes the toolkit's hyperparameters, so that the program that the drivers start gets only its own.
It needs only the standard library, so that it runs in an image of any framework.
"""

import json
import os
from pathlib import Path

HYPERPARAMETERS = Path("/opt/ml/input/config/hyperparameters.json")
DRIVERS = "/opt/ml/input/data/sm_drivers/sm_train.sh"
OBJECTIVE = "_tuning_objective_metric"


def main() -> None:
    """Remove the toolkit's hyperparameters, and replace this process by the drivers' script."""
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
