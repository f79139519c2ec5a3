"""Defences side by side, what they do at work, and attacks on what they leave."""

from __future__ import annotations

import pytest
import torch

from headscan.inversion import exact
from headscan.leaks import MECHANISMS, Mapped, applied, privacy
from headscan.leaks.blind import unshuffle
from headscan.leaks.mechanism import working
from headscan.leaks.mechanisms import DroppingTokens
from headscan.model.slicing import Slice
from headscan.run import BadInput
from tests.leaks.test_privacy import TEXT, lens

__all__ = ["lens"]


def test_all_defences_stand_on_one_frontier(lens, tmp_path):
    result = privacy(
        lens, TEXT, sites="block.1", windows=1, length=3, noise=(0.8,), particles=0, others=0, draws=16, defence="all",
        out=tmp_path,
    )  # fmt: skip
    assert [row.defence for row in result.rows] == ["none", *MECHANISMS.names()]
    plain = result.rows[0]
    for row in result.rows:
        slack = 4 * row.bits_truth_error + 1e-9
        assert row.bits_lower - slack <= row.bits_truth <= row.bits_upper + slack, row.defence
        assert row.bits_upper <= row.prior_bits + 1e-9
        assert row.loss_added is not None
    named = {row.defence: row for row in result.rows}
    assert named["rotation"].bits_upper == pytest.approx(plain.bits_upper, abs=1e-3)
    assert named["dropping-tokens"].bits_truth < plain.bits_truth
    page = (tmp_path / "report.html").read_text()
    assert "Defences on one frontier" in page
    assert "and the model loses" in page


def test_a_withheld_token_has_no_bits_of_its_own_and_its_mean_is_what_the_model_goes_on_with(lens):
    defence = DroppingTokens(every=1)
    row = privacy(lens, TEXT, sites="block.1", windows=1, length=4, noise=(0, 0.4), particles=0, defence=defence).rows
    assert [one.noise for one in row] == [0.4]  # without noise nothing is searched
    assert row[0].bits_upper == pytest.approx(0, abs=1e-9)
    fitted = defence.fit(torch.randn(9, 32), 0, lens)
    change = working(defence, fitted.seen, fitted.back, fitted.absent, 0.0, torch.Generator())
    with applied(lens, "block.1", change):
        seen = lens.run([[1, 2, 3]], sites="block.1")["block.1"][0]
    assert torch.allclose(seen[1:], fitted.absent.expand(2, -1))


def test_states_with_permuted_coordinates_or_tokens_give_the_text_back(lens):
    ids = torch.tensor([list(b"My key")])
    cut = Slice(sites=("block.1",)).on(lens)
    states = cut.run(ids)[0]
    secret = torch.stack([state[torch.randperm(32)] for state in states])
    ordered = Mapped(cut, lambda x: x.sort(-1).values, "sorted")
    assert exact(ordered, [secret.sort(-1).values])[0].tokens == ids[0].tolist()
    order = torch.randperm(len(states))
    found = unshuffle(ordered, secret[order].sort(-1).values)
    assert found.tokens == ids[0].tolist()
    assert order[found.rows].tolist() == list(range(6))


@pytest.mark.parametrize("defence", ["sparsification", "rounding", "permutation"])
def test_a_split_that_is_quantised_or_sparse_gives_the_text_back(lens, defence):
    row = privacy(lens, TEXT, sites="block.0", windows=1, length=5, noise=(0,), particles=0, defence=defence).rows[0]
    assert row.attack_accuracy == 1
    assert (row.bits_lower is not None) is (defence == "rounding")


def test_the_noise_of_states_from_outside_is_estimated_with_the_tokens_and_without(lens):
    ids = torch.tensor([list(TEXT[0].encode()[:8])])
    states = Slice(sites=("block.1",)).on(lens).run(ids)[0]
    sigma = 0.2 * float(states[1:].var(0).mean().sqrt())
    seen = states + sigma * torch.randn(states.shape, generator=torch.Generator().manual_seed(0))
    result = privacy(lens, TEXT, sites="block.1", states=seen, particles=0, prior="uniform", others=0, draws=8)
    found = result.outside
    assert found.sigma_interval[0] <= sigma <= found.sigma_interval[1]
    assert found.sigma_read == pytest.approx(sigma, rel=0.1)
    assert found.accuracy == 1
    assert abs(found.kurtosis) < 1
    assert result.rows[0].noise == pytest.approx(found.noise)
    assert result.rows[0].bits_lower > 0
    with pytest.raises(BadInput, match="are of one site"):
        privacy(lens, TEXT, states=seen)
    with pytest.raises(BadInput, match="the text has 3"):
        privacy(lens, ["abc"], sites="block.1", states=seen)
