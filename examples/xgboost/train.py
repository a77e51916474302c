"""Train trees on a table's shards, in any number of processes, each with its part of the rows.

Nothing of Trainyard is imported: this could be any script. It reads the channels train
and validation, and leaves xgboost-model and features.json in SM_MODEL_DIR.
"""

import argparse
import hashlib
import os
from pathlib import Path

import rabit
import xgboost as xgb
from shards import Features, Split


def main() -> None:
    options = parse_arguments()
    train = Split(os.environ["SM_CHANNEL_TRAIN"])
    validation = Split(os.environ["SM_CHANNEL_VALIDATION"])
    features = Features(train.columns, train.values())
    with rabit.join_communicator() as (rank, world):
        model = fit_trees(options, features, train, validation, rank, world)
        check_same_trees(model, rank, world)
    if rank == 0:
        folder = Path(os.environ["SM_MODEL_DIR"])
        model.save_model(folder / "xgboost-model")
        features.write(folder / "features.json")


def fit_trees(
    options: argparse.Namespace,
    features: Features,
    train: Split,
    validation: Split,
    rank: int,
    world: int,
) -> xgb.Booster:
    """Return the trees, boosted until the validation loss of all processes stops improving."""
    train_matrix, validation_matrix = (
        make_matrix(features, split, rank, world) for split in (train, validation)
    )
    settings = {
        "objective": "binary:logistic",
        "eval_metric": "logloss",
        "tree_method": "hist",
        "eta": options.eta,
        "max_depth": options.max_depth,
        "nthread": options.nthread,
        "seed": 0,
    }
    patience = xgb.callback.EarlyStopping(rounds=options.patience, save_best=True)
    return xgb.train(
        settings,
        train_matrix,
        num_boost_round=options.num_round,
        evals=[(train_matrix, "train"), (validation_matrix, "validation")],
        callbacks=[patience],
        verbose_eval=rank == 0 and 10,
    )


def make_matrix(features: Features, split: Split, rank: int, world: int) -> xgb.DMatrix:
    rows = split.rows(rank, world)
    return xgb.DMatrix(
        features.build_matrix(rows),
        label=rows["label"],
        feature_types=features.types,
        enable_categorical=True,
    )


def check_same_trees(model: xgb.Booster, rank: int, world: int) -> None:
    """Exit with an error if this process has grown other trees than rank 0."""
    sha256 = hashlib.sha256(model.save_raw()).hexdigest()
    rounds = model.num_boosted_rounds()
    print(f"rank {rank} of {world}: {rounds} rounds, model {sha256}", flush=True)
    if xgb.collective.broadcast(sha256, 0) != sha256:
        raise SystemExit(f"rank {rank}: its model is not rank 0's")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num_round", type=int, default=500)
    parser.add_argument("--eta", type=float, default=0.05)
    parser.add_argument("--max_depth", type=int, default=6)
    parser.add_argument("--patience", type=int, default=10)
    parser.add_argument("--nthread", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
