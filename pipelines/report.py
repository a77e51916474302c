"""Write a self-contained page about an execution: the console's, with loss curve and gate picture.

python -m pipelines.report [EXECUTION ARN] [--recipe R | --pipeline NAME] [--out report.html]
"""

from pipelines.recipe.cli_options import make_run_options, require_recipe_for
from pipelines.run_report.run_panels import PANELS
from trainyard.commands import report
from trainyard.console.app_hooks import Application
from trainyard.terminal import extend_verb, run

APPLICATION = Application(panels=PANELS)
main = extend_verb(
    report.main,
    make_run_options(application=APPLICATION),
    require_recipe_for("overrides", "environment"),
)

if __name__ == "__main__":
    run(main)
