"""Baselines that a model must beat: a logistic regression on a few pixels, and the class shares."""

import logging
from collections.abc import Callable, Mapping

import numpy as np
from sklearn.linear_model import LogisticRegression

from training.data.dataset import Dataset
from training.data.manifest import Samples
from training.data.preparation import split
from training.workloads.image.classes import Classes
from training.workloads.image.config import ImageConfig
from training.workloads.image.pixels import pixels
from trainyard.common.errors import TrainingError

log = logging.getLogger(__name__)

SIDE = 16
"""Pixels along each side of the grey image that the regression sees, at most the image's own."""
STRENGTHS = (0.01, 0.1, 1.0, 10.0)  # C: the inverse of the L2 penalty
HELD_OUT_EVERY = 5
MAX_ITERATIONS = 1000

Logits = Callable[[Samples], np.ndarray]


def fit_baselines(
    config: ImageConfig, classes: Classes, train: Dataset, limit: int
) -> Mapping[str, Logits]:
    """Baseline → samples to logits (n, classes), fitted on at most ``limit`` images, spread evenly.

    Raises:
        TrainingError: a class has no image among them, or the regression does not converge.
    """
    small = config.model_copy(
        update={"size": min(SIDE, config.size), "channels": 1, "evaluated_part": 1.0}
    )
    count = min(limit, len(train))
    indices = np.arange(count) * len(train) // count
    design, targets = np.empty((count, small.size**2)), np.empty(count, np.int64)
    for start in range(0, count, 1024):
        samples = train.read(indices[start : start + 1024])
        stop = start + len(samples["label"])
        design[start:stop] = rows(small, samples)
        targets[start:stop] = [classes.numbers[code] for code in samples["label"].tolist()]
    seen_count, class_count = len(np.unique(targets)), len(classes.names)
    if seen_count < class_count:
        raise TrainingError(
            f"the {count} training images that the baselines may see have {seen_count} of "
            f"{class_count} "
            "classes; raise evaluate.baseline_units"
        )
    model = _fit(design, targets, _best_strength(design, targets))
    shares = np.log(classes.shares)
    return {
        "logistic_regression": lambda samples: _logits(model, rows(small, samples)),
        "majority": lambda samples: np.tile(shares, (len(samples["label"]), 1)),
    }


def rows(config: ImageConfig, samples: Samples) -> np.ndarray:
    """Return the regression's inputs for images, float64 (n, pixels), 0 to 1."""
    images = [pixels(sample["image"].tobytes(), config, None) for sample in split(samples)]
    return np.stack(images).reshape(len(images), -1) / 255


def _logits(model: LogisticRegression, design: np.ndarray) -> np.ndarray:
    """Return a logit per class; for two classes scikit-learn gives only that of the second."""
    logits = model.decision_function(design)
    return logits if logits.ndim == 2 else np.stack((np.zeros_like(logits), logits), axis=1)


def _best_strength(design: np.ndarray, targets: np.ndarray) -> float:
    """Return the value of STRENGTHS that predicts a held-out fifth best."""
    held_out = np.arange(len(targets)) % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
    if len(np.unique(targets[~held_out])) < len(np.unique(targets)):
        log.warning("%d images are too few to choose C on: it is 1", len(targets))
        return 1.0

    def loss(strength: float) -> float:
        logits = _logits(_fit(design[~held_out], targets[~held_out], strength), design[held_out])
        total = np.logaddexp.reduce(logits, axis=1)
        return float((total - logits[np.arange(len(logits)), targets[held_out]]).mean())

    best = min(STRENGTHS, key=loss)
    log.info("logistic regression: C = %g, of %s", best, STRENGTHS)
    return best


def _fit(design: np.ndarray, targets: np.ndarray, strength: float) -> LogisticRegression:
    model = LogisticRegression(C=strength, max_iter=MAX_ITERATIONS)
    model.fit(design, targets)
    if model.n_iter_.max() >= MAX_ITERATIONS:
        # A baseline that has not converged is easy to beat: the gate must not use it.
        raise TrainingError(
            f"the logistic regression (C = {strength:g}) has not converged after {MAX_ITERATIONS} "
            "iterations; lower evaluate.baseline_units"
        )
    return model
