"""The anatomy of a cone: against sums taken token by token, in every family, and inside a scan."""

from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from headscan import Lens, scan
from headscan.measures.anatomy import AnatomyProbe, rank_bands
from headscan.measures.probe import Clouds, ProbeData, ProbeSetup
from headscan.model.norms import Norm
from headscan.statistics import SiteBatch
from tests.model.tiny import coverage_script, family

FAMILIES = coverage_script().FAMILIES
IDS = torch.randint(3, 97, (6, 9), generator=torch.Generator().manual_seed(1))
DOCUMENTS = torch.arange(6)[:, None].expand(6, 9) // 2


def rows_of(lens: Lens, ids=IDS, *, batch=4, sites=None, split=None, skip=0, stored=False):
    """The probe's rows of windows in batches; with `split`, of two accumulators merged after that
    window.
    """
    probe = AnatomyProbe()
    text = [SimpleNamespace(ids=ids.numpy())]
    source = SimpleNamespace(
        lens=None if stored else lens,
        vocabulary=0 if stored else lens.vocabulary_size,
        width=lens.width,
        default_sites=lens.default_sites,
        batches=lambda: text,
    )
    setup = ProbeSetup(source, sites or lens.default_sites, ids.shape[1], None, skip)
    parts = []
    window_ranges = [range(len(ids))] if split is None else [range(split), range(split, len(ids))]
    for window_range in window_ranges:
        accumulators = probe.accumulators(setup)
        for start in range(window_range.start, window_range.stop, batch):
            windows = list(range(start, min(start + batch, window_range.stop)))

            def take(site, states, windows=windows, accumulators=accumulators):
                at = SiteBatch(
                    site,
                    states,
                    ids[windows],
                    windows,
                    skip_first=skip,
                    documents=DOCUMENTS[windows],
                )
                if site in probe.passing(setup):
                    probe.see(setup, at)
                if site in accumulators:
                    probe.update(setup, site, accumulators[site], at)

            lens.run(
                ids[windows],
                sites=list(dict.fromkeys([*setup.sites, *probe.passing(setup)])),
                each=take,
            )
        parts.append(
            {
                site: type(accumulator).restore(accumulator.state())
                for site, accumulator in accumulators.items()
            }
        )
    for part in parts[1:]:
        for site, accumulator in part.items():
            parts[0][site].merge(accumulator)
    data = ProbeData(Clouds({}, setup.sites), parts[0], {}, np.zeros(0), ids)
    data.clouds = dict.fromkeys(setup.sites)
    return probe.rows(setup, data)


def shares(rows, site, kind):
    return {row["part"]: row["share"] for row in rows if (row["site"], row["kind"]) == (site, kind)}


@pytest.mark.parametrize("row", FAMILIES, ids=lambda row: row.name)
def test_shares_add_up_to_one_in_every_family_and_nothing_is_left_over(row):
    lens = Lens(row.build())
    rows = rows_of(lens)
    sums = defaultdict(float)
    for share_row in rows:
        sums[share_row["site"], share_row["kind"]] += share_row["share"]
    assert {site for site, kind in sums if kind == "branch"} == set(lens.default_sites)
    assert max(abs(total - 1) for total in sums.values()) < 1e-12
    for site in lens.default_sites:
        parts = shares(rows, site, "branch")
        assert abs(parts["rounding"]) < 2e-5, (site, parts)
        assert not any(part.rsplit(".", 1)[-1].isdigit() for part in parts), (
            "a block whose branches are not known"
        )


def held_still(norm, x, v):
    """Return what a norm of torch or transformers makes of a part v of x, its factor held still,
    and its bias.
    """
    bias = getattr(norm, "bias", None)
    if bias is not None:
        factor = (x.var(-1, unbiased=False, keepdim=True) + norm.eps).rsqrt()
        return norm.weight * (v - v.mean(-1, keepdim=True)) * factor, bias.expand_as(v)
    return norm.weight * v * (
        x.square().mean(-1, keepdim=True) + norm.variance_epsilon
    ).rsqrt(), None


