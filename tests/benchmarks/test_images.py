"""The table of AWS's images."""

import pytest

from benchmarks import images

pytestmark = pytest.mark.long


def test_every_image_has_a_row_for_each_group_of_steps():
    found = {
        (row["image"], row["steps"]): row
        for row in images.rows(images.CHECKOUT / "recipes/prod.yaml")
    }
    assert found["pytorch-training 2.9.0", "train"]["broken"] == []
    assert "no torch for train and evaluate" in found["sagemaker-xgboost 3.2-0", "train"]["broken"]
    assert any("Python" in one for one in found["sagemaker-xgboost 3.0-5", "train"]["broken"])
    assert found["smdistributed-modelparallel 2.5.1", "train"]["python"] is None
    assert all(images._line(row) for row in found.values())
