"""The GPU's benchmark, where there is none: it claims nothing that only a GPU can show."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu.findings import NOT_SHOWN, Finding
from benchmarks.gpu.job_trainings import CASES, LIMITS, NUMBERS
from benchmarks.gpu.short_training import SMOKE, count_flops, load_shapes
from benchmarks.gpu.watched_steps import classify_kernel

pytestmark = pytest.mark.long
WITHOUT = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
QUICK = "waits"


def run(tmp_path: Path, *arguments: str) -> tuple[int, str, dict]:
    """Return exit status, output and the JSON file's content."""
    file = tmp_path / "gpu.json"
    done = CliRunner().invoke(gpu.app, [*arguments, "--json", str(file)])
    return done.exit_code, done.output, json.loads(file.read_text()) if file.exists() else {}


@WITHOUT
@pytest.mark.parametrize(
    "sections",
    [
        QUICK,
        pytest.param("kernels,memory,mfu", marks=pytest.mark.sweep),
        pytest.param("curves", marks=[pytest.mark.sweep, pytest.mark.slow]),
    ],
)
def test_a_smoke_run_has_all_sections_and_shows_nothing_of_a_gpu(tmp_path, sections):
    status, output, found = run(tmp_path)
    assert status == 0 and "no CUDA device" in output and not found
    status, output, found = run(tmp_path, "--smoke", "--only", sections)
    assert status == 0, output
    assert list(found["sections"]) == sections.split(",")
    assert found["torch"] == torch.__version__
    for one in found["sections"].values():
        assert not one["failed"]
        of_gpu = [finding for finding in one["findings"] if finding["of_gpu"]]
        assert of_gpu
        for finding in of_gpu:
            assert (finding["text"], finding["rounds"], finding["met"]) == (NOT_SHOWN, [], None)


def test_a_section_that_dies_does_not_end_the_others(tmp_path, monkeypatch):
    dying = "tests.benchmarks.dying_section.findings", gpu.SECTIONS["mfu"][1]
    monkeypatch.setattr(gpu, "SECTIONS", {"dying": dying, "mfu": gpu.SECTIONS["mfu"]})
    status, output, found = run(tmp_path, "--smoke")
    sections = found["sections"]
    assert status == 1 and "signal 9" in output
    assert sections["dying"]["failed"].startswith("signal 9")
    assert [one["what"] for one in sections["dying"]["findings"]] == ["before"]
    assert not sections["mfu"]["failed"] and sections["mfu"]["findings"]
    late = gpu.run_section(gpu.SECTIONS["mfu"][0], 0.2, smoke=True)
    assert late.failed == "killed after its 0 s" and late.seconds < 20


@pytest.mark.parametrize(("value", "verdict"), [(0.9, "met"), (-1.1, "missed")])
def test_a_verdict_is_of_the_absolute_value_and_only_of_a_gpu(value, verdict):
    found = Finding.from_bound("off", value, 1.0, "so it is")
    assert found.hide_without_gpu(torch.device("cuda")).cells()[2] == verdict
    assert found.hide_without_gpu(torch.device("cpu")).cells()[1:3] == (NOT_SHOWN, "")


def test_flops_of_a_token_are_those_of_palm_and_shapes_are_the_recipes_and_gpts():
    """6 a weight, the tied embedding once, and 12 × layers × dim × t for attention."""
    block = 4 * 16 * 16 + 3 * 16 * 48 + 2 * 16  # attention; SwiGLU; two norms
    weights = 257 * 16 + block + 16
    assert count_flops(SMOKE) == 6 * weights + 12 * 1 * 16 * 16
    found = load_shapes()
    assert found["prod"].batch == 8 and found["prod"].compiled
    assert count_flops(found["prod"]) / count_flops(found["1b"]) == pytest.approx(1.2, rel=0.1)
    assert LIMITS.keys() == NUMBERS.keys() == {numbers for numbers, _ in CASES.values()}


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7", "attention"),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(...)", "attention"),
        ("triton_poi_fused__scaled_dot_product_flash_attention_add_3", "compiled"),
        ("ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_32x3_nn", "matrix products"),
        ("multi_tensor_apply_kernel<..., FusedAdamMathFunctor<float, 4, ...>>", "optimizer"),
        ("Memcpy HtoD (Pinned -> Device)", "copies"),
        ("void at::native::vectorized_elementwise_kernel<4, ...>", "other"),
    ],
)
def test_kernels_are_of_the_kind_that_their_names_say(kernel, kind):
    assert classify_kernel(kernel) == kind
