"""Defences side by side, what they do at work, and attacks on what they leave."""

import pytest
import torch

from headscan.inversion import exact
from headscan.leaks import MECHANISMS, Mapped, privacy, working
from headscan.model.slicing import Slice
from tests.leaks.test_privacy import TEXT, lens

__all__ = ["lens"]


def test_all_defences_stand_on_one_frontier(lens, tmp_path):
    result = privacy(
        lens,
        TEXT,
        sites="block.1",
        windows=1,
        length=3,
        noise=(0.8,),
        draws=16,
        defence="all",
        out=tmp_path,
    )
    assert [row.defence for row in result.rows] == ["none", *MECHANISMS.names()]
    plain = result.rows[0]
    for row in result.rows:
        slack = 4 * row.bits_truth_error + 1e-9
        assert row.bits_lower - slack <= row.bits_truth <= row.bits_upper + slack, row.defence
        assert row.bits_upper <= row.prior_bits + 1e-9
        assert row.loss_added is not None
    named = {row.defence: row for row in result.rows}
    assert named["rotation"].bits_upper == pytest.approx(plain.bits_upper, abs=1e-3)
    assert named["projection"].bits_truth < plain.bits_truth
    page = (tmp_path / "report.html").read_text()
    assert "Defences on one frontier" in page
    assert "and the model loses" in page


def test_the_model_goes_on_with_what_a_defence_leaves(lens):
    fitted = MECHANISMS["projection"]().fit(torch.randn(9, 32), 0)
    change = working(fitted.release, fitted.restore, 0.0, torch.Generator())
    with lens.patch({"block.1": change}):
        left = lens.run([[1, 2, 3]], sites="block.1")["block.1"][0]
    assert torch.allclose(fitted.restore(fitted.release(left)), left, atol=1e-5)


def test_states_with_permuted_coordinates_give_the_text_back(lens):
    ids = torch.tensor([list(b"My key")])
    cut = Slice(sites=("block.1",)).on(lens)
    states = cut.run(ids)[0]
    secret = torch.stack([state[torch.randperm(32)] for state in states])
    ordered = Mapped(cut, lambda x: x.sort(-1).values, "sorted")
    assert exact(ordered, [secret.sort(-1).values])[0].tokens == ids[0].tolist()


@pytest.mark.parametrize("defence", ["sparsification", "rounding", "permutation"])
def test_a_split_that_is_quantised_or_sparse_gives_the_text_back(lens, defence):
    row = privacy(
        lens, TEXT, sites="block.0", windows=1, length=5, noise=(0,), defence=defence
    ).rows[0]
    assert row.attack_accuracy == 1
    assert (row.bits_lower is not None) is (defence == "rounding")
