"""The studio in which plans are made stands with the tests of ``trainyard/plan``."""

from tests.trainyard.plan.conftest import studio

__all__ = ["studio"]
