import json
import os
import pickle

import xgboost

test = xgboost.DMatrix(os.environ["SM_CHANNEL_TEST"] + "/abalone.libsvm?format=libsvm")
with open(os.environ["SM_MODEL_DIR"] + "/xgboost-model", "rb") as file:
    model = pickle.load(file)
with open(os.environ["SM_OUTPUT_DATA_DIR"] + "/scores.jsonl", "w") as out:
    for i, (answer, label) in enumerate(zip(model.predict(test), test.get_label(), strict=True)):
        print(json.dumps({"example": i, "squared_error": float(answer - label) ** 2}), file=out)
