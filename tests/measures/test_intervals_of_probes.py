"""Every probe's number has an interval, or its field says why not; intervals are as wide as
repeated draws scatter.
"""

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from headscan import Lens, scan
from headscan.measures import PROBES, intrinsic_dimension, uniformity
from headscan.measures.cone import axis_course
from headscan.measures.outliers import agreements
from headscan.measures.pairs import aligned
from headscan.measures.sphere import uniformity_by_block
from headscan.model.tokenizer import ByteTokenizer
from headscan.statistics import ClassSums, SiteStatistics

TEXT = [
    "Once upon a time there was a cone, and it was very narrow. " * 20,
    "The end of all the cones is a ball. " * 50,
]


@pytest.fixture(scope="module")
def everything():
    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=300, n_positions=64, n_embd=24, n_layer=2, n_head=2)
    ).eval()
    return scan(Lens(model, ByteTokenizer(), name="tiny"), TEXT, context=32, measures="expensive")


def test_every_number_has_an_interval_or_a_reason(everything):
    for probe in PROBES.values():
        unexplained: set[str] = set()
        for row in everything.document[probe.words.name]:
            for name, field in probe.words.fields.items():
                if isinstance(row.get(name), int | float) and row.get("null") is None:
                    interval = row.get(f"{name}_interval")
                    if interval is None:
                        assert any(
                            "no interval of" in note and name in note for note in row["notes"]
                        ), (probe.words.name, name)
                        unexplained |= {name} if not field.interval else set()
                    else:
                        low, high = interval
                        assert low <= high, (probe.words.name, name, interval)
                        assert low - 1e-9 <= row[name] <= high + 1e-9, (
                            probe.words.name,
                            name,
                            row[name],
                            interval,
                        )
        assert not unexplained, (probe.words.name, unexplained)


def test_what_is_said_to_come_without_position_0_does(everything):
    for probe in PROBES.values():
        assert probe.words.position
        for row in everything.document[probe.words.name]:
            for name, field in probe.words.fields.items():
                if field.first and row.get("null") is None:
                    assert f"{name}_without_first" in row, (probe.words.name, name)


def ratio(draw, replicates: int = 60) -> float:
    """Mean half-width of the intervals over 1.96 times the standard deviation of the values, over
    draws.
    """
    values = []
    halves = []
    for seed in range(replicates):
        value, interval = draw(np.random.default_rng(seed))
        values.append(value)
        halves.append((interval[1] - interval[0]) / 2)
    return float(np.mean(halves) / (1.96 * np.std(values, ddof=1)))


def dimension(name):
    def draw(rng):
        dimension = intrinsic_dimension(rng.standard_normal((400, 3)), blocks=np.arange(400) // 50)
        return dimension[name], dimension[f"{name}_interval"]

    return draw


def sphere(rng):
    rows = rng.standard_normal((300, 8)) + 0.3
    uniformity = uniformity_by_block(rows, np.arange(300) // 38, np.zeros(300, dtype=bool))
    return uniformity["uniformity"], uniformity["uniformity_interval"]


def agreement(rng):
    rows = rng.standard_normal((200, 8)) * [3, 1, 1, 1, 1, 1, 1, 1]
    shares = agreements(rows, {1: np.array([0])}, np.arange(200) // 25, np.zeros(200, dtype=bool))
    return shares["agreement_1"], shares["agreement_1_interval"]


def pairs(rng):
    first = rng.standard_normal((200, 12))
    alignment = aligned(first, first + rng.standard_normal((200, 12)))
    return alignment["relative"], alignment["relative_interval"]


def axes(rng):
    sites = []
    common = rng.standard_normal((32, 8, 5)) + 1
    for noise in range(2):
        statistics = SiteStatistics(5)
        statistics.update(
            torch.tensor(common + noise * rng.standard_normal(common.shape)), list(range(32))
        )
        sites.append(statistics)
    row = axis_course(sites)[1]
    return row["to_first"], row["to_first_interval"]


@pytest.mark.parametrize(
    "draw",
    [dimension("twonn"), dimension("mle_dimension"), sphere, agreement, axes],
    ids=["twonn", "mle", "uniformity", "agreement", "axes"],
)
def test_intervals_of_blocks_of_a_text_are_as_wide_as_values_scatter(draw):
    """Blocks are taken as a text that runs on, for eight of them cannot tell; these are
    independent, so that intervals are wide.

    By √(7/8·8^1.5/(8 − √8)) = 1.96, and by Student's 1.2: 2.35. The standard deviation of 60 draws
    is known to a tenth, and the mean width of eight blocks' to a twentieth; a number that bends
    where a block is left out has wider ones.
    """
    assert 1.6 < ratio(draw) < 3.0


def test_intervals_of_independent_parts_are_as_wide_as_values_scatter():
    """Pairs are independent draws; Student's quantile makes intervals up to 1.2 times as wide."""
    assert 0.75 < ratio(pairs) < 1.6


def test_without_position_0_is_what_remains():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((120, 4))
    first = np.arange(120) % 5 == 0
    rows[first] += 5
    blocks = np.arange(120) // 20
    dimensions = intrinsic_dimension(rows, blocks=blocks, first=first)
    alone = intrinsic_dimension(rows[~first], blocks=blocks[~first])
    for name in ("twonn", "mle_dimension", "distinct_points"):
        assert dimensions[f"{name}_without_first"] == pytest.approx(alone[name], rel=1e-9)
    assert dimensions["twonn_without_first_interval"] == pytest.approx(
        alone["twonn_interval"], rel=1e-9
    )
    assert uniformity_by_block(rows, blocks, first)["uniformity_without_first"] == pytest.approx(
        uniformity(rows[~first])
    )
    everywhere = intrinsic_dimension(rows, blocks=blocks, first=np.zeros(120, dtype=bool))
    assert everywhere["twonn_without_first"] == everywhere["twonn"]


def test_classes_without_a_part():
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.standard_normal((50, 3)))
    labels = torch.tensor(rng.integers(0, 6, 50))
    part = torch.arange(50) % 3 == 0
    full = ClassSums(3)
    part_sums = ClassSums(3)
    remaining = ClassSums(3)
    full.update(labels, x)
    part_sums.update(labels[part], x[part])
    remaining.update(labels[~part], x[~part])
    difference = full.without(part_sums)
    order = [difference.labels.tolist().index(label) for label in remaining.labels.tolist()]
    torch.testing.assert_close(difference.sums[order], remaining.sums)
    torch.testing.assert_close(difference.squares[order], remaining.squares)
    assert difference.counts[order].tolist() == remaining.counts.tolist()
