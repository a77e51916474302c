"""The algorithm's hyperparameters: types, ranges, dependencies, and the algorithm's own errors.

Both the job and ``trainyard validate`` use these tables. Their source is
sagemaker-xgboost-container, algorithm_mode/hyperparameter_validation.py; the developer guide,
xgboost_hyperparameters, documents most of them.
"""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.emulator.algorithms.xgboost.facts import MAXIMIZED_METRICS, MINIMIZED_METRICS


class UserError(Exception):
    """An error in the job's request or data, named as in ``sagemaker_algorithm_toolkit``."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval of numbers such as ``[0, 1)``. ``text`` is shown in errors."""

    text: str

    def __contains__(self, value: float) -> bool:
        low, high = (float(part.strip("[]() ")) for part in self.text.split(","))
        above = value >= low if self.text[0] == "[" else value > low
        below = value <= high if self.text[-1] == "]" else value < high
        return above and below

    def __str__(self) -> str:
        return self.text


Range = Interval | tuple[Any, ...]
_NON_NEGATIVE, _POSITIVE, _UNIT = "[0, +inf)", "[1, +inf)", "[0, 1]"
_PARTS, _FLAG = "(0, 1]", ("true", "false")
_GROWERS = ("grow_colmaker", "distcol", "grow_histmaker", "grow_quantile_histmaker")
_TREE = (
    *("grow_colmaker", "distcol", "grow_histmaker", "grow_skmaker", "sync"),
    *("refresh", "prune", "grow_quantile_histmaker"),
)
_LINEAR = ("shotgun", "coord_descent")
OBJECTIVES = (
    "aft_loss_distribution",
    *("binary:logistic", "binary:logitraw", "binary:hinge", "count:poisson"),
    *("multi:softmax", "multi:softprob", "rank:pairwise", "rank:ndcg", "rank:map"),
    *("reg:linear", "reg:squarederror", "reg:logistic", "reg:gamma", "reg:pseudohubererror"),
    *("reg:squaredlogerror", "reg:absoluteerror", "reg:tweedie", "survival:aft", "survival:cox"),
)
_INTEGERS = {
    "num_round": _POSITIVE,
    "csv_weights": _UNIT,
    "early_stopping_rounds": _POSITIVE,
    "verbosity": "[0, 3]",
    "nthread": _POSITIVE,
    "max_depth": _NON_NEGATIVE,
    "refresh_leaf": _UNIT,
    "max_leaves": _NON_NEGATIVE,
    "max_bin": _NON_NEGATIVE,
    "one_drop": _UNIT,
    "num_class": "[2, +inf)",
    "_kfold": "[2, +inf)",
    "_num_cv_round": _POSITIVE,
    "seed": f"(-{2**31}, {2**31 - 1})",
    "num_parallel_tree": _POSITIVE,
    "prob_buffer_row": "(1.0, +inf)",
    "silent": _UNIT,  # until 1.0-1
}
_FLOATS = {
    "eta": _UNIT,
    "gamma": _NON_NEGATIVE,
    "min_child_weight": _NON_NEGATIVE,
    "max_delta_step": _NON_NEGATIVE,
    "subsample": _PARTS,
    "colsample_bytree": _PARTS,
    "colsample_bylevel": _PARTS,
    "colsample_bynode": _PARTS,
    "lambda": _NON_NEGATIVE,
    "alpha": _NON_NEGATIVE,
    "sketch_eps": "(0, 1)",
    "scale_pos_weight": "(0, +inf)",
    "rate_drop": _UNIT,
    "skip_drop": _UNIT,
    "lambda_bias": _UNIT,
    "tweedie_variance_power": "(1, 2)",
    "base_score": _NON_NEGATIVE,
    "aft_loss_distribution_scale": _NON_NEGATIVE,
}
_WORDS = {
    "booster": ("gbtree", "gblinear", "dart"),
    "tree_method": ("auto", "exact", "approx", "hist", "gpu_hist"),
    "dsplit": ("row", "col"),
    "process_type": ("default", "update"),
    "grow_policy": ("depthwise", "lossguide"),
    "predictor": ("auto", "cpu_predictor", "gpu_predictor"),
    "sample_type": ("uniform", "weighted"),
    "normalize_type": ("tree", "forest"),
    "objective": OBJECTIVES,
    "_tuning_objective_metric": tuple(
        f"validation:{name}" for name in (*MAXIMIZED_METRICS, *MINIMIZED_METRICS)
    ),
    "save_model_on_termination": _FLAG,
    "aft_loss_distribution": ("normal", "logistic", "extreme"),
    "deterministic_histogram": _FLAG,
    "sampling_method": ("uniform", "gradient_based"),
    "use_dask_gpu_training": _FLAG,
}
_OTHER: dict[str, Callable[[str], Any]] = {
    "updater": lambda text: text.split(","),
    "eval_metric": lambda text: text.split(","),
    "monotone_constraints": ast.literal_eval,
    "interaction_constraints": ast.literal_eval,
}
_ALIASES = {
    "learning_rate": "eta",
    "min_split_loss": "gamma",
    "reg_lambda": "lambda",
    "reg_alpha": "alpha",
}


