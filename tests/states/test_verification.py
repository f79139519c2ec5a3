"""`states --verify` names the site, order, precision and scale of planted dumps, and calls others
foreign.
"""

import numpy as np
import pytest
import torch

import headscan
from headscan import BadInput, Lens
from headscan.states.verification import PERMUTED, Layout, match_of, precision_of

WINDOWS, LENGTH = 16, 32
SITES = ("embedding", "block.0", "block.0.mlp", "block.1.attention", "final_norm")
SHIFTED = {1: "one token early", -1: "one token late"}


@pytest.fixture(scope="module")
def read():
    """Token ids [windows, length], and the states [windows, length, d] of every site."""
    lens = Lens.load("gpt-vanilla")
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 500, (WINDOWS, LENGTH), generator=generator)
    sites = [site for site in lens.sites if site != "head"]
    return ids, {site: states.clone() for site, states in lens.run(ids, sites=sites).items()}


def planted(states, seed):
    """A dump that a fault made of states [windows, T, d], with its order, precision and scale."""
    draw = np.random.default_rng(seed)
    scale = float(draw.choice([1.0, 0.5, 8.0, 1.0 / 3]))
    precision = str(draw.choice(["float32", "bfloat16", "float16", "float8_e4m3fn"]))
    order = str(draw.choice(["as the tokens", PERMUTED, *SHIFTED.values()]))
    dump = states
    if order == PERMUTED:
        dump = states[torch.from_numpy(np.roll(np.arange(WINDOWS), 3))]
    for shift, name in SHIFTED.items():
        if order == name:
            dump = states.roll(-shift, dims=1)
    dump = dump * scale / (dump.abs().amax() if precision.startswith("float8") else 1)
    rounded = dump.to(getattr(torch, precision)).float()
    return rounded, order, precision


def verified(rows, states):
    layout = Layout.of([LENGTH] * WINDOWS)
    flat = rows.flatten(0, 1).double()
    matches = [
        match_of(site, flat, own.flatten(0, 1).double(), layout) for site, own in states.items()
    ]
    return min(matches, key=lambda match: (match.verdict == "foreign", match.residual))


def test_planted_faults_are_found_in_20_of_20(read):
    _, states = read
    for seed in range(20):
        site = SITES[seed % len(SITES)]
        rows, order, precision = planted(states[site], seed)
        best = verified(rows, states)
        assert (best.site, best.order) == (site, order), seed
        assert best.verdict in ("own", "related"), seed
        assert precision_of(rows.flatten(0, 1).double()) == precision, seed


def test_what_is_not_the_models_is_foreign_in_20_of_20(read):
    """States of another model on the same tokens, and noise with the mean and covariance of the
    model's states.
    """
    ids, states = read
    other = Lens.load("gpt-headless").run(ids, sites=list(SITES))
    for seed in range(20):
        site = SITES[seed % len(SITES)]
        if seed % 2:
            rows = other[site]
        else:
            flat = states[site].flatten(0, 1)
            generator = torch.Generator().manual_seed(seed)
            mixing = torch.randn(len(flat), len(flat), generator=generator) / len(flat) ** 0.5
            rows = flat.mean(0) + (mixing @ (flat - flat.mean(0))).reshape(states[site].shape)
        assert verified(rows, states).verdict == "foreign", seed


def test_the_verb_says_it(read, tmp_path):
    ids, states = read
    dump = tmp_path / "dump.npz"
    stored = {"layer": states["block.1"].half().numpy(), "token_ids": ids.numpy()}
    np.savez(dump, **stored)
    result = headscan.states.run("gpt-vanilla", verify=str(dump), out=tmp_path / "out")
    (row,) = result.rows
    assert (row["nearest"], row["order"], row["verdict"]) == ("block.1", "as the tokens", "own")
    assert row["scale"] == pytest.approx(1, abs=1e-3)
    assert "are those of gpt-vanilla" in result.sentence
    assert "block.1" in (tmp_path / "out" / "report.html").read_text()
    foreign = headscan.states.run("gpt-headless", verify=str(dump))
    assert "are not those of gpt-headless" in foreign.sentence
    np.savez(dump, layer=stored["layer"])
    with pytest.raises(BadInput, match="holds no token ids"):
        headscan.states.run("gpt-vanilla", verify=str(dump))
    with pytest.raises(BadInput, match="--text is not used with --verify"):
        headscan.states.run("gpt-vanilla", "stories", verify=str(dump))
