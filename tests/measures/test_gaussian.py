"""On independent draws of N(0, I) every measure and every probe's number is its known value, within
what is stated.

One run of the real accumulators over Gaussian states at two sites of a small model with Gaussian
tables; then one test a name. A name without a known value must say why.
"""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from headscan import Lens
from headscan.measures import MEASURES, PROBES, intrinsic_dimension
from headscan.measures.attention import _add, _empty_tally, _scores, head_rows
from headscan.measures.pairs import aligned
from headscan.scanner.accumulate import Accumulation, accumulate
from headscan.scanner.probe_runner import PassOptions, ProbeRunner
from headscan.scanner.site_cells import site_cells
from headscan.states import ModelSource
from headscan.text import Batch
from headscan.text.source import Reading
from tests.reference.gaussian import KNOWN, Shape, marchenko_pastur

SHAPE = Shape()
SITES = ("embedding", "block.0", "final_norm")
BESIDE = ("alignment", "anatomy", "attention", "dimension", "logit_lens", "loss", "zipf")


@pytest.fixture(scope="module")
def measured():
    """Name → value, of everything that is measured on Gaussian data here."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    config = GPT2Config(
        vocab_size=SHAPE.rows,
        n_positions=SHAPE.window,
        n_embd=SHAPE.d,
        n_layer=1,
        n_head=2,
        tie_word_embeddings=False,
    )
    model = GPT2LMHeadModel(config).eval()
    for table in (model.transformer.wte, model.lm_head):
        table.weight.data = SHAPE.scale * torch.randn(SHAPE.rows, SHAPE.d, generator=generator)
    lens = Lens(model, name="noise")
    probes = [probe() for name, probe in PROBES.items() if name not in BESIDE]
    reading = Reading(max_tokens=SHAPE.n)
    runner = ProbeRunner(
        probes,
        ModelSource(lens, "", reading, context=SHAPE.window),
        SITES,
        PassOptions(),
        announce=print,
    )
    accumulated = Accumulation(
        dict.fromkeys(SITES, SHAPE.d), SHAPE.rows, sample=SHAPE.sample, extras=runner.accumulators
    )

    def noise(batch, sites, take):
        for site in sites:
            take(site, torch.randn(*batch.ids.shape, SHAPE.d, generator=generator))

    source = SimpleNamespace(
        visit=noise,
        name="noise",
        vocabulary=SHAPE.rows,
        context=SHAPE.window,
        batch=256,
        device="cpu",
        pooled=lambda site: False,
    )
    ids = np.random.default_rng(0).integers(
        0, SHAPE.classes, (SHAPE.n // SHAPE.window, SHAPE.window)
    )
    batches = [
        Batch(k, np.arange(256 * k, 256 * k + 256), rows, np.zeros_like(rows))
        for k, rows in enumerate(ids.reshape(-1, 256, ids.shape[1]))
    ]
    accumulate(source, batches, accumulated, watch=runner.watch(accumulated))
    entries = [site_cells(site, accumulated.sites[site], list(MEASURES.values())) for site in SITES]
    clouds = dict(zip(SITES, (cloud for _, cloud in entries), strict=True))
    document = runner.rows(accumulated, clouds, {"model": "noise"})
    values = {name: entries[1][0][name] for name in MEASURES}
    for probe in probes:
        row = document[probe.name][1 if probe.name == "axis" else -1]
        if probe.name == "frequency":  # the tokens that never occur: nearly all rows
            row = next(row for row in document[probe.name] if row["to"] == 0)
        values |= {f"{probe.name}.{name}": row.get(name) for name in probe.fields}
    flat = np.zeros((SHAPE.sample, SHAPE.d))
    flat[:, : SHAPE.near] = np.random.default_rng(2).standard_normal((SHAPE.sample, SHAPE.near))
    values |= {f"dimension.{name}": value for name, value in intrinsic_dimension(flat).items()}
    first, second = np.random.default_rng(3).standard_normal((2, SHAPE.sample, SHAPE.d))
    values |= {f"alignment.{name}": value for name, value in aligned(first, second).items()}
    tally = _empty_tally(1, SHAPE.d)
    for _ in range(8):
        q, k = (
            torch.randn(SHAPE.n // SHAPE.window // 8, 1, SHAPE.window, SHAPE.d, generator=generator)
            for _ in "qk"
        )
        _add(tally, q, k, _scores(q, k, None, None, causal=True))
    values |= {f"attention.{name}": value for name, value in head_rows({0: tally})[0].items()}
    return values


def test_every_number_is_in_the_table():
    fields = {f"{name}.{field}" for name, probe in PROBES.items() for field in probe.words.fields}
    # a newcomer may leave its known value to be added later
    assert set(KNOWN) <= set(MEASURES) | fields
    assert all(known.why for known in KNOWN.values())


@pytest.mark.parametrize("name", [name for name, known in KNOWN.items() if known.value is not None])
def test_gaussian_data_give_the_known_value(measured, name):
    known = KNOWN[name]
    value = known.value(SHAPE)
    within = known.within(SHAPE)
    if math.isnan(value):
        assert measured[name] is None
    else:
        assert measured[name] == pytest.approx(value, abs=within, rel=0)


@pytest.mark.parametrize(
    "name", ["average_cosine", "effective_rank", "isoscore", "rankme", "top_direction_share"]
)
def test_the_table_would_notice_a_drift(measured, name):
    """A slight cone in one stretched direction moves these beyond what is stated."""
    from headscan.statistics.cloud import Cloud

    rows = np.random.default_rng(0).standard_normal((20_000, SHAPE.d))
    rows[:, 0] = 1.3 * rows[:, 0] + 0.3
    shape = Shape(n=len(rows))
    assert abs(MEASURES[name](Cloud.of_rows(rows)) - KNOWN[name].value(shape)) > KNOWN[name].within(
        shape
    )


def test_the_law_s_moments_are_known():
    for ratio in (0.01, 0.3, 1.0):
        assert marchenko_pastur(lambda x: x, ratio) == pytest.approx(1, abs=1e-9)
        assert marchenko_pastur(lambda x: x * math.log(x), ratio) == pytest.approx(
            ratio / 2, abs=1e-6
        )
