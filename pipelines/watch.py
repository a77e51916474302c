"""Watch an execution until it ends; exit with 0 only if its status is Succeeded.

python -m pipelines.watch [EXECUTION ARN] [--recipe R | --pipeline NAME] [--poll SECONDS]
"""

from pipelines.recipe.cli_options import make_run_options, require_recipe_for
from pipelines.run_report.run_progress import DISPLAY
from trainyard.commands import watch
from trainyard.terminal import extend_verb, run

main = extend_verb(
    watch.main, make_run_options(display=DISPLAY), require_recipe_for("overrides", "environment")
)

if __name__ == "__main__":
    run(main)
