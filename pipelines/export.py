"""The train step as a manifest of Kubernetes, checked offline against its kind's shape.

python -m pipelines.export --recipe recipes/prod.yaml --to trainjob --claim fsx --efa 4 \\
    --channel train=s3://bucket/…/shard/train --channel validation=s3://bucket/…/shard/validation
python -m pipelines.export --recipe R --to hyperpod --claim fsx … --out job.yaml
"""

from pathlib import Path
from typing import Annotated

import typer
import yaml

from pipelines.cli import RecipeOption, SetOption
from pipelines.definition import from_recipe
from pipelines.exporting.checking import problems
from pipelines.exporting.kinds import KINDS
from pipelines.exporting.pod import Cluster
from pipelines.exporting.training import read_training
from trainyard.common import whole_file
from trainyard.common.errors import DefinitionError, RecipeError
from trainyard.common.nearest import nearest
from trainyard.terminal import pairs, refuse_place, run


def main(
    recipe: RecipeOption,
    to: Annotated[str, typer.Option(help=f"The kind of manifest: {', '.join(KINDS)}.")],
    claim: Annotated[
        str,
        typer.Option(help="PersistentVolumeClaim of checkpoints and model."),
    ],
    overrides: SetOption = (),
    channel: Annotated[
        list[str],
        typer.Option(metavar="NAME=S3URI", help="Where a channel's data are; of each split."),
    ] = (),
    namespace: Annotated[str, typer.Option(help="Kubernetes' namespace.")] = "default",
    service_account: Annotated[
        str | None, typer.Option(help="Service account whose role may read the data.")
    ] = None,
    efa: Annotated[int | None, typer.Option(min=0, help="EFA interfaces of a pod.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write it there instead of printing it.")] = None,
) -> None:
    """Write the train step as a manifest; needs no AWS, no cluster and no credentials."""
    if to not in KINDS:
        raise RecipeError(f"--to {to}: is no kind of manifest; {nearest(to, list(KINDS))}")
    if out is not None:
        refuse_place(out)
    compiled = from_recipe(recipe, overrides)
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
        whole_file.write(out, text)


if __name__ == "__main__":
    run(main)
