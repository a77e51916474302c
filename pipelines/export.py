r"""Export the train step as a Kubernetes manifest, checked offline against its kind's schema.

python -m pipelines.export --recipe recipes/prod.yaml --to trainjob --claim fsx --efa 4 \
    --channel train=s3://bucket/…/shard/train --channel validation=s3://bucket/…/shard/validation
python -m pipelines.export --recipe R --to hyperpod --claim fsx … --out job.yaml
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from pipelines.definition import from_recipe
from pipelines.kubernetes.kinds import KINDS
from pipelines.kubernetes.pod import Cluster
from pipelines.kubernetes.training_spec import read_training
from pipelines.recipe.cli_options import NOT_GIVEN, EnvOption, RecipeOption, SetOption
from trainyard.common import atomic_file
from trainyard.common.errors import DefinitionError, RecipeError, nearest
from trainyard.terminal import pairs, refuse_place, run


def main(
    recipe: RecipeOption,
    to: Annotated[str, typer.Option(help=f"The kind of manifest: {', '.join(KINDS)}.")],
    claim: Annotated[
        str,
        typer.Option(help="PersistentVolumeClaim of checkpoints and model."),
    ],
    overrides: SetOption = NOT_GIVEN,
    environment: EnvOption = None,
    channel: Annotated[
        list[str],
        typer.Option(metavar="NAME=S3URI", help="S3 URI of a channel's data; once per split."),
    ] = NOT_GIVEN,
    namespace: Annotated[str, typer.Option(help="Kubernetes' namespace.")] = "default",
    service_account: Annotated[
        str | None, typer.Option(help="Service account whose role may read the data.")
    ] = None,
    efa: Annotated[int | None, typer.Option(min=0, help="EFA interfaces of a pod.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write it there instead of printing it.")] = None,
) -> None:
    """Write the train step as a manifest; needs no AWS, no cluster and no credentials."""
    if to not in KINDS:
        raise RecipeError(f"--to {to}: is not a kind of manifest; {nearest(to, list(KINDS))}")
    if out is not None:
        refuse_place(out)
    compiled = from_recipe(recipe, overrides, environment)
    training = read_training(compiled, pairs("--channel", channel))
    cluster = Cluster(claim=claim, namespace=namespace, service_account=service_account, efa=efa)
    manifests = KINDS[to](training, cluster)
    for manifest in manifests:
        if wrong := list(problems(manifest)):
            raise DefinitionError(f"{manifest['kind']}: {'; '.join(wrong)}")
    text = yaml.safe_dump_all(manifests, sort_keys=False, width=1000)
    if out is None:
        print(text, end="")
    else:
        atomic_file.write(out, text)


# ``python scripts/crds.py`` writes ``schemas.json``. It has fields and types, but not what only a
# cluster can check (rules in CEL, quotas, whether a claim exists).


SCHEMAS = Path(__file__).with_name("kubernetes") / "schemas.json"


def problems(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield ``spec.trainer.numNode: …`` for each field that the kind lacks, or has in
    another type.
    """
    validator = _validator(str(manifest.get("kind")))
    if validator is None:
        yield f"kind: {manifest.get('kind')!r} is unknown; known are {', '.join(kinds())}"
        return
    for error in validator.iter_errors(manifest):
        yield _said(error)


def kinds() -> list[str]:
    """Return the kinds whose schemas are known."""
    return list(_schemas()["kinds"])


def _said(error: ValidationError) -> str:
    return f"{'.'.join(map(str, error.absolute_path)) or 'manifest'}: {error.message}"


@cache
def _schemas() -> dict[str, Any]:
    return json.loads(SCHEMAS.read_text(encoding="utf-8"))


@cache
def _validator(kind: str) -> Draft202012Validator | None:
    schemas = _schemas()
    shape = schemas["kinds"].get(kind)
    return shape and Draft202012Validator({**shape, "$defs": schemas["$defs"]})


if __name__ == "__main__":
    run(main)