def by_hand(lens, steps, site):
    """The share of every part at a site, token by token, where `steps` are branches and norms in
    order.
    """
    names = [step for step in steps if isinstance(step, str)]
    states = lens.run(IDS, sites=[*names, site])
    x = 0
    parts = {}
    for step in steps:
        if isinstance(step, str):
            parts[step] = states[step]
            x = x + states[step]
            continue
        moved = {name: held_still(step, x, part)[0] for name, part in parts.items()}
        bias = held_still(step, x, x)[1]
        if bias is not None:
            moved["norm biases"] = moved.get("norm biases", 0) + bias
        parts = moved
        x = sum(moved.values())
    assert torch.allclose(x, states[site], atol=1e-9)
    unit = states[site] / states[site].norm(dim=-1, keepdim=True)
    mean = unit.mean((0, 1))
    norms = states[site].norm(dim=-1)
    total = 0.0
    result = {}
    for name, part in parts.items():
        share = 0.0
        for window in range(len(IDS)):
            for position in range(IDS.shape[1]):
                share += float(part[window, position] @ mean / norms[window, position])
        result[name] = share / IDS.numel() / float(mean @ mean)
        total += result[name]
    assert total == pytest.approx(1, abs=1e-9)
    return result


def of_bert(model, depth):
    steps = ["embedding"]
    for index, layer in enumerate(model.bert.encoder.layer[:depth]):
        steps += [f"block.{index}.attention", layer.attention.output.LayerNorm]
        steps += [f"block.{index}.mlp", layer.output.LayerNorm]
    return steps


CASES = {
    "GPT-2": lambda model: (
        "final_norm",
        [
            "embedding",
            *(f"block.{k}.{part}" for k in range(3) for part in ("attention", "mlp")),
            model.transformer.ln_f,
        ],
    ),
    "Bert (masked LM)": lambda model: ("block.2", of_bert(model, 3)),
    "Bert (bare encoder)": None,
    "OPT-350m (post-norm, projected embeddings)": lambda model: (
        "block.1",
        [
            "embedding",
            *(
                step
                for k, layer in enumerate(model.model.decoder.layers[:2])
                for step in (
                    f"block.{k}.attention",
                    layer.self_attn_layer_norm,
                    f"block.{k}.mlp",
                    layer.final_layer_norm,
                )
            ),
        ],
    ),
}


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case])
def test_branches_equal_brute_force(name):
    model = family(name).double()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, torch.nn.LayerNorm):
                module.bias += 0.3 * torch.randn(
                    module.bias.shape, generator=torch.Generator().manual_seed(2)
                )
    lens = Lens(model)
    site, steps = CASES[name](model)
    with torch.no_grad():
        expected = by_hand(lens, steps, site)
    actual = shares(rows_of(lens), site, "branch")
    assert set(actual) == {*expected, "rounding"}
    for part, share in expected.items():
        assert actual[part] == pytest.approx(share, abs=1e-9), part


@pytest.mark.parametrize("skip", [0, 1])
def test_bands_positions_coordinates_and_documents_equal_brute_force(skip):
    lens = Lens(family("GPT-2").double())
    counts = torch.bincount(IDS[:, skip:].flatten(), minlength=97).numpy()
    rows = rows_of(lens, skip=skip)
    states = lens.run(IDS, sites="block.1")["block.1"].detach().numpy()
    unit = states / np.linalg.norm(states, axis=-1, keepdims=True)
    counted = np.zeros(IDS.shape, dtype=bool)
    counted[:, skip:] = True
    mean = unit[counted].mean(0)
    contributions = (unit @ mean) / counted.sum() / (mean @ mean)
    order = np.argsort(-counts, kind="stable")
    for part, low, high in (("rank 1-10", 0, 10), ("rank 11-50", 10, 50), ("rank 51-200", 50, 200)):
        inside = np.isin(IDS.numpy(), order[low:high])
        assert shares(rows, "block.1", "band")[part] == pytest.approx(
            contributions[counted & inside].sum(), abs=1e-9
        )
    positions = {"position 2-3": (2, 4), "position 4-7": (4, 8), "position 8": (8, 9)}
    for part, (low, high) in positions.items():
        assert shares(rows, "block.1", "position")[part] == pytest.approx(
            contributions[:, low:high].sum(), abs=1e-9
        )
    coordinates = shares(rows, "block.1", "coordinate")
    strongest = int(np.argmax(mean**2))
    assert coordinates[f"coordinate {strongest}"] == pytest.approx(
        mean[strongest] ** 2 / (mean @ mean), abs=1e-9
    )
    documents = shares(rows, "block.1", "document")
    assert documents["document 1"] == pytest.approx(
        contributions[2:4][counted[2:4]].sum(), abs=1e-9
    )
    assert ("position 0" in shares(rows, "block.1", "position")) == (skip == 0)


