"""What a certificate says, and that it is so: by brute force over whole prompts, and against
hand-made cases.
"""

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from headscan.inversion import Exact, Joint, invert
from headscan.inversion.comparisons import (
    bound,
    compare,
    gives_vectors,
    multiplications,
    near_rows,
)
from headscan.inversion.reconstruction import FACTOR, accepted, noise_floor
from headscan.model import Lens
from headscan.model.slicing import Slice
from headscan.run import BadInput
from tests.inversion.conftest import build

UNIQUE = "recovered and unique"
TRIED = "recovered, unique among those tried"


def test_an_exhaustive_certificate_speaks_of_every_prompt_of_the_length():
    lens = build("gpt2", vocabulary=40, width=16, depth=2, seed=1)
    entry = invert(lens, [7, 31], at="block.1").prompts[0]
    assert (entry.verdict, entry.certificate.type) == (UNIQUE, "exhaustive")
    assert entry.certificate.compared == [40, 40]
    cut = Slice(sites=("block.1",)).on(lens)
    target = cut.run([[7, 31]])
    pairs = torch.cartesian_prod(torch.arange(40), torch.arange(40))
    away = ((cut.run(pairs) - target).norm(dim=-1) / target.norm(dim=-1)).amax(1)
    assert pairs[away <= entry.certificate.tolerance].tolist() == [[7, 31]]
    # The margins are those of brute force, each under the prefix.
    first = (
        (cut.run(torch.arange(40)[:, None])[:, 0] - target[0, 0]).norm(dim=-1) / target[0, 0].norm()
    ).sort()
    assert entry.certificate.margins[0] == pytest.approx(float(first.values[1]), rel=1e-4)
    assert entry.certificate.nearest[0] == int(first.indices[1])


def test_words_follow_the_type(gpt2, ids):
    every = invert(gpt2, ids[0], certificate="exhaustive").prompts[0]
    assert "unique among all 120 tokens at each position: every other was run" in every.certified
    some = invert(gpt2, ids[0], certificate="sampled").prompts[0]
    assert (some.verdict, some.certificate.type) == (TRIED, "sampled")
    assert set(some.verdicts) == {TRIED}
    assert some.certificate.checked.endswith(
        f"{max(some.certificate.compared)} of 120 tokens at each position"
    )
    assert f"no other token that was tried gives it ({some.certificate.checked})" in some.certified
    assert max(some.certificate.compared) < 120


def test_every_token_is_compared_unasked_only_where_that_is_affordable(gpt2, ids, monkeypatch):
    from headscan.inversion import assess

    cut = Slice().on(gpt2)
    block = sum(parameter.numel() for parameter in gpt2.model.transformer.h[0].parameters())
    assert multiplications(cut, 6) == 6 * 120 * (block + 32)
    monkeypatch.setattr(assess, "AFFORDABLE", multiplications(cut, 6))
    assert invert(gpt2, ids[0]).verdict == UNIQUE
    monkeypatch.setattr(assess, "AFFORDABLE", multiplications(cut, 6) - 1)
    assert invert(gpt2, ids[0]).verdict == TRIED
    assert invert(gpt2, ids[0], certificate="exhaustive").verdict == UNIQUE


def test_no_exhaustive_certificate_where_no_position_has_a_prefix(bert, gpt2, ids):
    for lens, at in ((bert, "block.0"), (gpt2, "block.0[:, 1:, :]"), (gpt2, Slice(pool="mean"))):
        with pytest.raises(
            BadInput, match="it needs a causal slice that gives the output of every"
        ):
            invert(lens, ids[0], at=at, certificate="exhaustive", method="joint")


def test_a_tolerance_that_holds_a_second_token_makes_it_ambiguous(gpt2, ids):
    entry = invert(gpt2, ids[0], tolerance=10.0).prompts[0]
    assert entry.verdict == "ambiguous"
    assert entry.recovered == ids[0].tolist()  # the nearest all the same
    assert all(len(equivalent) == 119 for equivalent in entry.certificate.equivalent)
    assert "but other tokens give it, too" in entry.certified


@pytest.mark.parametrize("order", ["table", "readout", "random"])
def test_the_nearest_is_found_in_every_order(order):
    """Rows that differ by a few parts in a million: the first within the tolerance is not the
    nearest.
    """
    lens = build("llama", seed=2)
    table = lens.model.model.embed_tokens.weight.data
    table[20:60] = table[20] + 2e-6 * torch.randn(
        40, 32, generator=torch.Generator().manual_seed(0)
    )
    rows = [[20, 33, 59], [41, 42, 55]]
    for ask in ("auto", "sampled"):
        result = invert(lens, rows, tolerance=1e-2, method=Exact(order=order), certificate=ask)
        assert [one.recovered for one in result.prompts] == rows
        assert result.verdict == "ambiguous"
        assert all(
            len(equivalent) == 39
            for one in result.prompts
            for equivalent in one.certificate.equivalent
        )
        told = invert(lens, rows, method=Exact(order=order), certificate=ask)
        assert [one.recovered for one in told.prompts] == rows


