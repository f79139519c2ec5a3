"""What a GPU computes is what the CPU computes: `make gpu` runs these; without a card they are
skipped, loudly.
"""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

import headscan
from headscan.model import ByteTokenizer, Lens
from headscan.training import ce_loss, cwt_loss, has_fused

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", autouse=True)
def card() -> str:
    if not torch.cuda.is_available():
        message = "there is no CUDA device: the tests of a GPU do NOT run"
        warnings.warn(message, stacklevel=1)
        pytest.skip(message)
    torch.backends.cuda.matmul.allow_tf32 = False
    return "cuda"


def test_a_scan_is_that_of_the_cpu():
    results = {
        device: headscan.scan("gpt-vanilla", "stories", max_tokens=4096, device=device, null=True)
        for device in ("cpu", "cuda")
    }
    for row, expected in zip(results["cpu"].sites, results["cuda"].sites, strict=True):
        assert row["site"] == expected["site"]
        for name, value in row.items():
            if isinstance(value, float):
                np.testing.assert_allclose(
                    expected[name], value, rtol=2e-3, atol=2e-3, err_msg=f"{row['site']}: {name}"
                )
            if name.endswith("_interval") and value is not None:
                np.testing.assert_allclose(
                    expected[name], value, rtol=2e-2, atol=2e-2, err_msg=f"{row['site']}: {name}"
                )


def test_the_first_decompositions_of_a_process_come_from_one_thread():
    code = "import torch, headscan; torch.set_num_threads(8); "
    code += "headscan.scan('gpt-vanilla', 'stories', max_tokens=2048, device='cuda')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_exact_inversion_recovers_every_token():
    for site in ("block.1", "block.4"):
        result = headscan.invert(
            "gpt-vanilla", ["Once upon a time, Tim found a red ball."], at=site, device="cuda"
        )
        assert result.token_accuracy == 1.0
        assert str(result.verdict) == str(
            headscan.invert(
                "gpt-vanilla", ["Once upon a time, Tim found a red ball."], at=site, device="cpu"
            ).verdict
        )


FUSED = pytest.param(
    "fused",
    marks=pytest.mark.skipif(not has_fused(), reason="this torch has no linear_cross_entropy"),
)


@pytest.mark.parametrize("form", ["chunked", FUSED])
@pytest.mark.parametrize("loss", [ce_loss, cwt_loss])
def test_every_kernel_gives_the_loss_and_its_gradients(card, loss, form):
    drawn = torch.Generator().manual_seed(0)
    table = torch.randn(1000, 64, generator=drawn).to(card, torch.bfloat16).requires_grad_()
    hidden = torch.randn(256, 64, generator=drawn).to(card, torch.bfloat16).requires_grad_()
    targets = torch.randint(1000, (256,), generator=drawn).to(card) // 3
    exact = loss(hidden.double(), table.double(), targets, "full" if loss is ce_loss else "unique")
    slope = torch.autograd.grad(exact, (hidden, table))
    value = loss(hidden, table, targets, form)
    assert value.item() == pytest.approx(exact.item(), rel=1e-2)
    for actual, expected in zip(torch.autograd.grad(value, (hidden, table)), slope, strict=True):
        size = expected.double().norm()
        assert (actual.double() - expected.double()).norm() < 2e-2 * size


def test_a_model_trains_and_its_watch_sees_it(tmp_path):
    losses = {}
    for device in ("cuda", "cpu"):
        result = headscan.train(
            "gpt",
            text="stories",
            out=tmp_path / device,
            steps=4,
            context=32,
            batch=4,
            vocabulary=300,
            device=device,
        )
        assert result.steps == 4
        losses[device] = [point.loss for point in result.curve]
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=1e-3)


def test_an_encoder_decoder_and_states_in_half_precision_are_scanned(card, tmp_path):
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    config = T5Config(vocab_size=260, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
    lens = Lens(T5ForConditionalGeneration(config).to(card).eval(), ByteTokenizer(), name="t5")
    result = headscan.scan(
        lens, ["a text of some length, twice. " * 40], max_tokens=512, context=32
    )
    assert all(np.isfinite(row["average_cosine"]) for row in result.sites)
    states = headscan.states.run(
        "gpt-vanilla", text="stories", out=tmp_path, max_tokens=512, store="float16", device=card
    )
    assert states.tokens == 512
