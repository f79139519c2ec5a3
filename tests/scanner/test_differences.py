"""Differences between sites and models that read the same documents: paired, and covered."""

import re
from io import StringIO

import numpy as np
import pytest
import torch
from rich.console import Console

from headscan import scan
from headscan.measures import MEASURES
from headscan.scanner.differences import Estimates, differences
from headscan.scanner.site_cells import site_cells
from headscan.statistics import SiteStatistics
from headscan.statistics.errors import Errors
from tests.statistics.test_coverage import text

CORE = [MEASURES[name] for name in ("average_cosine", "mean_norm", "effective_rank")]


def estimates(x: torch.Tensor, name: str, document: int) -> Estimates:
    statistics = SiteStatistics(x.shape[2], intervals=True)
    for start in range(0, len(x), 32):
        windows = torch.arange(start, min(start + 32, len(x)))
        statistics.update(
            x[windows], windows.tolist(), (windows // document)[:, None].expand(-1, x.shape[1])
        )
    errors = Errors.of(statistics, CORE)
    return Estimates(
        name, "block.0", site_cells("block.0", statistics, CORE, errors=errors)[0], errors
    )


def pair(windows: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Two models' states of the same text: much alike."""
    x = text(windows, 8, 4, generator)
    return x, 1.1 * x + 0.2 * torch.randn(
        x.shape, generator=generator, dtype=torch.float64
    ) * x.roll(1, 2)


def test_paired_intervals_cover_and_are_narrower_than_those_of_two_texts():
    generator = torch.Generator().manual_seed(0)
    truth = [estimates(x, name, 4) for x, name in zip(pair(8000, generator), "ab", strict=True)]
    true = {
        difference.measure: difference.difference
        for difference in differences(truth, ("", "_without_first"))
    }
    hits = dict.fromkeys(true, 0)
    texts = 80
    widths: dict[str, list[float]] = {name: [] for name in true}
    for _ in range(texts):
        a, b = (estimates(x, name, 4) for x, name in zip(pair(48, generator), "ab", strict=True))
        for difference in differences([a, b], ("", "_without_first")):
            assert (difference.model_a, difference.model_b) == ("b", "a")
            assert difference.interval[0] <= difference.difference <= difference.interval[1]
            hits[difference.measure] += (
                difference.interval[0] <= true[difference.measure] <= difference.interval[1]
            )
            alone = [
                np.diff(estimated.cells[f"{difference.measure}_interval"])[0]
                for estimated in (a, b)
            ]
            widths[difference.measure].append(
                (difference.interval[1] - difference.interval[0]) / np.hypot(*alone)
            )
    assert all(hit / texts >= 0.95 - 4 * (0.95 * 0.05 / texts) ** 0.5 for hit in hits.values()), (
        hits
    )
    assert np.mean(widths["average_cosine"]) < 0.8


def test_what_did_not_read_the_same_has_no_interval():
    generator = torch.Generator().manual_seed(0)
    a = estimates(text(40, 8, 4, generator), "a", 4)
    b = estimates(text(24, 8, 4, generator), "b", 4)
    found_differences = differences([a, b], ("",))
    assert {difference.interval is None for difference in found_differences} == {True}
    # a spectral number is one at a length
    assert {difference.measure for difference in found_differences} == {
        "average_cosine",
        "mean_norm",
    }


@pytest.fixture(scope="module")
def scanned():
    return scan(
        ["gpt-vanilla", "gpt-headless"],
        "stories",
        max_tokens=2048,
        context=64,
        null=True,
        measures=["effective_rank"],
    )


def test_a_scan_gives_neighbours_ends_models_and_twins(scanned):
    pairs = {
        (difference.model_a, difference.site_a, difference.model_b, difference.site_b)
        for difference in scanned.differences
    }
    sites = [row["site"] for row in scanned.sites if row["model"] == "gpt-vanilla"]
    assert ("gpt-vanilla", sites[1], "gpt-vanilla", sites[0]) in pairs
    assert ("gpt-vanilla", sites[-1], "gpt-vanilla", sites[0]) in pairs
    assert ("gpt-vanilla", sites[1], "gpt-vanilla, random weights", sites[1]) in pairs
    assert ("gpt-headless", sites[1], "gpt-vanilla", sites[1]) in pairs
    difference = scanned.differences[0]
    a, b = (
        scanned.site(site, model).number(difference.measure)
        for site, model in (
            (difference.site_a, difference.model_a),
            (difference.site_b, difference.model_b),
        )
    )
    assert difference.difference == a - b
    assert difference.interval[0] <= difference.difference <= difference.interval[1]
    assert len(scanned.frame("differences")) == len(scanned.differences)
    assert scanned.document["differences"][0]["measure"] == difference.measure


def test_the_page_shows_them_folded_away(scanned):
    page = scanned.page()
    assert "Differences" in page
    assert "gpt-vanilla, random weights" in page


def test_page_and_terminal_say_what_intervals_rest_on(scanned):
    based_on = re.compile(r"intervals are based on about \d+ .*independent windows\.")
    assert based_on.search(scanned.page())
    console = Console(width=120, record=True, file=StringIO())
    console.print(scanned.table())
    assert based_on.search(console.export_text())
