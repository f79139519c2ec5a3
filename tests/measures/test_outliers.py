"""Sinks, massive activations and rogue coordinates: found where they were planted, and measured as
brute force does.
"""

import numpy as np
import pytest
import torch

from headscan.measures import MEASURES
from headscan.scanner.site_cells import site_cells
from headscan.statistics import SiteStatistics

WIDTH = 12
WINDOWS = 20
LENGTH = 32


@pytest.fixture(scope="module")
def planted():
    """Windows whose position 0 (in one: position 5) is a sink in coordinates 3 and 8, and a cone
    along coordinate 7.
    """
    x = torch.randn(
        WINDOWS, LENGTH, WIDTH, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    x[..., 7] += 4
    sink_positions = [(window, 5 if window == 4 else 0) for window in range(WINDOWS)]
    for window, position in sink_positions:
        x[window, position, 3] = -9000.0
        x[window, position, 8] = 6000.0
    ids = torch.arange(WINDOWS * LENGTH).reshape(WINDOWS, LENGTH) % 50
    statistics = SiteStatistics(WIDTH)
    for part in torch.arange(WINDOWS).split(6):
        statistics.update(x[part], part.tolist(), None, ids[part])
    sinks = torch.zeros(WINDOWS, LENGTH, dtype=torch.bool)
    sinks[tuple(torch.tensor(sink_positions).T)] = True
    cells, cloud = site_cells(
        "block.0", statistics, list(MEASURES.values()), lambda ids: [f"<{i}>" for i in ids]
    )
    return x, sinks, ids, cells, cloud


def test_every_measure_without_sinks_is_that_of_the_other_rows(planted):
    x, sinks, _, cells, cloud = planted
    first = torch.zeros_like(sinks)
    first[:, 0] = True
    for suffix, rows in (("", x), ("_without_first", x[~first]), ("_without_sinks", x[~sinks])):
        for name, measure in MEASURES.items():
            assert cells[name + suffix] == pytest.approx(
                measure(rows.reshape(-1, WIDTH)), rel=1e-9
            ), name + suffix
    assert cloud.count == cells["tokens"] == WINDOWS * LENGTH


def test_sinks_are_counted_placed_and_named(planted):
    x, sinks, ids, cells, _ = planted
    assert (cells["sinks"], cells["sink_share"]) == (WINDOWS, 1 / LENGTH)
    assert cells["sink_energy"] == pytest.approx(float(x[sinks].square().sum() / x.square().sum()))
    assert cells["sink_length"] == pytest.approx(
        float(x[sinks].norm(dim=1).mean() / x[~sinks].norm(dim=1).mean())
    )
    assert cells["sink_positions"] == [[0, WINDOWS - 1], [5, 1]]
    values, counts = np.unique(ids[sinks], return_counts=True)
    assert sum(times for _, times in cells["sink_tokens"]) <= WINDOWS
    assert cells["sink_tokens"][0] == [f"<{values[counts.argmax()]}>", counts.max()]


def test_massive_and_rogue_coordinates_are_named_with_what_is_left(planted):
    x, sinks, _, cells, _ = planted
    assert cells["massive_coordinates"] == [3, 8]
    usual = x[~sinks].square().mean(0).sqrt().median().item()
    assert cells["massive_ratio"] == pytest.approx(9000 / usual, rel=0.1)
    rows = x[~sinks]
    unit = rows / rows.norm(dim=1, keepdim=True)
    parts = (unit.sum(0) ** 2 - unit.square().sum(0)) / (len(unit) * (len(unit) - 1))
    assert cells["rogue_coordinates"] == [7]
    assert cells["rogue_share"] == pytest.approx(float(parts[7] / parts.sum()))
    remaining = [k for k in range(WIDTH) if k != 7]
    assert cells["average_cosine_without_rogue"] == pytest.approx(
        float(parts[remaining].sum()), rel=1e-6
    )
    for name in ("top_direction_share", "effective_rank"):
        assert cells[f"{name}_without_rogue"] == pytest.approx(
            MEASURES[name](rows[:, remaining])
        ), name


def test_where_there_are_no_sinks_nothing_is_set_aside():
    statistics = SiteStatistics(WIDTH)
    statistics.update(
        torch.randn(8, LENGTH, WIDTH, generator=torch.Generator().manual_seed(1)), list(range(8))
    )
    cells, _ = site_cells("block.0", statistics)
    assert (
        cells["sinks"],
        cells["sink_energy"],
        cells["sink_length"],
        cells["sink_positions"],
    ) == (0, 0.0, None, [])
    assert cells["effective_rank_without_sinks"] == cells["effective_rank"]
    assert cells["massive_coordinates"] == []
