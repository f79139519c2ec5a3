"""The tools behind the experiments: they find what is there, and say so where it is not."""

from itertools import combinations, pairwise, product

import numpy as np
import torch
from headscan_lab.ledger.experiment import ExperimentOutcome
from headscan_lab.ledger.experiments import geometry
from headscan_lab.ledger.experiments.descents import (
    Recovered,
    allowed_words,
    hits,
    positions,
    search_hidden,
    search_shown,
)
from headscan_lab.ledger.experiments.mixers import SIZE, SLOTS, body, recall
from headscan_lab.ledger.measurement import PROMPTS, share_of
from headscan_lab.ledger.record import recorded
from headscan_lab.ledger.run import all_claims
from headscan_lab.ledger.stand_ins import design, language, lens_of, prompts
from headscan_lab.theory import checks
from headscan_lab.theory.transformer import fit, pyramid
from transformers import LlamaConfig, LlamaForCausalLM

from headscan.inversion import Descent, descend
from headscan.model import Lens
from headscan.model.slicing import Slice


def tiny() -> Lens:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=8,
        bos_token_id=0,
        eos_token_id=0,
    )
    return Lens(LlamaForCausalLM(config), name="tiny")


def test_the_search_finds_hidden_tokens_and_stops_at_a_fit():
    lens = tiny()
    ids = torch.randint(32, (4, 3), generator=torch.Generator().manual_seed(1))
    ready = Slice(tokens="1:").on(lens)
    begin = ids.clone()
    begin[:, 0] = 0
    assert torch.equal(search_hidden(ready, ready.run(ids), begin, None), ids)
    only_itself = allowed_words(32, ids[:, 1:], 0, 0)
    hidden = search_hidden(ready, ready.run(ids), begin, only_itself)
    assert bool(only_itself.gather(1, hidden)[hidden != begin].all())
    # Nothing of a token that no given output sees: the search cannot know it.
    blind = Slice(tokens=":1").on(lens)
    assert not torch.equal(
        search_hidden(blind, blind.run(ids), torch.zeros_like(ids), None)[:, 1:], ids[:, 1:]
    )


def test_a_prompt_is_restricted_to_its_own_words_and_so_many_others():
    ids = torch.tensor([[1, 2, 2], [3, 4, 5]])
    allowed = allowed_words(32, ids, 4, 0)
    assert allowed.sum(1).tolist() == [2 + 4, 3 + 4]
    assert bool(allowed.gather(1, ids).all())
    lens = tiny()
    ready = Slice().on(lens)
    alone = allowed_words(32, ids, 0, 0)
    target = ready.run(ids)
    assert torch.equal(search_shown(ready, target, alone), ids)
    settings = Descent(steps=3, seed=0, check_every=0)
    together = descend(ready, target, 3, settings, allowed=alone)
    for row in range(2):  # a prompt among others is decoded as it is alone
        apart = descend(ready, target[row : row + 1], 3, settings, allowed=alone[row])
        assert torch.equal(together.tokens[row], apart.tokens[0])
        assert set(apart.tokens[0].tolist()) <= set(ids[row].tolist())


def test_what_stays_undecided_is_looked_at_once_more_with_more_prompts(monkeypatch):
    prompt_counts = []

    def observed(experiment, seed):
        prompt_counts.append(experiment.least)
        p = 0.45
        hits = [np.arange(experiment.least * 6).reshape(-1, 6) % 20 < 20 * p for _ in range(5)]
        return ExperimentOutcome(effect=share_of("found", hits))

    monkeypatch.setattr(Recovered, "observe", observed)
    record = recorded(all_claims()[4], 0)
    assert prompt_counts == [PROMPTS, 4 * PROMPTS]
    assert record.prompts == 5 * 4 * PROMPTS
    assert Recovered().closer().closer() is None
    assert Recovered(least=PROMPTS).closer() is not None


def test_what_counts_as_found():
    ready = Slice(tokens="1:").on(tiny())
    assert positions(ready, 3, "hidden") == [0]
    assert positions(ready, 3, "shown") == [1, 2]
    assert positions(ready, 3, "all") == [0, 1, 2]
    ids = torch.tensor([[1, 2, 3]])
    answer = torch.tensor([[2, 1, 3]])
    top = answer[..., None].repeat(1, 1, 5)
    top[0, 0, 4] = 1
    assert hits(answer, top, ids, [0, 1, 2], "all").tolist() == [[0, 0, 1]]
    assert hits(answer, top, ids, [0, 1, 2], "whole").tolist() == [[0]]
    assert hits(answer, top, ids, [0, 1, 2], "set").tolist() == [[1, 1, 1]]
    assert hits(answer, top, ids, [0, 1, 2], "five").tolist() == [[1, 0, 1]]


