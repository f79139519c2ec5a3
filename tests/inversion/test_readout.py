"""The readout, and the model's prior along a draft."""

import pytest
import torch

from headscan.inversion import readout_fit
from headscan.inversion.left_to_right import Search, exact
from headscan.inversion.readout import ReadoutSums
from headscan.inversion.readout_fit import readouts_of
from headscan.inversion.token_scores import TokenScores, prior_pays
from headscan.model.slicing import Slice
from headscan.run import BadInput
from tests.inversion.conftest import build


@pytest.fixture
def small_fit(monkeypatch, tmp_path):
    monkeypatch.setattr(readout_fit, "WINDOWS", 512)
    monkeypatch.setattr(readout_fit, "LONE", 256)
    monkeypatch.setenv("HEADSCAN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_streamed_fit_equals_the_plain_one():
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(40, 6, generator=generator)
    tokens = torch.randint(0, 40, (400,), generator=generator)
    outputs = (
        table[tokens] @ torch.randn(6, 9, generator=generator)
        + 0.3 * torch.randn(400, 9, generator=generator)
        + 7
    )
    moments = ReadoutSums(9)
    for part in range(0, 400, 100):
        moments.update(table[tokens[part : part + 100]], outputs[part : part + 100])
    readout = moments.solve(table)
    x = table[tokens].double()
    h = outputs.double()
    xc = x - x.mean(0)
    hc = h - h.mean(0)
    inputs = xc.T @ xc / 400
    forward = torch.linalg.solve(
        inputs + 0.15 * 6 / 400 * inputs.diagonal().mean() * torch.eye(6), xc.T @ hc / 400
    )
    rest = hc - xc @ forward
    spread = rest.T @ rest / 400
    spread = spread + torch.diag(
        (1e-3 + 9 / 3200) * spread.diagonal() + 1e-12 * (hc.T @ hc / 400).diagonal().mean()
    )
    factor = torch.linalg.inv(spread)
    predicted = (table.double() - x.mean(0)) @ forward
    along = (hc[:5] @ factor @ predicted.T) / ((predicted @ factor) * predicted).sum(1).sqrt()
    assert torch.allclose(readout.scores(table, outputs[:5]).double(), along, rtol=1e-3, atol=1e-3)
    apart = predicted - predicted[3]
    squares = ((apart @ factor) * apart).sum(1)
    found = readout.distances(table, torch.tensor([3]))[0].double()
    torch.testing.assert_close(found - found[3], squares, rtol=1e-3, atol=1e-2)


def test_the_true_token_stands_among_the_first_also_where_the_fit_never_saw_it(small_fit):
    lens = build("llama", vocabulary=4000, seed=4)
    cut = Slice(sites=("block.1",)).on(lens)
    ids = torch.randint(0, 4000, (2, 8), generator=torch.Generator().manual_seed(9))
    found = exact(cut, list(cut.run(ids)), Search(order="readout"))
    assert [one.tokens for one in found] == ids.tolist()
    counts = [count for one in found for count in one.evaluations]
    assert sorted(counts)[len(counts) // 2] == 16  # half of the vocabulary would be 2,000


def test_large_vocabularies_never_build_the_table(small_fit, monkeypatch):
    monkeypatch.setattr(
        "headscan.inversion.left_to_right.table_of",
        lambda *_, **__: pytest.fail("the table was built"),
    )
    lens = build("llama", vocabulary=40_000, width=8, depth=1)
    cut = Slice(sites=("embedding",)).on(lens)
    assert exact(cut, [cut.run([[39_999, 5]])[0]])[0].tokens == [39_999, 5]


def test_what_was_fitted_is_read_again_unless_anything_changed(small_fit, ids):
    cut = Slice().on(build("gpt2"))
    first = readouts_of(cut)
    again = readouts_of(Slice().on(build("gpt2")))
    assert first.passes > 0 == again.passes
    assert torch.equal(first.later.filter, again.later.filter)
    assert readouts_of(Slice(sites=("block.1",)).on(build("gpt2"))).passes > 0
    assert readouts_of(Slice().on(build("gpt2", seed=1))).passes > 0
    (path, *_) = sorted((small_fit / "readouts").glob("*"), key=lambda one: one.stat().st_mtime)
    path.write_bytes(path.read_bytes()[:200])  # torn: fitted again
    assert readouts_of(Slice().on(build("gpt2"))).passes > 0


def test_the_prior_along_a_draft_is_that_of_the_tokens_found(small_fit, gpt2, ids):
    cut = Slice(sites=("block.1",)).on(gpt2)
    assert prior_pays(cut)
    assert not prior_pays(Slice(embedding="random:0", sites=("block.1",)).on(gpt2))
    outlook = TokenScores(cut, readouts_of(cut), cut.run(ids)[0], [], prior=True)
    row = ids[0].tolist()
    for place in range(len(row)):
        outlook.scores(row[:place])
        if place:
            said = gpt2.run(ids[:1, :place], sites="head")["head"][0, -1].softmax(-1)
            torch.testing.assert_close(
                outlook._nats[place], (0.9 * said + 0.1 / len(said)).log(), atol=1e-4, rtol=1e-4
            )


def test_rounding_costs_the_vocabulary_once_and_nothing_where_the_token_stands_alone(
    small_fit,
):
    cut = Slice(sites=("block.1",)).on(build("llama", vocabulary=4000, seed=4))
    target = cut.run([[17, 2900, 5]])[0]
    moved = target.norm(dim=1, keepdim=True) * torch.nn.functional.normalize(
        torch.ones_like(target)
    )
    beyond = exact(cut, [target + 1e-5 * moved], Search(order="readout", neighbours=0))[0]
    within = exact(
        cut,
        [target + 4e-3 * moved],
        Search(order="readout", neighbours=0),
        tolerance=2e-2,
        certain=2e-3,
    )[0]
    assert beyond.tokens == within.tokens == [17, 2900, 5]
    assert (beyond.evaluations, within.evaluations) == ([4000, 1024, 1024], [16, 16, 16])


def test_a_prior_that_misleads_hides_no_token_that_tried_ones_tell_of(small_fit, monkeypatch):
    """The prior puts the token last of 4,000: it comes in the second batch, by what the first gave;
    all come, none twice.
    """
    cut = Slice(sites=("block.1",)).on(build("llama", vocabulary=4000, seed=4))
    goals = cut.run([[17, 2900, 5]])[0]
    scores = TokenScores(cut, readouts_of(cut), goals, [])
    misled = torch.arange(4000, 0, -1).float()
    misled[2900] = -1.0
    monkeypatch.setattr(scores, "scores", lambda found: misled.clone())
    order = scores.ranking([17])
    batches = [order.next(16)]
    outputs = torch.cat([cut.run([[17, token]])[0][1:] for token in batches[0].tolist()])
    order.learn(
        torch.tensor([3]), torch.full_like(outputs[:1], float("nan"))
    )  # what is no number teaches nothing
    order.learn(batches[0], outputs)
    batches.append(order.next(64))
    assert batches[0].tolist() == list(range(16))
    assert {2900, 16, 17, 18} <= set(batches[1].tolist())
    batches += [order.next(512) for _ in range(9)]
    assert sorted(torch.cat(batches).tolist()) == list(range(4000))
    assert len(order.next(512)) == 0


def test_a_model_that_overflows_is_told_in_a_sentence():
    lens = build("gpt2", vocabulary=50, width=16, depth=1)
    for parameter in lens.model.parameters():
        parameter.data *= 1e38
    with pytest.raises(BadInput, match=r"no finite number at block\.0"):
        readouts_of(Slice(sites=("block.0",)).on(lens))
