"""Which endpoints serve what: endpoint → its configuration → models → model packages."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from trainyard.common.errors import ServiceError
from trainyard.console.account import Account
from trainyard.service import service_errors

THREADS = 8
SECONDS = 10.0
"""For which what endpoints serve is good; models and configurations never change at all."""

FOR_EVER = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An endpoint as it is now."""

    name: str
    status: str
    config: str
    models: tuple[str, ...]
    packages: tuple[str, ...]
    """ARNs of the model packages that its models were made of."""

    unknown: str = ""
    """Why it cannot be known what it serves; empty where it can."""


def endpoints(account: Account) -> list[Endpoint]:
    """Every endpoint of the account, the newest first.

    Raises:
        ServiceError: AWS refused the list.
    """

    def read() -> list[Endpoint]:
        with service_errors("listing the endpoints"):
            pages = account.sagemaker.get_paginator("list_endpoints").paginate()
            names = [one["EndpointName"] for page in pages for one in page.get("Endpoints", ())]
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(lambda name: _endpoint(account, name), names))

    return account.lately("models endpoints", read, min(SECONDS, account.seconds * 5))


def endpoint_now(account: Account, name: str) -> dict[str, Any]:
    """DescribeEndpoint's answer.

    Raises:
        ServiceError: there is none, or AWS refused.
    """
    return _read(account, "endpoint", name)


def config(account: Account, name: str) -> dict[str, Any]:
    """DescribeEndpointConfig's answer. Raises ServiceError."""
    return _read(account, "endpoint_config", name, FOR_EVER)


def model(account: Account, name: str) -> dict[str, Any]:
    """DescribeModel's answer. Raises ServiceError."""
    return _read(account, "model", name, FOR_EVER)


def models_of(config: Mapping[str, Any]) -> list[str]:
    """Names of the models of a configuration's variants."""
    variants = config.get("ProductionVariants") or ()
    return list(dict.fromkeys(v["ModelName"] for v in variants if v.get("ModelName")))


def packages_of(model: Mapping[str, Any]) -> list[str]:
    """ARNs of the packages of a model's containers."""
    found = (one.get("ModelPackageName") for one in containers_of(model))
    return list(dict.fromkeys(name for name in found if name))


def containers_of(model: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A model's containers, the primary one first."""
    if primary := model.get("PrimaryContainer"):
        yield primary
    yield from model.get("Containers") or ()


def _endpoint(account: Account, name: str) -> Endpoint:
    try:
        now = endpoint_now(account, name)
        used = now.get("EndpointConfigName", "")
        models = models_of(config(account, used)) if used else []
        packages = [arn for one in models for arn in packages_of(model(account, one))]
        unknown = ""
    except ServiceError as error:
        now, used, models, packages, unknown = {}, "", [], [], str(error)
    return Endpoint(
        name=name,
        status=str(now.get("EndpointStatus", "Unknown")),
        config=used,
        models=tuple(models),
        packages=tuple(dict.fromkeys(packages)),
        unknown=unknown,
    )


def _read(account: Account, what: str, name: str, seconds: float | None = None) -> dict[str, Any]:
    parameter = "".join(part.capitalize() for part in what.split("_")) + "Name"

    def read() -> dict[str, Any]:
        with service_errors(f"reading {what.replace('_', ' ')} {name}"):
            call = getattr(account.sagemaker, f"describe_{what}")
            answer: dict[str, Any] = call(**{parameter: name})
        return answer

    return account.lately((f"models {what}", name), read, seconds)
