"""Attributes worked out when they are asked for do not make threads wait for each other; a device
has one thread.
"""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

import headscan
from headscan.measures import head
from headscan.measures.head import SCALES, scaled_losses
from headscan.model import Lens
from headscan.scanner import examine
from headscan.statistics import cloud
from headscan.statistics.parallel import lazy, side_by_side
from headscan.weights import reading
from headscan.weights.reading import OpenedWeights, open_weights
from tests.card import CARD, Card


def test_two_objects_are_worked_out_at_once() -> None:
    both = threading.Barrier(2)

    class Slow:
        @lazy
        def value(self) -> int:
            return both.wait(timeout=10)  # returns only when the other one is here, too

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(lambda slow: slow.value, [Slow(), Slow()])) == [0, 1]


def test_side_by_side_holds_all_threads_down_and_gives_them_back() -> None:
    def threads(_: int) -> tuple[int, ...]:
        pools = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
        return (torch.get_num_threads(), *pools)

    threads_before = threads(0)
    own_threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert {count for counts in side_by_side(threads, [0, 1, 2], 8.0) for count in counts} == {
            1
        }
    finally:
        torch.set_num_threads(own_threads)
    assert threads(0) == threads_before


class DeviceLibrary:
    """A double of a device's linear algebra: like torch's loader of that library, it refuses a call
    during another call.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.busy = threading.Lock()

    def __call__(self, function):
        def called(*args, **kwargs):
            if not self.busy.acquire(blocking=False):
                raise RuntimeError("lazy wrapper should be called at most once")
            try:
                self.calls += 1
                time.sleep(0.01)
                return function(*args, **kwargs)
            finally:
                self.busy.release()

        return called


@pytest.fixture
def four_threads():
    threads_before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(threads_before)


@pytest.mark.usefixtures("four_threads")
def test_jobs_on_a_device_run_one_after_another() -> None:
    library = DeviceLibrary()
    assert list(side_by_side(library(abs), [-1, 2, -3, 4], 8.0, CARD)) == [1, 2, 3, 4]
    assert list(side_by_side(library(abs), [-1, 2, -3, 4], 8.0, "cuda:0")) == [1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="lazy wrapper"):
        list(side_by_side(library(abs), [-1, 2, -3, 4], 8.0))


@pytest.mark.usefixtures("four_threads")
def test_a_scan_on_a_device_decomposes_from_one_thread(monkeypatch) -> None:
    library = DeviceLibrary()
    monkeypatch.setattr(cloud, "eigen", library(cloud.eigen))
    states = {f"block.{layer}": torch.randn(8, 16, 8) for layer in range(6)}
    with pytest.raises(RuntimeError, match="lazy wrapper"):
        headscan.scan(states)
    # The statistics of every site say that they are on a device until the work on them begins.
    site_statistics = []

    def on_a_device(accumulated):
        site_statistics.extend(accumulated.sites.values())
        for statistics in site_statistics:
            statistics.device = CARD
        return accumulated

    def begun(work, items, size, device="cpu"):
        for statistics in site_statistics:
            statistics.device = torch.device("cpu")
        return side_by_side(work, items, size, device)

    monkeypatch.setattr(examine, "merged", on_a_device)
    monkeypatch.setattr(examine, "side_by_side", begun)
    library.calls = 0
    assert len(headscan.scan(states).sites) == 6
    assert library.calls >= 6


@pytest.mark.usefixtures("four_threads")
def test_spectra_of_weights_on_a_device_come_from_one_thread(monkeypatch) -> None:
    library = DeviceLibrary()
    monkeypatch.setattr(reading, "energies", library(reading.energies))
    with pytest.raises(RuntimeError, match="lazy wrapper"):
        headscan.weights.run(Lens.load("gpt-vanilla"))

    def on_a_device(*args):
        opened = open_weights(*args)
        opened.chosen = CARD
        return opened

    monkeypatch.setattr(sys.modules["headscan.weights.run"], "open_weights", on_a_device)
    library.calls = 0
    headscan.weights.run(Lens.load("gpt-vanilla"))
    assert library.calls > 4


def test_weights_are_on_the_device_that_holds_them() -> None:
    opened = OpenedWeights([])
    opened.add("cpu", (16, 16), torch.zeros(16, 16), True)
    opened.add("file", (16, 16), object(), True)
    assert opened.device.type == "cpu"
    opened.add("card", (16, 16), torch.zeros(16, 16, device=CARD), True)
    assert opened.device == CARD


def test_spectra_of_weights_are_computed_on_the_device_that_is_named() -> None:
    lens = Lens.load("gpt-vanilla")
    expected = open_weights(lens, device="cpu").matrices[0].measure()
    with Card() as card:
        opened = open_weights(lens, device="meta")
        values = opened.matrices[0].measure()
    assert opened.device == CARD
    assert card.names["_linalg_eigh"] == 1
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-12 * expected[-1])


@pytest.mark.usefixtures("four_threads")
def test_scaled_losses_on_a_device_come_from_one_thread(monkeypatch) -> None:
    devices = []
    plain = head.side_by_side

    def recorded(work, items, size, device="cpu"):
        devices.append(torch.device(device))
        return plain(work, items, size, device)

    monkeypatch.setattr(head, "side_by_side", recorded)
    logits = Card.of(torch.zeros(1, 4, 8))
    with Card():
        losses = scaled_losses(logits, Card.of(torch.zeros(1, 4, dtype=torch.int64)))
    assert devices == [CARD]
    assert losses.shape == (1, len(SCALES))
