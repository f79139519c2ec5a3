"""A pass adds several sites at once, each on one thread, and a batch in pieces: what it leaves is the same."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from headscan.run import BadInput
from headscan.scanner.accumulate import Accumulation, accumulate
from headscan.scanner.settings import choose
from headscan.states.opening import stored_source
from headscan.statistics import site
from headscan.statistics.linearisation import Linearisation
from headscan.statistics.threads import Abreast

CONTEXT, WINDOWS, WIDTH = 16, 12, 24


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def states() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0).standard_normal
    return {f"block.{k}": draw((WINDOWS, CONTEXT, WIDTH)).astype(np.float32) + np.float32(0.3) for k in range(3)}


def accumulated(given: dict[str, np.ndarray], threads: int) -> dict[str, torch.Tensor]:
    torch.set_num_threads(threads)
    source = stored_source(given, context=CONTEXT, batch=WINDOWS // 2, max_tokens=None, field=None, tokenizer=None)
    assert source is not None
    made = Accumulation(dict.fromkeys(given, WIDTH), 0, derive=Linearisation(choose(None)[0]))
    accumulate(source, source.batches(), made)
    return made.state()


def alike(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> None:
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, two[name], rtol=1e-11, atol=1e-11, msg=name)


def test_two_threads_leave_what_one_leaves() -> None:
    alone = accumulated(states(), 1)
    alike(alone, accumulated(states(), 2))
    with torch.inference_mode():
        alike(alone, accumulated(states(), 2))
    assert torch.get_num_threads() == 2


def test_a_batch_in_pieces_leaves_what_it_leaves_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = accumulated(states(), 1)
    monkeypatch.setattr(site, "AT_ONCE", 2 * CONTEXT * WIDTH)
    alike(whole, accumulated(states(), 1))


@pytest.mark.parametrize(("wrong", "kind"), [(np.nan, np.float32), (-np.inf, np.float64)])
def test_what_is_not_finite_is_named_from_any_thread(wrong: float, kind: type) -> None:
    given = {name: x.astype(kind) for name, x in states().items()}
    given["block.1"][7, 3, 5] = wrong
    with pytest.raises(BadInput, match=r"NaN or infinite values at site block.1 \(window 7, position 3"):
        accumulated(given, 2)


def test_lengths_that_only_float32_cannot_hold_are_finite() -> None:
    given = {"block.0": states()["block.0"] * np.float32(1e30)}
    assert accumulated(given, 1)["site.block.0/cells.ordinary/scalars"][3] > 1e60


def test_what_waits_is_done_when_asked_and_an_error_is_raised_by_the_caller() -> None:
    torch.set_num_threads(2)
    done: list[int] = []
    with Abreast(3, 8.0) as abreast:
        abreast.add(lambda: done.append(0))
        assert done == []
        abreast.settle()
        assert done == [0]
        abreast.add(lambda: done.append(1 // 0))
        with pytest.raises(ZeroDivisionError):
            abreast.add(lambda: done.append(1))
        abreast.add(lambda: done.append(2))
    assert done == [0, 1]
    assert torch.get_num_threads() == 2
    assert Abreast(3, 1e12).workers == Abreast(3, 8.0, "meta").workers == 1
