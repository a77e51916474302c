"""safetensors files written tensor by tensor."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save

from training.export.weight_location import TYPES, SafeFile

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)


def tensor(kind: str, shape: tuple[int, ...]) -> torch.Tensor:
    found = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)
    return found.to(getattr(torch, kind))


@given(
    st.dictionaries(NAMES, st.tuples(st.sampled_from([*TYPES]), SHAPES), max_size=8),
    st.randoms(use_true_random=False),
)
def test_the_bytes_are_those_of_safetensors_whatever_the_order(tmp_path_factory, kinds, random):
    tensors = {name: tensor(*kind) for name, kind in kinds.items() if name != "__metadata__"}
    path = tmp_path_factory.mktemp("safe") / "model.safetensors"
    looks = {name: found.to("meta") for name, found in tensors.items()}
    file, order = SafeFile(path, looks), [*tensors]
    random.shuffle(order)
    for name in order:
        file.put(name, tensors[name])
    file.finish()
    assert path.read_bytes() == save(tensors, {"format": "pt"})


def test_views_are_written_as_what_they_show(tmp_path):
    whole = torch.arange(12.0).reshape(3, 4)
    file = SafeFile(tmp_path / "a", {"turned": whole.T, "part": whole[:, 1]})
    file.put("part", whole[:, 1])
    file.put("turned", whole.T)
    file.finish()
    found = load_file(tmp_path / "a")
    assert torch.equal(found["turned"], whole.T) and torch.equal(found["part"], whole[:, 1])


def test_what_was_not_written_or_is_another_tensor_leaves_no_file(tmp_path):
    file = SafeFile(tmp_path / "a", {"one": torch.zeros(2), "two": torch.zeros(3)})
    with pytest.raises(ValueError, match=r"one: is torch.float32 \(3,\); expected .* \(2,\)"):
        file.put("one", torch.zeros(3))
    with pytest.raises(ValueError, match="two was never written"):
        file.finish()
    assert not list(tmp_path.iterdir())
