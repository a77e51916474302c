"""Make the pictures of console and report in our documents.

python -m benchmarks.console.pictures

The main job on the laptop's recipe really runs, twice with other parameters and then as it is; the
model of the second run is approved before the last. The pictures are of the last run while it
trains, of its report, and of the list of runs.
"""

import contextlib
import io
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.console.processes import CHECKOUT, console, emulator

RECIPE = "recipes/laptop.yaml"
EARLIER = ({"MaxSteps": 40}, {"MaxSteps": 240, "TrainInstanceCount": 1})
"""The pipeline's parameters of the runs before the last one; the gate rejects the first. The steps
differ from the last one's, which the cache would answer."""

TRAINS = 30.0
"""Seconds for which the last run has trained when it is looked at."""


PATIENCE = 600.0
"""Seconds until it trains, at most."""

PACKAGE = "model-package/trainyard-laptop/1"
REASON = ("--reason", "the first model: nothing to compare it with")

SIZE = {"width": 1280, "height": 860}
LIST, REPORT = 420, 1_500
"""Heights of the pictures of the list and of the report."""

COLOURS = 128
"""Of a picture, the rare ones among them: the file is a third as large, and nobody sees it."""


def main(
    folder: Annotated[Path, typer.Option(help="Of the pictures.")] = CHECKOUT / "docs",
    scratch: Annotated[Path | None, typer.Option(help="Work there, and leave it.")] = None,
) -> None:
    """Write console_runs.png, console_run.png and report.png."""
    with tempfile.TemporaryDirectory(prefix="benchmarks-pictures-") as temporary:  # noqa: SIM117
        with emulator(scratch or Path(temporary)) as (_, env):
            _pipeline(env, "corpus")
            _pipeline(env, "upsert")
            for given in EARLIER:
                named = [f"--parameter={name}={value}" for name, value in given.items()]
                _pipeline(env, "start", *named, "--wait", may_fail=True)
            _run(env, "approve", f"arn:aws:sagemaker:us-east-1:123456789012:{PACKAGE}", *REASON)
            with console(env, "pipelines.console") as (_, visitor), _browser() as page:
                with _running(env):
                    page.goto(visitor.address)
                    page.locator("td.Executing").first.wait_for()
                    page.locator("tbody a.name").first.click()
                    page.locator("#node-Train .Executing").first.wait_for(timeout=PATIENCE * 1000)
                    page.locator(".plot canvas").wait_for(timeout=PATIENCE * 1000)
                    page.wait_for_timeout(TRAINS * 1000)
                    _save(page, folder / "console_run.png")
                    page.locator(".stands .Succeeded").first.wait_for(timeout=PATIENCE * 1000)
                page.goto(f"{visitor.root}/runs")
                page.locator("td.pass").nth(1).wait_for()
                _save(page, folder / "console_runs.png", height=LIST)
                report = Path(temporary, "report.html")
                _run(env, "report", "--recipe", RECIPE, "--out", str(report))
                page.goto(report.as_uri())
                _save(page, folder / "report.png", height=REPORT)


def _pipeline(env: Mapping[str, str], verb: str, *more: str, may_fail: bool = False) -> None:
    _run(env, verb, "--recipe", RECIPE, *more, may_fail=may_fail)


def _run(env: Mapping[str, str], verb: str, *more: str, may_fail: bool = False) -> None:
    command = [sys.executable, "-m", f"pipelines.{verb}", *more]
    subprocess.run(command, cwd=CHECKOUT, env=env, check=not may_fail)


@contextlib.contextmanager
def _running(env: Mapping[str, str]) -> Iterator[None]:
    """A run of the whole job, which is stopped if it has not ended."""
    command = [sys.executable, "-m", "pipelines.start", "--recipe", RECIPE]
    process = subprocess.Popen([*command, "--wait", "--stop-on-interrupt"], cwd=CHECKOUT, env=env)
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


@contextlib.contextmanager
def _browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        yield browser.new_page(viewport=SIZE, color_scheme="light")
        browser.close()


def _save(page: Any, path: Path, height: int = 0) -> None:
    from PIL import Image

    part = {"x": 0, "y": 0, **SIZE, "height": height or SIZE["height"]}
    with Image.open(io.BytesIO(page.screenshot(full_page=True, clip=part))) as picture:
        few = picture.convert("RGB").quantize(
            COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
        few.save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    typer.run(main)
