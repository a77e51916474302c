"""The toolkit's ``train`` command in AWS's XGBoost images: run the user's module, not a file.

``entry_point="abalone"`` means ``python -m abalone`` there, and so does ``abalone.py``.
"""

from pathlib import PurePath


def main() -> None:
    """Run the user's module ``sagemaker_program``. Raises the toolkit's own errors."""
    from sagemaker_training import entry_point, environment  # type: ignore[import-not-found]

    job = environment.Environment()
    program = PurePath(job.user_entry_point)
    name = str(program if program.suffix else program.with_suffix(".py"))
    entry_point.run(job.module_dir, name, job.to_cmd_args(), job.to_env_vars())
