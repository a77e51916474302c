"""What is known of AWS's images, and how an interpreter that stands in for one differs."""

import pytest

from trainyard.image_packages import (
    Image,
    find_image,
    find_published_image,
    list_differences,
    load_published_images,
)
from trainyard.image_packages import InstalledPackage as Package

ECR = "683313688378.dkr.ecr.us-east-1.amazonaws.com"
HUGGING = "huggingface-pytorch-training:2.1.0-transformers4.36.0-gpu-py310-cu121-ubuntu20.04"
DLC = "763104351884.dkr.ecr.us-east-1.amazonaws.com"


def test_the_longest_version_in_a_tag_names_the_image():
    found = find_published_image(f"{ECR}/sagemaker-scikit-learn:1.4-2-py312-cpu-py3")
    assert found and found.name == "sagemaker-scikit-learn 1.4-2-py312" and found.python == "3.12"
    old = find_published_image(f"{ECR}/sagemaker-scikit-learn:1.4-2-cpu-py3")
    assert old and old.python == "3.10"
    assert find_published_image(f"{ECR}/sagemaker-scikit-learn:1.4-20-cpu-py3") is None
    assert find_published_image("own/image:1") is find_published_image(None) is None
    assert (
        load_published_images()["smdistributed-modelparallel 2.5.1"] is None
    )  # known all the same


@pytest.mark.parametrize(
    ("uri", "python", "packages"),
    [
        (f"{DLC}/{HUGGING}", "3.10", {"torch": "2.1.0", "transformers": "4.36.0"}),
        (f"{ECR}/sagemaker-xgboost:1.5-1", "", {"xgboost": "1.5"}),
        (f"{DLC}/pytorch-inference:2.6.0-cpu-py312", "3.12", {"torch": "2.6.0"}),
    ],
)
def test_a_tag_says_what_no_list_does(uri: str, python: str, packages: dict[str, str]):
    image = find_image(uri)
    assert image and (image.python, dict(image.packages)) == (python, packages)


def test_a_published_list_counts_more_than_a_tag():
    image = find_image(f"{ECR}/sagemaker-scikit-learn:1.2-1-cpu-py3")
    assert image and image.packages["scikit-learn"] == "1.2.1"
    assert find_image(f"{ECR}/own-things:1.2-1") is None
    assert find_image("own/image:1") is None


HERE = {
    "pandas": Package("3.0.2", ("pandas",)),
    "numpy": Package("2.4.1", ("numpy",)),
    "pyyaml": Package("6.0.3", ("_yaml", "yaml")),
    "torch": Package("2.13.0+cpu", ("torch", "torchgen")),
    "idna": Package("3.18", ("idna",)),
    "markupsafe": Package("3.0.3", ("markupsafe",)),
}


@pytest.mark.parametrize(
    ("packages", "rows"),
    [
        ({"pandas": "1.1.3", "numpy": "2.4.1"}, ["pandas 3.0.2 (there 1.1.3)"]),
        ({"numpy": "2.4"}, []),
        ({"numpy": "2"}, []),
        ({"numpy": "2.4.10"}, ["numpy 2.4.1 (there 2.4.10)"]),
        ({"pyyaml": "5.4.1"}, ["pyyaml 6.0.3 (there 5.4.1)"]),
        ({"torch": "2.13.0"}, []),
        ({"idna": ">=3.7", "markupsafe": "<2.0"}, ["markupsafe 3.0.3 (there <2.0)"]),
        ({"idna": ">=3.18.0"}, []),
        ({"idna": ">=3.19"}, ["idna 3.18 (there >=3.19)"]),
    ],
)
def test_what_differs_is_named_with_both_versions(packages: dict[str, str], rows: list[str]):
    image = Image("a 1", "3.12.8", "", packages)
    installed = {name: HERE[name] for name in packages}
    imported = {"pandas", "numpy", "yaml", "torch", "idna", "markupsafe"}
    assert list_differences(image, "3.12.1", installed, imported) == rows
    assert list_differences(image, "3.12.1", installed, {"nothing"}) == []
    assert list_differences(image, "3.11.9", {}, imported) == ["Python 3.11.9 (there 3.12.8)"]
    assert list_differences(Image("a 1", "", "", {}), "3.11.9", {}, imported) == []
