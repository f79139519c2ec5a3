"""Claims of later papers, on models where the answer is known: a planted massive activation, equal
token rows, a cut head.
"""

import numpy as np
import pytest
import torch
from headscan_lab.ledger.experiments import later
from headscan_lab.ledger.experiments.later import Collisions, Drift, HeadRank
from headscan_lab.ledger.experiments.massive import MassiveActivations, matrix_entropy
from headscan_lab.ledger.run import reproduce
from headscan_lab.ledger.stand_ins import lens_of

from headscan.model import Lens
from headscan.run import BadInput


def changed(folder, change):
    """The specimen, saved with other weights."""
    lens = Lens.load("gpt-vanilla")
    with torch.no_grad():
        change(lens.model)
    lens.model.save_pretrained(folder)
    lens.tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def massive(tmp_path_factory):
    def plant(model):
        model.transformer.wpe.weight[0, 7] += 3000.0

    return changed(tmp_path_factory.mktemp("massive") / "model", plant)


def test_a_planted_massive_activation_is_what_compresses(massive):
    outcome = MassiveActivations(model=massive, measure="valley").observe(0)
    beside = {estimate.name: estimate.value for estimate in outcome.beside}
    assert outcome.effect.interval[0] > 0.3
    assert abs(outcome.control.value) < 0.02
    assert next(value for name, value in beside.items() if "coordinates set aside" in name) > 0.3
    assert outcome.control.interval[0] >= -1
    assert outcome.control.interval[1] <= 1
    assert sum("loss with" in name for name in beside) == 3
    assert next(value for name, value in beside.items() if "loss with the mean" in name) > 0.5


def test_a_first_token_like_the_others_is_not_called_massive():
    outcome = MassiveActivations(measure="valley").observe(0)
    assert outcome.effect is None
    assert "times as long as the others" in outcome.note


def test_matrix_entropy_is_that_of_the_kernel():
    rows = torch.randn(9, 5, generator=torch.Generator().manual_seed(0))
    kernel = (rows.double() @ rows.double().T).numpy()
    values = np.linalg.eigvalsh(kernel / np.trace(kernel))
    values = values[values > 1e-12]
    assert matrix_entropy(rows) == pytest.approx(
        -(values * np.log(values)).sum() / np.log(5), abs=1e-9
    )


def test_a_cut_head_is_the_best_approximation_of_all_logits(monkeypatch):
    monkeypatch.setattr(later, "ROWS", 2)
    monkeypatch.setattr(later, "LENGTH", 20)
    seed = 7000
    rank = 16
    head = lens_of("specimen").output_embeddings.detach().double()
    fitted = torch.cat(
        [later._before_head("specimen", own_seed)[0] for own_seed in later.own_seeds(7)]
    ).double()
    full_logits = fitted @ head.T
    left, values, right = torch.linalg.svd(full_logits, full_matrices=False)
    best = (left[:, :rank] * values[:rank] @ right[:rank])[: later.ROWS * (later.LENGTH - 1)]
    targets = later._before_head("specimen", seed)[1]
    loss = [
        torch.nn.functional.cross_entropy(logits[: len(targets)], targets)
        for logits in (best, full_logits)
    ]
    assert later.loss_by_rank("specimen", seed, rank) == pytest.approx(
        float(loss[0] - loss[1]), abs=2e-3
    )
    assert HeadRank(measure="loss", rank=16).observe(7).effect.value > 0.1
    assert "not more than 512" in HeadRank(measure="loss").observe(0).note


def test_tokens_with_equal_rows_collide(tmp_path, monkeypatch):
    def equal(model):
        model.transformer.wte.weight[1::2] = model.transformer.wte.weight[::2]

    twin = changed(tmp_path / "twin", equal)
    monkeypatch.setattr(later, "COLLIDING", 600)
    monkeypatch.setattr(later, "TOKENS", 1)
    ids = torch.randint(4096, (600, 1), generator=torch.Generator().manual_seed(9)).unique()
    same = (
        torch.tensor([int((ids // 2 == token_id // 2).sum()) > 1 for token_id in ids])
        .double()
        .mean()
    )
    assert same > 0.05
    assert later.margins(twin, 9, 0)[0] == pytest.approx(float(same))
    assert later.margins("specimen", 9, 0)[0] == 0


def test_distances_are_those_of_loops(monkeypatch):
    monkeypatch.setattr(later, "COLLIDING", 40)
    assert Collisions().observe(5).effect.value == 0
    lens = lens_of("specimen")
    drawing = torch.Generator().manual_seed(3)
    ids = torch.randint(
        lens.vocabulary_size, (later.COLLIDING, later.TOKENS), generator=drawing
    ).unique(dim=0)
    states = (
        torch.cat([lens.run(token_id[None], sites="block.2")["block.2"][:, -1] for token_id in ids])
        .double()
        .numpy()
    )
    least = min(
        np.linalg.norm(states[i] - states[j]) / int((ids[i] != ids[j]).sum())
        for i in range(len(ids))
        for j in range(i)
    )
    assert later.margins("specimen", 3, 0)[1] == pytest.approx(least, rel=1e-4)


def test_an_untrained_attention_makes_vectors_alike_and_words_are_asked_for_characters():
    assert Drift(measure="untrained").observe(0).effect.interval[0] > 0.05
    assert "no model of characters" in Drift(measure="characters").observe(0).note


def test_a_paper_has_claims_and_a_figure(tmp_path):
    result = reproduce(paper="2603.10145", on="gpt-vanilla", out=tmp_path / "out")
    assert [row.id for row in result.claims] == [521]
    assert result.claims[0].trials[0].effect == result.claims[0].effect
    assert [curve.name for curve in result.figures[0].curves] == ["gpt-vanilla", "gpt-vanilla"]
    assert "Share of the gradient" in (tmp_path / "out" / "report.html").read_text()
    for options, message in (
        ({"paper": "9999.1"}, "there are: 2404.07647"),
        ({"paper": "2603.10145", "claims": "7"}, "CLAIM and --figures"),
    ):
        with pytest.raises(BadInput, match=message):
            reproduce(**options)
