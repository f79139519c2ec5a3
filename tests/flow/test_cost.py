"""What is tried where the whole vocabulary would take too long, against all of it."""

import numpy as np
import torch

import headscan
from headscan.flow import codebook, recovery, variant
from headscan.flow.cost import affordable, computed_tokens, multiplications
from headscan.flow.influence import near_and_random

IDS = [5, 17, 3, 42, 8]


def test_multiplications_are_those_of_the_matrices_up_to_the_deepest_block(llama):
    block = 4 * 16 * 16 + 3 * 16 * 32
    assert multiplications(llama, ["block.1"]) == 2 * block
    assert multiplications(llama, ["block.0"]) == block
    assert multiplications(llama, ["final_norm", "block.0"]) == 2 * block
    assert affordable(llama, 1e12) == 6


def test_candidates_are_the_nearest_and_others_never_the_token_itself(llama):
    table = llama.input_embeddings.detach()
    candidates = near_and_random(llama, 7, 20, torch.Generator().manual_seed(0)).tolist()
    nearest = (table - table[7]).norm(dim=1).argsort()[1:11].tolist()
    assert candidates[:10] == nearest
    assert len(set(candidates)) == 20
    assert 7 not in candidates


def test_recovery_from_some_candidates_is_an_upper_bound_and_says_so(llama, monkeypatch):
    full = headscan.flow.run(llama, IDS, at="block.1")
    assert full.parts[0].exhaustive
    assert not full.protocol.notes
    monkeypatch.setattr(
        "headscan.flow.cost.CPU_MULTIPLICATIONS", 15 * multiplications(llama, ["block.1"]) * 12
    )
    partial = headscan.flow.run(llama, IDS, at="block.1")
    assert (partial.parts[0].candidates, partial.parts[0].exhaustive) == (12, False)
    assert (partial.arrays["margin"] >= full.arrays["margin"] - 1e-6).all()
    assert "upper bound" in partial.protocol.notes[0]
    # six are drawn: (1 - share)^6 = 0.05
    assert f"{1 - 0.05 ** (1 / 6):.2g}" in partial.protocol.notes[0]
    assert "among the 12 candidates tried" in partial.findings[0].sentence
    assert headscan.flow.run(llama, IDS, at="block.1", candidates=50).parts[0].exhaustive


def test_behind_a_cache_the_same_is_found_for_half_the_tokens(llama, monkeypatch):
    cut = variant("whole", ["block.0", "block.1"])
    assert computed_tokens(llama, cut, 5) == 15
    behind = recovery(llama, cut, [IDS, IDS[::-1]])
    for module in ("influence", "cost"):
        monkeypatch.setattr(f"headscan.flow.{module}.can_continue", lambda cut: False)
    assert computed_tokens(llama, cut, 5) == 25
    full = recovery(llama, cut, [IDS, IDS[::-1]])
    assert (behind.recoverable == full.recoverable).all()
    upper = np.triu_indices(5)
    assert np.allclose(behind.margin[:, *upper], full.margin[:, *upper], rtol=1e-3, atol=1e-6)
    assert (behind.margin[:, *np.tril_indices(5, -1)] == 0).all()
    assert (behind.noise < 1e-5).all()


def test_a_channel_over_budget_draws_tokens_and_says_so(llama, monkeypatch):
    monkeypatch.setattr(
        "headscan.flow.cost.CPU_MULTIPLICATIONS", 80.0 * multiplications(llama, ["block.1"])
    )
    part = headscan.flow.channel(llama, IDS, at="block.1").parts[0]
    assert 2 <= part.vocabulary <= 20
    assert len(part.left_out) == 1


def test_a_code_book_of_some_tokens_has_the_rows_of_the_whole(llama):
    tokens = torch.tensor([3, 21, 49])
    selected = codebook(llama, "block.1", IDS, tokens=tokens, rows=2)
    assert torch.allclose(selected, codebook(llama, "block.1", IDS)[tokens], atol=1e-5)