REQUIRED_NAME = "num_round"
NEED_CLASSES = ("multi:softmax", "multi:softprob")
TOGETHER = frozenset(
    ("objective", "tree_method", "eval_metric", "updater", "booster", "process_type", "num_class")
    + ("monotone_constraints", "interaction_constraints")
)
"""Hyperparameters that require or exclude one another."""
TUNABLE = frozenset(
    ("alpha", "colsample_bylevel", "colsample_bynode", "colsample_bytree", "eta", "gamma")
    + ("lambda", "max_delta_step", "max_depth", "min_child_weight", "num_round", "subsample")
)
"""Hyperparameters that a tuning job may choose: developer guide, xgboost-tuning; ``tunable=True``
in the container's source.
"""


def list_hyperparameter_names(version: tuple[int, int]) -> list[str]:
    """Return the names of all hyperparameters, including aliases, of an image of that version."""
    hyperparameters = [*_INTEGERS, *_FLOATS, *_WORDS, *_OTHER, *_ALIASES]
    return [name for name in hyperparameters if name != "silent" or version <= (1, 0)]


def resolve_alias(name: str) -> str:
    """Return the name that an alias stands for: ``eta`` for ``learning_rate``. Return other names
    unchanged.
    """
    return _ALIASES.get(name, name)


def is_integer_hyperparameter(name: str) -> bool:
    """Return whether the hyperparameter's values are integers."""
    return resolve_alias(name) in _INTEGERS


def explain_invalid_hyperparameter(name: str, text: str, version: tuple[int, int]) -> str | None:
    """Return the algorithm's error for a single hyperparameter. Return None if it is valid."""
    try:
        _check_range(resolve_alias(name), _parse_hyperparameter(resolve_alias(name), text, version))
    except UserError as error:
        return str(error)
    return None


def explain_hyperparameter_conflict(
    hyperparameters: Mapping[str, str], version: tuple[int, int]
) -> str | None:
    """Return the algorithm's error for values that are valid alone but not together. Return None if
    there is none.
    """
    texts = {resolve_alias(name): text for name, text in hyperparameters.items()}
    try:
        _check_combination(
            {name: _parse_hyperparameter(name, text, version) for name, text in texts.items()}
        )
    except UserError as error:
        return str(error)
    return None


def convert_hyperparameters(
    hyperparameters: Mapping[str, str], version: tuple[int, int]
) -> dict[str, Any]:
    """Return the hyperparameters for an image of that version, converted to their types, with
    aliases replaced.

    Raises :class:`UserError`, in the algorithm's words, if the algorithm refuses them.
    """
    texts = {resolve_alias(name): value for name, value in hyperparameters.items()}
    if REQUIRED_NAME not in texts:
        raise UserError(f"Missing required hyperparameter: {REQUIRED_NAME}")
    values = {name: _parse_hyperparameter(name, text, version) for name, text in texts.items()}
    for name, value in values.items():
        _check_range(name, value)
    _check_combination(values)
    return values


def _parse_hyperparameter(name: str, text: str, version: tuple[int, int]) -> Any:
    """Return ``text``, converted to its type. Raises UserError for a wrong name or text."""
    kinds: tuple[tuple[Mapping[str, Any], Callable[[str], Any]], ...] = (
        (_INTEGERS, int),
        (_FLOATS, float),
        (_WORDS, str),
        (_OTHER, _OTHER.get(name, str)),
    )
    parse = next((parse for names, parse in kinds if name in names), None)
    if parse is None or (name == "silent" and version > (1, 0)):
        raise UserError(f"Extraneous hyperparameter found: {name}")
    try:
        return parse(text)
    except (ValueError, SyntaxError) as error:
        kind = type(error).__name__
        raise UserError(
            f"Hyperparameter {name}: could not parse value (caused by {kind})"
        ) from None


