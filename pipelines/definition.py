"""Print the definition JSON that would be uploaded: the DAG, compiled without calling AWS.

python -m pipelines.definition --recipe recipes/laptop.yaml [--set train.loop.max_steps=100]
"""

# isort: off
import pipelines.compile.quiet_sdk  # prepares the SDK, so it must come first

# isort: on

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sagemaker.core.helper.pipeline_variable import PipelineVariable
from sagemaker.core.workflow.parameters import Parameter
from sagemaker.mlops.workflow.model_step import ModelStep
from sagemaker.mlops.workflow.pipeline import Pipeline
from sagemaker.mlops.workflow.steps import ProcessingStep, TrainingStep

from conditions.step import make_verdict_condition
from pipelines.compile.compilation import (
    CompiledPipeline,
    Wheelhouse,
    collect_step_code,
    list_requirements,
)
from pipelines.compile.compile_session import (
    CompileSession,
    build_cache_config,
    build_pipeline_parameters,
    build_retry_policies,
    choose_evaluation_image,
    choose_inference_image,
    choose_processing_image,
    choose_training_image,
    list_job_pythons,
)
from pipelines.compile.provenance_asset import (
    NOWHERE,
    Origin,
    add_provenance,
    build_origin,
    build_placeholder_uri,
    find_current_commit,
)
from pipelines.compile.training_inputs import (
    build_hyperparameters,
    build_loop_parts,
    build_registry_metadata,
    render_packing_settings,
    resolve_starting_model,
)
from pipelines.compile.user_code import build_script_parts, read_script_projects
from pipelines.recipe.cli_options import NOT_GIVEN, EnvOption, RecipeOption, SetOption
from pipelines.recipe.config import Recipe
from pipelines.recipe.environments import Account, find_account, resolve_account
from pipelines.recipe.extended_recipe import located_problems
from pipelines.recipe.read_recipe import load_recipe
from pipelines.registry.champion import NO_CHAMPION
from steps.config import ProcessingCompute
from steps.evaluate.config import PACKAGES as SCRIPTS_JOB
from steps.evaluate.config import Leaks
from steps.evaluate.step import make_evaluate_script_step, make_evaluate_step
from steps.gate.step import make_gate_step
from steps.processing import Splits, StepContext, build_output_uri, split_argument
from steps.register.step import Data, make_register_step
from steps.shard.shard_plan import SPLITS
from steps.shard.step import make_shard_step
from steps.train.job_program import build_loop_program, build_script_program
from steps.train.step import TuningResult, make_train_step
from steps.train.train_script import Project
from steps.transform.step import make_transform_step
from steps.tune.step import TuneStep, find_best_training, make_tune_step
from trainyard.instance_types import MACHINES
from trainyard.terminal import run

pipelines.compile.quiet_sdk.freeze_imports()

CHECKOUT = Path(__file__).resolve().parent.parent


def build(
    recipe: Recipe,
    account: Account,
    *,
    commit: str,
    source: Path | None,
    home: Path = Path(),
    origin: Origin = NOWHERE,
) -> CompiledPipeline:
    """Compile ``recipe`` for ``account``: a pure function of its arguments and the checkout.

    Args:
        commit: the commit of the code, for the models' provenance.
        source: folder with the user's own workload package, or None.
        home: the recipe's folder; a script's path is relative to it.
        origin: the source of the recipe's text, for the models' provenance.

    Raises:
        DefinitionError: the SDK refuses a combination, or a file of the checkout is missing.
    """
    compilation = Compilation(recipe, account, source, home)
    definition = compilation.render_definition()
    code = [asset for _, asset in sorted(compilation.session.assets.items())]
    body, record = add_provenance(
        definition, recipe, account, commit, origin, CHECKOUT, code, compilation.prefix,
        compilation.training,
    )  # fmt: skip
    return CompiledPipeline(
        name=recipe.pipeline.name,
        description=recipe.pipeline.description,
        region=account.region,
        role=account.role,
        body=body,
        assets=(*code, record),
        max_parallel_steps=recipe.pipeline.max_parallel_steps,
        tags=recipe.aws.tags,
        kms_key=recipe.aws.kms_key,
        budget=recipe.budget,
        recipe_fields=dict(_iter_outside_fields(recipe.model_dump(mode="json", by_alias=True))),
        account=find_account(recipe.aws, origin.environment),
        environment=origin.environment,
        wheelhouses=tuple(compilation.wheelhouses.values()),
    )


