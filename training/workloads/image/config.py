"""The image workload's settings; no torch."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from training.workloads import WorkloadSpec

Share = Annotated[FiniteFloat, Field(gt=0, le=1)]


class ImageConfig(BaseModel):
    """Encoded images and their labels → pixels → a ResNet → a logit for each class."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    image: str = "bytes"
    """Column of the encoded images: JPEG, PNG, WebP and other formats that Pillow reads. bytes: the
    files of a folder; jpg;png: members of WebDataset's archives; otherwise a column of Parquet or
    JSON Lines."""

    label: str = "label"
    """Column of the class. label: the first folder in a file's path; cls: a member of an
    archive."""

    size: int = Field(default=224, ge=8, le=1024)
    """Width and height, in pixels, at which the model sees an image."""

    channels: Literal[1, 3] = 3
    """3: colours (RGB); 1: grey."""

    crop_area: tuple[Share, Share] = (0.08, 1.0)
    """Range of the share of an image's area that is cut out and scaled to size in training (Szegedy
    et al. 2015). (1, 1): the largest part with the drawn ratio."""

    crop_ratio: Annotated[FiniteFloat, Field(ge=1, le=4)] = 4 / 3
    """Largest ratio of the longer to the shorter side of that part."""

    flip: Annotated[FiniteFloat, Field(ge=0, le=1)] = 0.5
    """Share of the images that are mirrored left to right in training. 0 for digits and text."""

    evaluated_part: Share = 0.875
    """Share of the shorter side that is cut out of an image's middle in evaluation."""

    depths: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(2, 2, 2, 2), min_length=1)
    """Residual blocks of each stage; each further stage halves width and height. (2, 2, 2, 2) is
    ResNet-18."""

    width: int = Field(default=64, ge=16, multiple_of=16)
    """Channels of the first stage; each further stage has twice as many."""

    stem: Literal["large", "small"] = "large"
    """large: images shrink to a quarter before the first stage (ResNet's own). small: they do not;
    for images of up to about 64 pixels."""

    @model_validator(mode="after")
    def _check_field_combinations(self) -> Self:
        if self.image == self.label:
            raise ValueError(f"image and label are the same column {self.image!r}")
        if self.crop_area[0] > self.crop_area[1]:
            raise ValueError(
                f"crop_area {self.crop_area}: the first is larger than the second; swap them"
            )
        smallest = self.size // (4 if self.stem == "large" else 1) >> len(self.depths) - 1
        if not smallest:
            raise ValueError(
                f"depths: {len(self.depths)} stages leave nothing of {self.size} pixels; use "
                "fewer stages, stem: small or a larger size"
            )
        return self


SPEC = WorkloadSpec(
    config=ImageConfig,
    metrics={"log_loss": "lower", "accuracy": "higher"},
    ranges={"accuracy": 1.0},
    primary_metric="log_loss",
    baselines=("logistic_regression", "majority"),
    baselines_scored=True,
    packed_with=("image", "label"),
    slices=lambda config: ("label", "source"),
    has_summary=True,
    folder_slice="source",
    packages=("pillow",),
)
