"""A measurement between two steps: its numbers against a scan's, and its calls of a device."""

import numpy as np
import pytest
import torch
import transformers

from headscan.measures.measure import MEASURES
from headscan.model import Lens
from headscan.statistics import Cloud, NonFinite, SiteStatistics
from headscan.training.trajectory import DEFAULT, gradient_through_head, measure_sites
from headscan.training.window_sums import Tokens, WindowSums, clouds_of
from tests.card import Card, Event, on_card

CPU = torch.device("cpu")
ROWS = np.random.default_rng(0).integers(0, 300, (16, 64))
NAMES = [*DEFAULT, "isoscore", "participation_ratio"]


def gpt2(layers=4):
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_embd=96, n_layer=layers, n_head=4, n_positions=64, vocab_size=300, pad_token_id=None
    )
    return transformers.GPT2LMHeadModel(config).eval()


def near(value, expected, relative):
    """Return whether two numbers agree; a measure that is not defined is None in both."""
    if expected is None or isinstance(expected, str):
        return value == expected
    return value == pytest.approx(expected, rel=relative)


def test_a_measurement_on_a_device_is_its_forward_pass_and_little_else(monkeypatch):
    """Six sites, the table and the head: calls of the device and moments at which the CPU waits,
    beside those of the forward pass; numbers as on the CPU.
    """
    model = gpt2()
    lens = Lens(model)
    cpu_rows = measure_sites(lens, ROWS)
    cpu_gradient = gradient_through_head(model, None, ROWS, None)
    on_card(model)
    sites = lens.match("embedding, block.*, final_norm")
    card = Card()
    monkeypatch.setattr(torch, "Event", lambda device: Event(card=card))
    counts = [card.counts()]
    with card:
        lens.run(torch.from_numpy(ROWS), sites=sites, each=lambda site, states: None)
        counts.append(card.counts())
        rows = measure_sites(lens, ROWS)
        counts.append(card.counts())
        gradient = gradient_through_head(model, None, ROWS, None)
        counts.append(card.counts())
    (forward, forward_waits), (measured, waits), (head, head_waits) = np.diff(counts, axis=0)
    assert (measured - forward) / 7 <= 40
    assert waits - forward_waits == 2  # for the numbers of the sites, and of the table
    assert head - forward <= 100
    assert head_waits <= 8
    assert card.names["_linalg_eigh"] <= 5  # all sites together, the table, the head, its best rank

    assert len(rows) == len(cpu_rows) == 7
    for row, cpu_row in zip(rows, cpu_rows, strict=True):
        assert list(row) == list(cpu_row)
        for name, value in cpu_row.items():
            assert near(row[name], value, 1e-6), (row["site"], name)
    for name, value in vars(cpu_gradient).items():
        assert getattr(gradient, name) == pytest.approx(value, rel=1e-6), name


@pytest.mark.parametrize("far", [0.0, 1e3, 1e6])
def test_sums_are_those_of_a_scan(far):
    """Windows with sinks and padding on both sides, at several distances from the origin."""
    draw = torch.Generator().manual_seed(0)
    states = torch.randn(6, 32, 40, generator=draw, dtype=torch.float64) + far
    states[1:, 0] *= 30
    states[2, 9] *= 30
    real = np.ones((6, 32), dtype=bool)
    real[0, 20:] = False
    real[1, :5] = False
    sums = WindowSums(40, CPU)
    scanned = SiteStatistics(40)
    for start in (0, 3):
        part = slice(start, start + 3)
        sums.update(states[part], Tokens.of(real[part], CPU, start * 32))
        for window in range(start, start + 3):
            scanned.update(states[window, real[window]][None], [window])
    [(name, clouds)] = clouds_of({"a": sums}, 32, spectral=True)
    assert name == "a"
    for cloud, group in zip(clouds, ("all", "without_first"), strict=True):
        reference = Cloud.of_sums(scanned.sums(group))
        assert (cloud.count, cloud.zeros) == (reference.count, reference.zeros)
        np.testing.assert_allclose(cloud.covariance, reference.covariance, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(cloud.vector_sum, reference.vector_sum, rtol=1e-12)
        for measure in NAMES:
            assert near(MEASURES[measure](cloud), MEASURES[measure](reference), 1e-6), measure


def test_a_device_decomposes_what_the_cpu_does():
    """Three sites together; far from the origin eigenvalues come from the covariance."""
    draw = torch.Generator().manual_seed(0)
    real = np.ones((5, 24), dtype=bool)
    rows = {}
    for device, moved in ((torch.device("meta"), Card.of), (CPU, torch.clone)):
        draw.manual_seed(0)
        with Card():
            sites = {}
            for name, far in (("near", 0.5), ("far", 1e6), ("zero", 0.0)):
                states = torch.randn(5, 24, 16, generator=draw, dtype=torch.float64)
                states *= name != "zero"
                sites[name] = WindowSums(16, device)
                sites[name].update(moved(states + far), Tokens.of(real, device))
            rows[device.type] = {
                (name, number, measure): MEASURES[measure](cloud)
                for name, clouds in clouds_of(sites, 24, spectral=True)
                for number, cloud in enumerate(clouds)
                for measure in NAMES
            }
    assert len(rows["cpu"]) == 3 * 2 * len(NAMES)
    for key, value in rows["cpu"].items():
        assert near(rows["meta"][key], value, 1e-6), key


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_vector_that_is_not_finite_is_named(device):
    states = torch.randn(4, 8, 16)
    states[3, 5, 2] = torch.inf
    real = np.ones((2, 8), dtype=bool)
    with Card():
        sums = WindowSums(16, torch.device(device))
        for start in (0, 2):
            tokens = Tokens.of(real, torch.device(device), 8 * start)
            part = states[start : start + 2]
            sums.update(part if device == "cpu" else Card.of(part), tokens)
        with pytest.raises(NonFinite, match="window 3, position 5") as error:
            list(clouds_of({"block.0": sums}, 8, spectral=True))
    assert error.value.site == "block.0"