OUTSIDE = ("budget.", "deploy.", "monitor.", "promotion.", "train.fallback_instance_types",
           "aws.input_keys")  # fmt: skip
"""Recipe fields that are not in the definition: their paths, or prefixes of these."""


def _iter_outside_fields(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield (path, value as JSON) of the recipe's fields that are not in the definition."""
    for name, value in tree.items():
        path = f"{above}{name}"
        if isinstance(value, Mapping):
            yield from _iter_outside_fields(value, f"{path}.")
        elif path.startswith(OUTSIDE):
            yield path, json.dumps(value)


class Compilation:
    """Compiles one recipe: the state that its steps share, and a method for each step.

    Args:
        source: folder with the user's own workload package, or None.
        home: the recipe's folder.
    """

    def __init__(self, recipe: Recipe, account: Account, source: Path | None, home: Path) -> None:
        self.recipe, self.account, self.source = recipe, account, source
        self.prefix = f"{recipe.aws.prefix}/{recipe.pipeline.name}"
        self.session = CompileSession(account.region, account.bucket, self.prefix)
        self.parameters = build_pipeline_parameters(recipe, self.session.add_asset(NO_CHAMPION))
        self.project, self.evaluation = read_script_projects(recipe, home, CHECKOUT)
        self.image = choose_training_image(recipe, account.region)
        self.wheelhouses: dict[str, Wheelhouse] = {}
        self.tuning_result: TuningResult | None = None
        self.splits: Splits = {}
        self.context = self._build_context()
        self.training = (
            build_script_parts(recipe, self.project, self.image)
            if self.project
            else build_loop_parts(recipe, source, CHECKOUT)
        )

    def render_definition(self) -> str:
        """Return the definition as JSON.

        Its steps are: Shard (if there is raw data) → Tune (if the recipe searches) → Train →
        Evaluate → Gate → Verdict → Register | Rejected.
        """
        shard = self.create_shard_step() if self.recipe.reads_raw_data else None
        self.splits = self._find_split_uris(shard)
        tune = [self.create_tune_step(shard)] if self.recipe.tune else []
        # Set only now, because the training inside step Tune must not read the result of the
        # search.
        self.tuning_result = (
            find_best_training(tune[0], self.recipe.tune.ranges) if self.recipe.tune else None
        )
        train = self.create_train_step(shard)
        evaluate = self.create_evaluate_step(train)
        gate = self.create_gate_step(evaluate)
        model = train.properties.ModelArtifacts.S3ModelArtifacts
        register = self.create_register_step(train, evaluate, gate, model)
        gates = self.recipe.gate
        pass_steps = [register, *self.create_transform_steps(model, register)]
        verdict = make_verdict_condition(
            gate, pass_steps, gates.kinds if gates.visible_checks else ()
        )
        steps = [*tune, train, evaluate, gate, verdict]
        pipeline = Pipeline(
            name=self.recipe.pipeline.name,
            parameters=[
                parameter
                for parameter in self.parameters.values()
                if isinstance(parameter, Parameter)
            ],
            steps=[shard, *steps] if shard else steps,
            sagemaker_session=self.session,
        )
        return json.dumps(json.loads(pipeline.definition()), indent=1)

    def create_shard_step(self) -> ProcessingStep:
        """Create the step that packs the raw data into shards."""
        recipe = self.recipe
        assert recipe.data is not None  # noqa: S101 (``render_definition`` has checked it)
        return make_shard_step(
            self.context,
            recipe.shard,
            image=self._choose_processing_image(recipe.shard),
            workload_arguments=["--workload", recipe.workload.name]
            + ["--workload_config", *split_argument(render_packing_settings(recipe))],
            tokenizer_uri=recipe.workload.tokenizer,
            input_uris=recipe.data.prefixes,
            has_summary=self._writes_summary,
        )

    def create_tune_step(self, shard: ProcessingStep | None) -> TuneStep:
        """Create the step that searches hyperparameters."""
        recipe, config = self.recipe, self.recipe.tune
        assert config is not None  # noqa: S101 (``render_definition`` has checked it)
        return make_tune_step(
            self.context, config, self.create_train_step(shard),
            loop=recipe.train.loop, extend_folder=self.session.extend_folder,
        )  # fmt: skip

    def create_train_step(self, shard: ProcessingStep | None) -> TrainingStep:
        """Create the step that trains: Trainyard's loop, or the user's script."""
        context, config = self.context, self.recipe.train
        if self.project:
            search_names = [*self.recipe.tune.ranges] if self.recipe.tune else []
            arguments = (self.project, self.splits, self.training, search_names)
            program = build_script_program(context, config, *arguments)
        else:
            program = build_loop_program(
                context, config, self.splits, build_hyperparameters(self.recipe)
            )
        return make_train_step(
            context, config, program,
            image=self.image, shard=shard, checkpoint_key=self.training.name,
            tuning_result=self.tuning_result,
        )  # fmt: skip

    def create_evaluate_step(self, train: TrainingStep) -> ProcessingStep:
        """Create the step that scores the model, by its workload or by the user's script."""
        recipe = self.recipe
        if self.evaluation:
            return self._create_script_evaluation_step(train, self.evaluation)
        return make_evaluate_step(
            self.context,
            recipe.evaluate.model_copy(update={"slices": recipe.slices}),
            image=self._choose_processing_image(recipe.evaluate),
            splits=self.splits,
            train=train,
            base=recipe.train.base,
        )

    def create_gate_step(self, evaluate: ProcessingStep) -> ProcessingStep:
        """Create the step that runs the gate's checks and writes the verdict."""
        recipe = self.recipe
        return make_gate_step(
            self.context,
            recipe.gate,
            image=self._choose_processing_image(recipe.gate),
            evaluate=evaluate,
            provenance=build_placeholder_uri(self.context.root_uri),
            primary_metric=recipe.workload_spec.primary_metric,
            directions=recipe.workload_spec.metrics,
        )

    def create_register_step(
        self,
        train: TrainingStep,
        evaluate: ProcessingStep,
        gate: ProcessingStep,
        model: PipelineVariable,
    ) -> ModelStep:
        """Create the step that registers the model package."""
        recipe = self.recipe
        splits = {name: [self.splits[name]] if self.splits else [] for name in ("train", "test")}
        return make_register_step(
            self.context,
            recipe.register_,
            image=choose_inference_image(recipe, self.account.region),
            model=model, train=train, evaluate=evaluate, gate=gate,
            data=Data(
                training=[*splits["train"], *map(str, recipe.train.sources.values())],
                test=[*splits["test"], *recipe.evaluate.channels.values()],
            ),
            entry=bool(recipe.train.loop or recipe.inference.script),
            batches=bool(recipe.train.loop),
            is_compressed=recipe.train.model_compression == "gzip",
            metrics=recipe.workload_spec.metrics,
            about=build_registry_metadata(recipe)
            | (self.tuning_result.about if self.tuning_result else {}),
        )  # fmt: skip

    def create_transform_steps(
        self, model: PipelineVariable, register: ModelStep
    ) -> list[ProcessingStep]:
        """Create the step that scores further records; return [] if the recipe has none."""
        config, base = self.recipe.transform, self.recipe.train.base
        if config is None:
            return []
        options = {"image": self._choose_processing_image(config), "base": base}
        return [
            make_transform_step(self.context, config, model=model, register=register, **options)
        ]

    def _create_script_evaluation_step(
        self, train: TrainingStep, script: Project
    ) -> ProcessingStep:
        """Create the step that scores the model by the user's evaluation script."""
        recipe = self.recipe
        register, gate = recipe.register_, recipe.gate
        bounds: dict[Leaks, float | None] = {
            "examples": gate.max_leaked_examples,
            "groups": gate.max_leaked_groups,
        }
        types = [register.content_types[0], register.response_types[0]]
        return make_evaluate_script_step(
            self.context,
            recipe.evaluate,
            image=choose_evaluation_image(recipe, self.account.region),
            splits=self.splits,
            train=train,
            folder=self.session.add_asset(dict(script.files)),
            entry=script.script,
            requirements=script.requirements,
            leaks=[leak_kind for leak_kind, bound in bounds.items() if bound is not None],
            request=[script.request, *types] if script.request else [],
        )

    @property
    def _writes_summary(self) -> bool:
        """Whether the shard step also writes a summary of the data, for the evaluation."""
        return self.evaluation is None and self.recipe.samples_spec.has_summary

    def _find_split_uris(self, shard: ProcessingStep | None) -> Splits:
        """Return the URI of each split's shards, by name: the shard step's, or the recipe's."""
        data = self.recipe.data
        if data and data.shards:
            return {name: f"{data.shards.rstrip('/')}/{name}" for name in SPLITS}
        names = (*SPLITS, *(["summary"] if self._writes_summary else [])) if shard else ()
        return {name: build_output_uri(shard, name) for name in names} if shard else {}

    def _build_context(self) -> StepContext:
        """Return the settings and callbacks of this recipe that all steps share."""
        recipe, account = self.recipe, self.account
        vpc = recipe.aws.vpc
        return StepContext(
            session=self.session,
            parameters=self.parameters,
            role=account.job_role,
            root_uri=f"s3://{account.bucket}/{self.prefix}",
            kms_key=recipe.aws.kms_key,
            volume_key=self._choose_volume_key,
            subnets=vpc.subnets if vpc else (),
            security_groups=vpc.security_groups if vpc else (),
            network_isolation=recipe.aws.network_isolation,
            encrypt_traffic=recipe.aws.encrypt_traffic,
            tags=recipe.aws.tags,
            code=self._add_step_code,
            wheels=self._find_wheels_uri,
            pip=recipe.packages.build_pip_environment,
            cache=build_cache_config(recipe),
            retries=build_retry_policies(recipe),
        )

    def _add_step_code(self, step: str) -> str:
        """Add a step's code to the session's assets; return its URI. For a training script, this is
        the script's folder without any code of ours.
        """
        return self.session.add_asset(self._collect_step_files(step))

    def _collect_step_files(self, step: str) -> dict[str, bytes]:
        """Return the content of the files that a step's job is given, by name."""
        if step == "train" and self.project:
            return dict(self.project.files)
        recipe = self.recipe
        of_workload = recipe.workload_spec.packages
        packages = {
            "shard": (*recipe.shard.packages, *of_workload),
            "train": (*recipe.train.packages, *of_workload),
            "evaluate": SCRIPTS_JOB if self.evaluation else of_workload,
            "transform": of_workload,
            "gate": recipe.gate.packages,
        }
        return collect_step_code(CHECKOUT, step, self.source, packages.get(step, ()))

    def _find_wheels_uri(self, step: str) -> str | None:
        """Return the URI of the wheels that a step's job installs; None if it installs none.

        Also add the wheelhouse to ``wheelhouses``.
        """
        if not self.recipe.packages.wheelhouse:
            return None
        script = {"train": self.project, "evaluate": self.evaluation}.get(step)
        lists = list_requirements(self._collect_step_files(step), script)
        location = (self.account.bucket, f"{self.prefix}/code/wheels")
        house = Wheelhouse(*location, lists, list_job_pythons(self.recipe))
        self.wheelhouses |= {house.key: house} if lists else {}
        return house.uri if lists else None

    def _choose_volume_key(self, instance_type: str) -> str | None:
        """Return the KMS key for the instance's volume; None if the instance has local disks."""
        # The instance's hardware encrypts local disks, and a key for them is refused (#3677).
        machine = MACHINES.get(instance_type)
        return None if machine and machine.local_storage_gb else self.recipe.aws.kms_key

    def _choose_processing_image(self, compute: ProcessingCompute) -> str:
        return choose_processing_image(self.recipe, self.account.region, compute.instance_type)


def from_recipe(
    path: Path, overrides: Sequence[str] = (), environment: str | None = None
) -> CompiledPipeline:
    """Read, resolve and compile a recipe, as every command does that needs a definition."""
    recipe = load_recipe(path, overrides, environment)
    with located_problems(path, overrides, environment):
        recipe = resolve_starting_model(recipe)
        source = path.parent / recipe.workload.source if recipe.workload.source else None
        commit, origin = (
            find_current_commit(CHECKOUT),
            build_origin(path, overrides, environment, CHECKOUT),
        )
        account = resolve_account(recipe.aws)
        return build(recipe, account, commit=commit, source=source, home=path.parent, origin=origin)


def main(
    recipe: RecipeOption, overrides: SetOption = NOT_GIVEN, environment: EnvOption = None
) -> None:
    """Print the definition JSON that would be uploaded; needs no AWS and no credentials."""
    print(from_recipe(recipe, overrides, environment).body)


if __name__ == "__main__":
    run(main)