def test_recall_knows_what_is_there_and_what_is_not():
    model = body("flat", 32, 1)
    ids = language(3, 6, SLOTS)
    recalled = recall(model, first=1, steps=40, ids=ids)
    assert float(recalled.exact.mean()) == 1.0
    # Cut the wire from position 0 to all others: now nothing of it is left, and the search must say
    # so.
    with torch.no_grad():
        for layer in model.layers:
            layer.mixing.weight[1:, 0] = 0
    blind = recall(model, first=1, steps=40, ids=ids)
    assert float(blind.exact.mean()) < 0.5
    assert blind.margin < 1e-6


def test_the_language_is_repeatable_and_sparse():
    ids = language(3, 50, SLOTS)
    assert torch.equal(ids, language(3, 50, SLOTS))
    assert int(ids.max()) < SIZE
    successors: dict[int, set[int]] = {}
    for row in ids.tolist():
        for token, two in pairwise(row):
            successors.setdefault(token, set()).add(two)
    assert max(map(len, successors.values())) <= 8


def test_one_language_has_zipfs_law_and_its_control_has_not():
    for zipf, low, high in ((True, 0.09, 0.12), (False, 0.0, 0.02)):
        ids = language(3, 2000, SLOTS, zipf=zipf)
        assert low < float(torch.bincount(ids.flatten()).max()) / ids.numel() < high


def test_a_trained_stand_in_is_the_shipped_one_wherever_it_runs(monkeypatch):
    """No folder outside the package decides which model it is."""
    monkeypatch.setenv("HEADSCAN_ASSETS", "/nowhere")
    assert lens_of("specimen").name == "gpt-vanilla"
    assert prompts("specimen", 0, 3, 5).shape == (3, 5)


def test_cheap_experiments_say_what_they_rest_on():
    for number in (7, 93, 205, 212):
        outcome = all_claims()[number].experiment.observe(1)
        assert outcome.effect.seeds == 5
        assert outcome.effect.tokens >= 200
        assert outcome.models or number in (205, 212)


def test_a_head_on_every_position_keeps_the_logits_of_those_that_nobody_predicts():
    ids = torch.randint(8192, (4, 128), generator=torch.Generator().manual_seed(0))
    labels = ids.masked_fill(torch.arange(128) % 8 > 0, -100)
    without, everywhere, gathered = geometry._kept(geometry.StepCost()._body(0)[0], ids, labels)
    assert without < gathered < everywhere - 4 * 8192 * int((labels == -100).sum())  # float32


def test_a_step_is_not_weighed_on_a_model_that_is_too_short_for_its_texts():
    assert geometry.StepCost(cost="bytes").on("fresh:gpt2") is None  # 64 positions


def test_the_contexts_of_a_text_are_an_instance_as_drawn_ones_are():
    text = tuple(prompts("specimen", 0, 1, 2000)[0].tolist())
    assert np.allclose(checks.drawn(0, text).prior, 1 / checks.drawn(0, text).contexts)
    # of three tokens, whatever the text
    assert all_claims()[403].experiment.on("gpt-vanilla") is None
    trained = all_claims()[416].experiment
    assert 0 < trained.on("gpt-vanilla").observe(0).effect.value != trained.observe(0).effect.value
    mlp = pyramid(5, 2, 8, 0)
    contexts, labels = checks.text_labels((0, 1, 2, 3, 4) * 20, 2, 5)
    assert (
        fit(mlp, contexts, labels, 0)
        > 1
        > 0.1
        > fit(mlp, contexts, labels, 300, learning_rate=1e-3)
    )


def test_every_two_factors_of_the_family_show_all_pairs_of_their_levels():
    for half in (0, 1):
        members = design(half)
        assert len({member.name for member in members}) == 40
        assert sum(member.seed % 10 > 0 for member in members) == 8
        for first, second in combinations(("width", "depth", "vocabulary", "head", "text"), 2):
            levels = [{getattr(member, name) for member in members} for name in (first, second)]
            assert {(getattr(member, first), getattr(member, second)) for member in members} == set(
                product(*levels)
            )


def test_a_family_that_is_not_there_is_told_and_nothing_steps_in(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADSCAN_CACHE", str(tmp_path))
    outcome = all_claims()[127].experiment.observe(0)
    assert outcome.effect is None
    assert outcome.models == ()
    assert "train_family.py --half 0" in outcome.note
