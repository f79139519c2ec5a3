"""Every verb on an emulated GPU: no operation mixes the memories of CPU and GPU, and the numbers
are those of the CPU.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_map_only

from headscan.model import Lens
from tests.emulated_gpu import CUDA, emulated_gpu
from tests.every_verb import CALLS, agreement, timed_document
from tests.tiny import save_tiny

BOUND = 2e-3
"""The largest relative difference of a number."""

COUNTED = {"privacy --defence all"}
"""Verbs whose numbers are shares of few draws: a draw at a tie is decided by rounding."""

SPREAD = ("scan, every measure", "invert", "privacy --release cache")
SPREAD += ("attribute", "attribute --method combined", "flow", "channel")
"""Verbs that are tried with a model on two devices."""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(save_tiny(tmp_path_factory.mktemp("tiny")))


@cache
def document_on_cpu(name, model):
    """Return the result of a call on the CPU, as a document."""
    document, _ = timed_document(name, model, "cpu")
    return document


@pytest.mark.parametrize("name", CALLS)
def test_a_verb_on_a_device_gives_the_numbers_of_the_cpu(name, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expected = document_on_cpu(name, model)
    with emulated_gpu() as card:
        document, _ = timed_document(name, model, "cuda")
    assert card.all > 100, "it ran on the device"
    compared = agreement(document, expected)
    assert compared.texts == []
    assert compared.numbers > 5 or name == "states"
    assert compared.largest < BOUND or name in COUNTED, compared.place


def moved(forward, device, *args, **kwargs):
    args, kwargs = tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), (args, kwargs))
    return forward(*args, **kwargs)


def spread(model):
    """Return a model whose last block is on the GPU, as `balanced` spreads it."""
    lens = Lens.load(model, device="cpu")
    body = lens.model.transformer
    body.h[1].to("cuda").forward = partial(moved, body.h[1].forward, "cuda")
    body.ln_f.forward = partial(moved, body.ln_f.forward, "cpu")
    return lens


@pytest.mark.parametrize("name", SPREAD)
def test_a_model_on_two_devices_gives_the_numbers_of_one(name, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expected = document_on_cpu(name, model)
    with emulated_gpu() as card:
        document, _ = timed_document(name, spread(model), "cpu")
    assert card.all > 10
    compared = agreement(document, expected)
    assert compared.texts == []
    assert compared.largest < BOUND, compared.place


def test_the_emulated_gpu_refuses_what_a_gpu_refuses():
    on_cpu = torch.arange(6.0).reshape(2, 3)
    with emulated_gpu():
        x = on_cpu.to("cuda")
        assert x.device == CUDA
        assert x.is_cuda
        refused = [
            lambda: x + on_cpu,
            lambda: on_cpu[x[0].long()],
            lambda: on_cpu.add_(x[0, 0]),
            lambda: torch.cat([x, on_cpu]),
            lambda: x.index_select(0, torch.tensor([1])),
            lambda: torch.randn(3, generator=torch.Generator(), device="cuda"),
            lambda: x.long() @ x.long().T,
            lambda: torch.linalg.lstsq(x.T, x.T),
            lambda: x.numpy(),
            lambda: np.asarray(x),
        ]
        for operation in refused:
            with pytest.raises((RuntimeError, TypeError)):
                operation()
        taken = [
            x + on_cpu[0, 0],
            x[torch.tensor([1, 0])],
            x[[1, 0]],
            torch.randn(3, generator=torch.Generator("cuda"), device="cuda"),
            torch.tensor([1.0, 2.0], device="cuda"),
            x.new_tensor([1.0, 2.0]),
        ]
        assert all(tensor.is_cuda for tensor in taken)
        assert taken[2].tolist() == on_cpu[[1, 0]].tolist()
        assert taken[4].tolist() == [1.0, 2.0]


def test_the_emulated_gpu_refuses_decompositions_from_several_threads():
    start = threading.Barrier(4)
    with emulated_gpu():
        x = torch.eye(400).to("cuda")

        def decompose(_: int) -> None:
            start.wait(timeout=10)
            torch.linalg.eigvalsh(x)

        with ThreadPoolExecutor(4) as pool, pytest.raises(RuntimeError, match="lazy wrapper"):
            list(pool.map(decompose, range(4)))