def test_any_split_and_any_batch_give_the_same():
    lens = Lens(family("Bert (masked LM)"))
    at_once = rows_of(lens, batch=6)
    by_parts = rows_of(lens, batch=1, split=3)
    for a, b in zip(at_once, by_parts, strict=True):
        assert a["part"] == b["part"]
        assert a["share"] == pytest.approx(b["share"], abs=1e-6)
        assert (a["interval"] is None) == (b["interval"] is None)


def test_a_site_that_is_a_branch_is_its_own_whole_and_the_head_has_no_branches():
    lens = Lens(family("GPT-2"))
    rows = rows_of(lens, sites=("block.1.mlp", "head"))
    assert shares(rows, "block.1.mlp", "branch") == pytest.approx(
        {"block.1.mlp": 1.0, "rounding": 0.0}
    )
    assert shares(rows, "head", "branch") == {}
    assert sum(shares(rows, "head", "coordinate").values()) == pytest.approx(1)


def test_stored_states_have_every_kind_but_branches_and_bands_and_say_why():
    rows = rows_of(Lens(family("GPT-2")), stored=True)
    kinds = {row["kind"] for row in rows}
    assert kinds == {"position", "coordinate", "document"}
    assert "no shares by branch" in rows[0]["notes"][0]


def test_a_layer_that_is_no_norm_has_no_law():
    assert Norm.of(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()), 8) is None
    assert Norm.of(torch.nn.Tanh(), 8) is None
    assert Norm.of(torch.nn.RMSNorm(8), 8).centred is False


def test_bands_are_by_rank():
    counts = np.zeros(1500, dtype=np.int64)
    counts[700] = 9
    bands = rank_bands(counts)
    assert bands[700] == 0
    assert np.bincount(bands).tolist() == [10, 40, 150, 800, 500]


def test_intervals_cover_the_share_of_endless_text():
    """A stream whose first branch writes a common direction: 40 texts of 16 windows, which are
    documents, or read as if they were one running text, whose interval is wider for it.
    """
    from headscan.measures.anatomy import Shares

    generator = np.random.default_rng(0)

    def text(windows):
        branches = generator.standard_normal((windows, 2, 6)) * 0.3 + np.array(
            [[1.0] + [0] * 5, [0.2] * 6]
        )
        return branches, branches.sum(1)

    parts, units = text(100_000)
    truth = {
        row["part"]: row["share"]
        for row in Shares(units, np.ones(len(units))).of("x", ["a", "b"], parts)
    }
    hits = np.zeros(2)
    widths = np.zeros(2)
    for _ in range(40):
        parts, units = text(16)
        for drawn in (0, 1):
            for row in Shares(units, np.ones(16), bool(drawn)).of("x", ["a", "b"], parts):
                low, high = row["interval"]
                hits[drawn] += low <= truth[row["part"]] <= high
                widths[drawn] += high - low
    assert min(hits) >= 72  # of 80
    assert 1.7 < widths[0] / widths[1] < 2.5


def test_in_a_scan_of_a_specimen():
    result = scan(
        "gpt-vanilla",
        "stories",
        max_tokens=1024,
        context=32,
        batch=8,
        measures="anatomy",
        documents="paragraphs",
    )
    rows = result.tables["anatomy"]
    kinds = {row["kind"] for row in rows}
    assert kinds == {"branch", "band", "position", "coordinate", "document"}
    sums = defaultdict(float)
    for row in rows:
        sums[row["site"], row["kind"]] += row["share"]
        assert row.interval("share") is not None
        assert row["interval"][0] <= row["share"] <= row["interval"][1]
    assert max(abs(total - 1) for total in sums.values()) < 1e-12
    tokens = sum(row["tokens"] for row in rows if (row["site"], row["kind"]) == ("block.0", "band"))
    assert tokens == pytest.approx(1)
