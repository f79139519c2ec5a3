"""A pass adds a batch in pieces: what it leaves is the same; and what is not finite is named."""

import numpy as np
import pytest
import torch

from headscan.scanner.accumulate import Accumulation, accumulate
from headscan.states.stored import stored_source
from headscan.statistics import site

CONTEXT = 16
WINDOWS = 12
WIDTH = 24


def states() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0).standard_normal
    return {
        f"block.{k}": draw((WINDOWS, CONTEXT, WIDTH)).astype(np.float32) + np.float32(0.3)
        for k in range(3)
    }


def accumulated(states_by_site: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    source = stored_source(
        states_by_site,
        context=CONTEXT,
        batch=WINDOWS // 2,
        max_tokens=None,
        field=None,
        tokenizer=None,
    )
    assert source is not None
    accumulation = Accumulation(dict.fromkeys(states_by_site, WIDTH), 0, intervals=True)
    accumulate(source, source.batches(), accumulation)
    return accumulation.state()


def assert_equal_states(first: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> None:
    assert first.keys() == two.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(tensor, two[name], rtol=1e-11, atol=1e-11, msg=name)


def test_a_batch_in_pieces_leaves_what_it_leaves_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_once = accumulated(states())
    monkeypatch.setattr(site, "AT_ONCE", 2 * CONTEXT * WIDTH)
    assert_equal_states(at_once, accumulated(states()))


def test_lengths_that_only_float32_cannot_hold_are_finite() -> None:
    scaled = {"block.0": states()["block.0"] * np.float32(1e30)}
    scalars = next(
        tensor
        for name, tensor in accumulated(scaled).items()
        if name.endswith("cells.ordinary/sums")
    )
    assert scalars[-1] > 1e60
