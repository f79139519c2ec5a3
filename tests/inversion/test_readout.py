"""The readout, the model's prior along a draft, and searches that go on where they were interrupted."""

from __future__ import annotations

import re

import pytest
import torch
from safetensors import safe_open

from headscan.inversion import readout
from headscan.inversion.candidates import Checkpoint, SearchTrace
from headscan.inversion.language_prior import TokenScores, prior_pays
from headscan.inversion.left_to_right import exact
from headscan.inversion.method import Search
from headscan.inversion.ranking import Ranking
from headscan.inversion.readout import ReadoutSums, fit_together, readouts_of
from headscan.model.slicing import Slice
from headscan.run import BadInput
from headscan.run.parts import Parts
from tests.command_line import headscan as cli
from tests.inversion.conftest import build


@pytest.fixture
def small_fit(monkeypatch, tmp_path):
    monkeypatch.setattr(readout, "WINDOWS", 512)
    monkeypatch.setattr(readout, "LONE", 256)
    monkeypatch.setenv("HEADSCAN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_streamed_fit_equals_the_plain_one():
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(40, 6, generator=generator)
    tokens = torch.randint(0, 40, (400,), generator=generator)
    outputs = (
        table[tokens] @ torch.randn(6, 9, generator=generator) + 0.3 * torch.randn(400, 9, generator=generator) + 7
    )
    moments = ReadoutSums(9)
    for part in range(0, 400, 100):
        moments.update(table[tokens[part : part + 100]], outputs[part : part + 100])
    readout = moments.solve(table)
    x, h = table[tokens].double(), outputs.double()
    xc, hc = x - x.mean(0), h - h.mean(0)
    inputs = xc.T @ xc / 400
    forward = torch.linalg.solve(inputs + 1e-2 * inputs.diagonal().mean() * torch.eye(6), xc.T @ hc / 400)
    rest = hc - xc @ forward
    spread = rest.T @ rest / 400
    spread = spread + torch.diag((1e-3 + 9 / 3200) * spread.diagonal() + 1e-12 * (hc.T @ hc / 400).diagonal().mean())
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


def test_several_slices_are_fitted_in_one_pass_as_each_by_itself(small_fit, monkeypatch):
    sites = ("block.0", "block.1")
    one, other = (build("llama", vocabulary=400, width=16, depth=2, seed=4) for _ in range(2))
    alone = [readouts_of(Slice(sites=(site,)).on(one), keep=False) for site in sites]
    parts = [Slice(sites=(site,)).on(other) for site in sites]
    fit_together(Slice(sites=sites).on(other), parts)
    monkeypatch.setattr(readout, "_fit", lambda *_: pytest.fail("fitted twice"))
    fit_together(Slice(sites=sites).on(other), [Slice(sites=(site,)).on(build("llama", vocabulary=400, width=16, depth=2, seed=4))
                                               for site in sites])  # fmt: skip
    for cut, before in zip(parts, alone, strict=True):
        found = readouts_of(cut)
        for position in (True, False):
            torch.testing.assert_close(found(position).filter, before(position).filter)
            torch.testing.assert_close(found(position).lengths, before(position).lengths)


def test_large_vocabularies_never_build_the_table(small_fit, monkeypatch):
    monkeypatch.setattr(
        "headscan.inversion.left_to_right.table_of", lambda *_, **__: pytest.fail("the table was built")
    )
    lens = build("llama", vocabulary=40_000, width=8, depth=1)
    cut = Slice(sites=("embedding",)).on(lens)
    for order in ("auto", "gradient"):
        found = exact(cut, [cut.run([[39_999, 5]])[0]], Search(order=order))
        assert found[0].tokens == [39_999, 5]


def test_what_was_fitted_is_read_again_unless_anything_changed(small_fit, ids):
    cut = Slice().on(build("gpt2"))
    first = readouts_of(cut)
    again = readouts_of(Slice().on(build("gpt2")))
    assert first.passes > 0 == again.passes
    assert torch.equal(first.later.filter, again.later.filter)
    assert readouts_of(Slice(sites=("block.1",)).on(build("gpt2"))).passes > 0
    assert readouts_of(Slice().on(build("gpt2", seed=1))).passes > 0
    (path, *_) = sorted((small_fit / "readouts").glob("*"), key=lambda one: one.stat().st_mtime)
    with safe_open(path, "pt") as file:
        assert "weights" in file.metadata()["key"]
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
            wanted = gpt2.run(ids[:1, :place], sites="head")["head"][0, -1].log_softmax(-1)
            torch.testing.assert_close(outlook._nats[place], wanted, atol=1e-4, rtol=1e-4)
    other = TokenScores(cut, readouts_of(cut), cut.run(ids)[0], [], prior=True)
    other.restore(row[:5], *outlook.state())
    assert torch.equal(other.scores(row[:5]), outlook.scores(row[:5]))


class _Stop(Exception):
    pass


@pytest.mark.parametrize("order", ["readout", "table", "random"])
def test_an_interrupted_search_goes_on_bit_for_bit(small_fit, tmp_path, monkeypatch, llama, ids, order):
    cut = Slice(sites=("block.1",)).on(llama)
    rows = [ids[0], ids[1, :4], ids[2]]
    targets = [cut.run(row[None])[0] for row in rows]
    whole = exact(cut, targets, Search(order=order))

    def stop(stage, done, total, unit):
        if stage == "exact search" and done >= 9:
            raise _Stop

    with pytest.raises(_Stop):
        exact(cut, targets, Search(order=order), progress=stop, checkpoint=Checkpoint(Parts(tmp_path), "search"))
    searched = []
    monkeypatch.setattr(SearchTrace, "add", lambda *given, add=SearchTrace.add: (searched.append(1), add(*given)))
    again = exact(cut, targets, Search(order=order), checkpoint=Checkpoint(Parts(tmp_path), "search"))
    assert again == whole
    assert len(searched) == sum(map(len, rows)) - 6  # two positions of three prompts were stored
    assert [one.tokens for one in again] == [row.tolist() for row in rows]
    other = "readout" if order != "readout" else "random"
    with pytest.raises(BadInput, match="what orders the candidates"):
        exact(cut, targets, Search(order=other), checkpoint=Checkpoint(Parts(tmp_path), "search"))


def test_the_command_goes_on_and_leaves_the_files_of_an_undisturbed_run(small_fit, tmp_path, monkeypatch):
    build("llama", vocabulary=256, seed=4).model.save_pretrained(tmp_path / "model")
    command = [
        "invert",
        str(tmp_path / "model"),
        "--tokenizer",
        "bytes",
        "--prompt",
        "A cat sat.",
        "--prompt",
        "A dog.",
    ]
    command += ["--at", "block.1", "--method", "exact:order=readout"]

    def run(out, *more):
        return cli(*command, "--out", str(tmp_path / out), *more)

    added, add = [], SearchTrace.add

    def broken(*given):
        added.append(1)
        if len(added) == 9:
            raise KeyboardInterrupt
        add(*given)

    with monkeypatch.context() as patch:
        patch.setattr(Parts, "due", lambda parts: True)
        patch.setattr(SearchTrace, "add", broken)
        assert run("out").status == 130
    with monkeypatch.context() as patch:
        patch.setattr(SearchTrace, "add", lambda *given: (added.append(1), add(*given)))
        assert run("out", "--resume").status == 0
    assert len(added) == 9 + 16 - 8  # of sixteen positions eight were stored before the ninth failed
    assert run("whole").status == 0
    texts = [(tmp_path / name / "result.json").read_text() for name in ("out", "whole")]
    texts = [re.sub(r'"(started|seconds|command)": [^\n]*', "", text) for text in texts]
    assert texts[0] == texts[1]
    files = [sorted(path.name for path in (tmp_path / name).iterdir()) for name in ("out", "whole")]
    assert files[0] == files[1]


def test_rounding_beyond_what_is_certain_does_not_cost_the_vocabulary(small_fit):
    lens = build("llama", vocabulary=4000, seed=4)
    cut = Slice(sites=("block.1",)).on(lens)
    target = cut.run([[17, 2900, 5]])[0]
    noisy = target + 1e-5 * target.norm(dim=1, keepdim=True) * torch.nn.functional.normalize(torch.ones_like(target))
    found = exact(cut, [noisy], Search(order="readout", neighbours=0))
    assert found[0].tokens == [17, 2900, 5]


def test_a_prior_that_misleads_hides_no_token_that_the_readout_sees():
    """The prior puts the token last of 5,000, the readout first: it comes in the second batch; all come, none twice."""
    scores = torch.arange(5000, 0, -1).float()
    order = Ranking(scores, lambda token: scores, alone=torch.arange(5000).float())
    batches = [order.next(size) for size in (16, 64, 256)]
    assert batches[0].tolist() == list(range(16))
    assert batches[1][0] == 4999
    assert {16, 17, 18} <= set(batches[1].tolist())
    batches += [order.next(512) for _ in range(10)]
    assert sorted(torch.cat(batches).tolist()) == list(range(5000))
    assert len(order.next(512)) == 0
