"""Whether a search of hyperparameters pays, and whether it promotes models that are only lucky.

python -m benchmarks.searches luck [--searches 4000] [--json FILE]     simulated, a minute
python -m benchmarks.searches digits [--seeds 5] [--json FILE]         ten minutes a seed
"""

import typer

from benchmarks.searches.digits import digits
from benchmarks.searches.luck import luck

app = typer.Typer(help=__doc__)
app.command()(luck)
app.command()(digits)

if __name__ == "__main__":
    app()