def _check_range(name: str, value: Any) -> None:
    """Raise UserError if the value is outside the hyperparameter's range or choices."""
    numbers = _INTEGERS | _FLOATS
    value_range: Range = Interval(numbers[name]) if name in numbers else _WORDS.get(name, ())
    if name in _OTHER:
        try:
            right = all(_OTHER_RANGES[name](part) for part in value)
        except TypeError:  # not a list, or not a list of lists
            right = False
        if not right:
            raise UserError(f"Hyperparameter {name}: value {value} not in range")
    elif value not in value_range:
        choices = list(value_range) if isinstance(value_range, tuple) else value_range
        raise UserError(f"Hyperparameter {name}: {value} is not in {choices}")


def _is_metric(name: str) -> bool:
    """Return whether ``name`` is a metric. Raises UserError for a bad threshold (``error@t``)."""
    if "@" not in name:
        return name in MAXIMIZED_METRICS or name in MINIMIZED_METRICS
    metric, _, threshold = (part.strip() for part in name.partition("@"))
    if metric not in ("error", "ndcg", "map"):
        raise UserError(
            f"Metric '{name}' is not supported. Parameter 'eval_metric' with customized threshold "
            "should be one of these options: 'error', 'ndcg', 'map'."
        )
    try:
        float(threshold)
    except ValueError:
        message = f"Threshold value 't' in '{metric}@t' expects float input."
        raise UserError(message) from None
    return True


_OTHER_RANGES: dict[str, Callable[[Any], bool]] = {
    "updater": lambda part: part in (*_TREE, *_LINEAR),
    "eval_metric": _is_metric,
    "monotone_constraints": lambda part: part in (-1, 0, 1),
    "interaction_constraints": lambda group: all(index >= 1 for index in group),
}


def _check_combination(values: Mapping[str, Any]) -> None:
    """Raise UserError if hyperparameters conflict, or if one requires another that is missing."""
    objective, method = values.get("objective", ""), values.get("tree_method")
    if objective in NEED_CLASSES and "num_class" not in values:
        raise UserError("Require input for parameter 'num_class' for multi-classification")
    metrics = values.get("eval_metric", ())
    if "auc" in metrics and not objective.startswith(("binary:", "rank:")):
        raise UserError("Metric 'auc' can only be applied for classification and ranking problems.")
    if "aft-nloglik" in metrics and objective != "survival:aft":
        raise UserError("Metric 'aft-nloglik' can only be applied for 'survival:aft' objective.")
    if "monotone_constraints" in values and method not in ("exact", "hist"):
        raise UserError(
            "monotone_constraints can be used only when the tree_method parameter is set to "
            "either 'exact' or 'hist'."
        )
    if "interaction_constraints" in values and method not in ("exact", "hist", "approx"):
        raise UserError(
            "interaction_constraints can be used only when the tree_method parameter is set to "
            "either 'exact', 'hist' or 'approx'."
        )
    if "updater" in values:
        _check_updater(values["updater"], values)


def _check_updater(updater: list[str], values: Mapping[str, Any]) -> None:
    """Raise UserError if an updater does not fit the booster or the process type."""
    if values.get("booster") == "gblinear":
        if len(updater) != 1 or updater[0] not in _LINEAR:
            options = ", ".join(f"'{name}'" for name in _LINEAR)
            raise UserError(f"Linear updater should be one of these options: {options}.")
    elif values.get("process_type") == "update":
        if not set(updater) <= {"refresh", "prune"}:
            raise UserError(
                "process_type 'update' can only be used with updater 'refresh' and 'prune'"
            )
    elif not set(updater) <= set(_TREE):
        options = ", ".join(f"'{name}'" for name in _TREE)
        raise UserError(f"Tree updater should be selected from these options: {options}.")
    elif sum(name in _GROWERS for name in updater) > 1:
        options = ", ".join(f"'{name}'" for name in _GROWERS)
        raise UserError(f"Only one tree grow plugin can be selected. Choose one from {options}")
