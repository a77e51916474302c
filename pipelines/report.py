"""Write one self-contained page about a run: the console's, with loss curve and the gate's picture.

python -m pipelines.report [EXECUTION ARN] [--recipe R | --pipeline NAME] [--out report.html]
"""

from pipelines.recipe.cli_options import recipe_for, run_of_recipe
from pipelines.run_report.run_panels import PANELS
from trainyard.commands import report
from trainyard.console.app_hooks import Application
from trainyard.terminal import extended, run

OURS = Application(panels=PANELS)
main = extended(report.main, run_of_recipe(application=OURS), recipe_for("environment"))

if __name__ == "__main__":
    run(main)