def test_a_bound_says_what_running_every_token_says(llama, gpt2, ids):
    cut = Slice(sites=("embedding",)).on(llama)
    plain = Slice(sites=("block.0",)).on(llama)
    assert gives_vectors(cut)
    assert not gives_vectors(plain)
    assert not gives_vectors(Slice(sites=("embedding",)).on(gpt2))  # positions are added there
    target = cut.run(ids[:1])[0]
    every = [torch.arange(120)] * 6
    for tolerance in (1e-6, 1.3):
        proved = bound(cut, target, ids[0], tolerance=tolerance)
        run = compare(cut, target, ids[0], every, tolerance=tolerance, choice=120)
        for one, other in zip(proved, run, strict=True):
            assert (one.why, other.why, one.count, other.count) == ("bounded", "all", 120, 120)
            assert (one.within, one.token) == (other.within, other.token)
            assert one.runner_up == pytest.approx(other.runner_up, rel=1e-5)
    entry = invert(llama, ids[0], at="embedding").prompts[0]
    assert (entry.verdict, entry.certificate.type) == (UNIQUE, "bounded")
    assert "every other was proved farther by the distance of its vector" in entry.certified


def test_near_rows_are_those_within_five_percent():
    lens = build("gpt2", seed=4)
    table = lens.model.transformer.wte.weight.data
    table[9], table[10] = 1.04 * table[4], 1.06 * table[4]
    found = near_rows(Slice().on(lens), torch.tensor([4, 30]))
    assert [row.tolist() for row in found] == [[9], []]
    assert [len(row) for row in near_rows(Slice().on(lens), torch.tensor([4, 30]), least=5)] == [
        5,
        5,
    ]


def test_the_tolerance_is_measured(gpt2, llama):
    for lens in (gpt2, llama):
        cut = Slice(sites=("block.1",)).on(lens)
        assert accepted(cut) == FACTOR * noise_floor(cut)
        assert 5e-8 < noise_floor(cut) < 2e-6
    half = build("llama")
    half.model.to(torch.bfloat16)
    assert 3e-3 < noise_floor(Slice(sites=("block.1",)).on(half)) < 3e-2


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("exact", "not finite at position 1"),
        (Joint(restarts=1, steps=2, budget=300), "not finite at position 1"),
    ],
)
def test_what_is_not_recovered_says_why(gpt2, method, reason):
    lens = build("gpt2", seed=4)
    lens.model.transformer.wte.weight.data[7] = float("inf")
    entry = invert(lens, [3, 7], at="embedding", method=method).prompts[0]
    assert entry.verdict == "not recovered"
    assert reason in entry.certified
    states = Slice().run(gpt2, [[3, 7]])[0]
    states[1] = states[1].flip(0)
    other = invert(gpt2, states=states).prompts[0]
    assert (
        "none of the 120 tokens gives the output at position 1 (the nearest is" in other.certified
    )


@pytest.mark.parametrize("tolerance", [1e-12, 1e-8, 0.5])
def test_no_tolerance_makes_a_token_with_an_equal_row_unique(tolerance):
    """Below what rounding does a tolerance is refused: two equal rows of the table could be told
    apart by their last bits.
    """
    lens = build("llama", seed=3)
    lens.model.model.embed_tokens.weight.data[21] = lens.model.model.embed_tokens.weight.data[20]
    if tolerance < 1e-6:
        with pytest.raises(
            BadInput, match=r"is less than rounding may do at block\.1: the least is"
        ):
            invert(lens, [[7, 20, 9]], at="block.1", tolerance=tolerance)
    else:
        assert invert(lens, [[7, 20, 9]], at="block.1", tolerance=tolerance).verdict == "ambiguous"


def test_an_unknown_token_is_not_recovered():
    """The id comes back; the text that it stood for was lost before the model saw it."""
    backend = Tokenizer(
        models.WordLevel({"<unk>": 0} | {f"w{k}": k for k in range(1, 120)}, unk_token="<unk>")
    )
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    lens = Lens(build("gpt2").model, tokenizer, name="words")
    entry = invert(lens, "w7 w9 elsewhere w7").prompts[0]
    place = 2
    assert entry.recovered == entry.tokens
    assert (entry.lost, entry.verdict, entry.verdicts[place]) == (
        [place],
        "information absent",
        "information absent",
    )
    assert entry.token_accuracy == 1 - 1 / len(entry.tokens)
    assert not entry.right(place)
    assert "unknown token" in entry.certified
