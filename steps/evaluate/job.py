"""Score the trained model, the champion and the baselines on the test split.

python steps/evaluate/job.py [--baseline_units N] [--champion ARN] [--slices NAME …]
python steps/evaluate/job.py --script evaluate.py --metrics accuracy=higher --channels test …
"""

import sys

from steps.job_main import run
from trainyard.common.process import exclude_from_gc


def main(arguments: list[str] | None = None) -> None:
    words = sys.argv[1:] if arguments is None else arguments
    # A script runs in an image that may have no torch.
    if "--script" in words:
        from steps.evaluate import script_evaluation as evaluation
    else:
        with exclude_from_gc():  # the collector never has to scan the imported objects
            import torch._dynamo  # noqa: F401 (building a first model imports it anyway)

            from steps.evaluate import workload_evaluation as evaluation
    options = evaluation.parse_arguments(words)
    run(lambda: evaluation.evaluate_models(options), options.root / "output/message")


if __name__ == "__main__":
    main()
