"""The console with what only our runs show, and with what is approved and started by our rules.

python -m pipelines.console [--port P] [--region R] [--write]
"""

from pipelines.showing.owners import OWNERS
from pipelines.showing.page import PANELS
from trainyard.commands.console import PortOption, RegionOption, WriteOption, serve
from trainyard.console.application import Application
from trainyard.local_state import served
from trainyard.terminal import run


@served()
def main(port: PortOption = 0, region: RegionOption = None, write: WriteOption = False) -> None:
    """Show all pipelines, runs and models in the browser, with our panels; until Ctrl-C."""
    serve(port, region, write, Application(owners=OWNERS, panels=PANELS))


if __name__ == "__main__":
    run(main)
