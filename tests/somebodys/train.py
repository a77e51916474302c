"""A training of somebody who knows nothing of Trainyard: the slope of a logistic regression."""

import argparse
import json
import os

parser = argparse.ArgumentParser()
parser.add_argument("--slope", type=float, default=1.0)
parser.add_argument("--seen", default="")
options = parser.parse_args()
print("loss=0.5")
with open(os.path.join(os.environ["SM_MODEL_DIR"], "weights.json"), "w") as file:
    json.dump({"slope": options.slope, "seen": options.seen.split(",")}, file)
