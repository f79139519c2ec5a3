"""Attacks by name and the defences that stop them; KV-Cloak; margins; inversion by queries."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from headscan.leaks import MECHANISMS, privacy
from headscan.leaks.cache_attacks import longest_common
from headscan.leaks.channels import sites_of
from headscan.leaks.margins import collisions, nearest_of
from headscan.leaks.number_formats import read_format
from headscan.leaks.plan import plan_of
from headscan.leaks.policy import read_policy
from headscan.leaks.query_inversion import QueryInversion, recovered
from headscan.leaks.verdict import judge
from headscan.model import Lens
from headscan.model.slicing.cache_slice import cache_slice
from headscan.run import BadInput, Run
from tests.leaks.conftest import settings
from tests.leaks.test_policy import TEXT, written
from tests.leaks.test_privacy import lens

__all__ = ["lens"]


@pytest.mark.parametrize("tokens", [16, 21, 40, 5])
def test_kv_cloak_is_taken_back_and_hides_all_but_singular_values(tokens):
    rows = torch.randn(tokens, 64, dtype=torch.float64)
    for parameters in (
        {},
        {"mask": 0.0},
        {"rotate": False, "mask": 0.0},
        {"block": 1, "mask": 0.0},
    ):
        defence = MECHANISMS["kv-cloak"](**{"block": 8, "width": 16} | parameters)
        stored, back = defence.cloaked(rows, torch.Generator().manual_seed(0))
        assert torch.allclose(back(stored), rows, atol=1e-10)
        assert stored.shape == rows.shape
        if defence.mask == 0:  # orthogonal maps from both sides, as numpy has it
            for head in range(4):
                for start in range(0, tokens - defence.block + 1, defence.block):
                    block = slice(start, start + defence.block), slice(16 * head, 16 * head + 16)
                    one, other = (
                        np.linalg.svd(part[block].numpy(), compute_uv=False)
                        for part in (rows, stored)
                    )
                    assert np.allclose(one, other)
        if defence.block == 1:
            norms = [part.unflatten(1, (4, 16)).norm(dim=-1) for part in (rows, stored)]
            assert torch.allclose(*norms)
        if defence.rotate:
            assert (stored - rows).norm() > rows.norm()


def test_which_defence_stops_which_attack(lens):
    result = privacy(
        lens,
        TEXT,
        release="cache",
        sites="block.*",
        windows=2,
        length=9,
        noise=(0,),
        candidates=256,
        defence="permutation,kv-cloak:width=16,block=4",
        test="attacks:instruction=again",
    )
    read = {(row.defence, row.setting, row.site): row.value for row in result.trials}
    exact = {(row.defence, row.site): row.text_accuracy for row in result.rows}
    assert read["none", "collision", "block.0"] == read["none", "collision", "block.1"] == 1
    assert (
        read["none", "inversion", "block.0"] > 0.6
    )  # learned positions are added to what is solved for
    for defence in ("permutation", "kv-cloak"):
        for attack in ("collision", "inversion"):
            assert read[defence, attack, "block.1"] < 0.3, (defence, attack)
    # Search by sorted numbers reads through a permutation, and whoever has KV-Cloak's secrets
    # through it.
    assert (
        exact["none", "block.0"]
        == exact["permutation", "block.0"]
        == exact["kv-cloak", "block.0"]
        == 1
    )
    assert all(row.interval[0] <= row.value <= row.interval[1] for row in result.trials)
    assert longest_common([1, 2, 3, 4], [9, 1, 3, 9, 4]) == 3


def test_of_a_deep_model_the_attacks_by_name_read_fewer_windows_and_say_so(
    lens, monkeypatch, tmp_path
):
    monkeypatch.setattr("headscan.leaks.channels.MANY", 1)
    given = {
        "release": "cache",
        "sites": "block.0",
        "length": 5,
        "noise": (0,),
        "draws": 2,
        "test": "attacks",
    }
    for more, windows in (({}, 2), ({"candidates": 256}, 4)):
        result = privacy(lens, TEXT, windows=4, out=tmp_path / str(windows), **given, **more)
        assert {row.count for row in result.trials} == {windows * 4}
        assert all(("of 2 windows" in row.note) is (windows == 2) for row in result.trials)


def test_a_policy_counts_no_secrets_against_a_keyed_defence(lens, tmp_path):
    release = 'what = "cache"\nsites = "block.1"\ndefence = "kv-cloak:width=16,block=4"'
    limits = {"mean_bits": 1.0, "tokens_read": 0.6}
    file = written(tmp_path, release, limits, noise=0, windows=4, more='shown_by = "tests"')
    file.write_text(file.read_text().replace("length = 3", "length = 9"))
    result = privacy(lens, TEXT, policy=file)
    policy = read_policy(file)
    assert [row.verdict for row in result.limits] == ["cannot be shown", "pass"]
    proof = replace(policy, evidence=policy.evidence.but(shown_by="proof"))
    assert [row.verdict for row in judge(proof, result.rows, result.trials)] == [
        "cannot be shown"
    ] * 2


def test_margins_are_those_of_all_pairs(lens):
    ids = torch.randint(0, 9, (12, 4)).unique(dim=0)
    states = torch.randn(len(ids), 5)
    margin, ratio = nearest_of(states, ids)
    for i, row in enumerate(ids):
        away = [
            (float((states[i] - states[j]).norm()), int((row != other).sum()) / 4)
            for j, other in enumerate(ids)
            if j != i
        ]
        assert float(margin[i]) == pytest.approx(min(far for far, _ in away), rel=1e-5)
        assert float(ratio[i]) == pytest.approx(min(far / apart for far, apart in away), rel=1e-5)
    rows = privacy(
        lens,
        TEXT,
        sites="block.1",
        windows=1,
        length=5,
        noise=(500,),
        prior="text",
        test="margins:prompts=25",
    ).trials
    told = {(row.setting, row.quantity): row for row in rows}
    assert told["fp32", "prompts with a twin"].value == 0 < told["least", "margin"].value
    assert (
        told["least", "margin"].value
        <= told["5 % quantile", "margin"].value
        <= told["5 % quantile", "margin"].interval[1]
    )
    shares = [told[form, "prompts with a twin"] for form in ("fp32", "bf16", "int8", "int4")]
    assert all(0 <= row.interval[0] <= row.value <= row.interval[1] <= 1 for row in shares)
    with pytest.raises(BadInput, match="need 20 prompts"):
        privacy(
            lens, [TEXT[0][:40]], sites="block.1", windows=1, length=5, noise=(500,), test="margins"
        )


@pytest.mark.parametrize(
    "rows",
    [
        torch.ones(6, 4),
        torch.eye(6),
        torch.tensor([[0.0, 1e-4, 1], [0, 0, 1], [0, 9, 1], [5, 0, 1]]),
    ],
)
def test_collisions_are_counted_pair_by_pair(rows):
    for form in ("fp32", "bf16", "int8", "int4"):
        held = read_format(form)(rows)
        alike = [
            any(bool((held[i] == held[j]).all()) for j in range(len(held)) if j != i)
            for i in range(len(held))
        ]
        share, (low, high) = collisions(rows, form)
        assert share == sum(alike) / len(rows)
        assert 0 <= low <= share <= high <= 1


def test_several_defences_take_fewer_sites_and_candidates_and_say_so(monkeypatch):
    lens = Lens.load("gpt-vanilla")
    told = []
    monkeypatch.setattr("headscan.leaks.channels.MANY", 2)
    monkeypatch.setattr("headscan.leaks.plan.LIMIT", 2e9)
    states = settings()
    one = settings(release="cache")
    two = settings(release="cache", defence="permutation,rounding")
    found = [sites_of(lens, each) for each in (states, one, two)]
    assert found == [("block.0", "block.2", "block.4"), ("block.0", "block.2"), ("block.0",)]
    cut = cache_slice(lens, [2])
    texts = [list(range(400))]
    for each in (one, two):
        run = Run.quiet()
        monkeypatch.setattr(type(run), "announce", lambda self, note: told.append(note))
        told.append(plan_of(cut, texts, each, run, sites=2))
    assert told[3].candidates < told[1].candidates
    assert "sites: 2 (--windows, --candidates, --sites)" in told[0]
    assert "sites: 2, defences beside none: 2 (--windows, --candidates, --sites)" in told[2]


def test_words_of_an_embedding_are_found_by_queries():
    """An encoder that nobody has the weights of: means of words' random vectors."""
    generator = torch.Generator().manual_seed(0)
    vectors = {}

    def encode(texts):
        for word in sorted({word for text in texts for word in text.split()}):
            vectors.setdefault(word, torch.randn(48, generator=generator))
        rows = [
            sum((vectors[word] for word in text.split()), torch.full((48,), 1e-3)) for text in texts
        ]
        return torch.nn.functional.normalize(torch.stack(rows), dim=1)

    attack = QueryInversion(encode, Lens.load("gpt-vanilla"), length=8)
    assert len(attack.words) > 100
    said = [" ".join(attack.words[start:300:50][:5]) for start in (7, 11)]
    found = [attack(target) for target in encode(said)]
    for text, truth in zip(found, said, strict=True):  # (twice the words have the same mean)
        assert len({*text.split()} & {*truth.split()}) >= 4, text
    assert attack.queries > 1000
    numbers = {word: place for place, word in enumerate(vectors)}
    ids = [[numbers[word] for word in text.split()] for text in said]
    others = [[numbers[word] for word in text.split()] for text in found]
    rows = recovered("beam", ids, others, encode(said), encode(found), attack.queries)
    told = {row.quantity: row.value for row in rows}
    assert told["tokens read"] >= 0.8 > 0.5 > told["tokens shared"]
    assert told["cosine of meanings"] > 0.9 > told["cosine"]
