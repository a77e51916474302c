"""Watch an execution until it ends; exit status 0 only when it Succeeded.

python -m pipelines.watch [EXECUTION ARN] [--recipe R | --pipeline NAME] [--poll SECONDS]
"""

from pipelines.recipe.cli_options import recipe_for, run_of_recipe
from pipelines.run_report.gate_lines import DISPLAY
from trainyard.commands import watch
from trainyard.terminal import extended, run

main = extended(watch.main, run_of_recipe(display=DISPLAY), recipe_for("environment"))

if __name__ == "__main__":
    run(main)
