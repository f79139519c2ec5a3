"""Five numbers of the ledger come out the same by code that shares nothing with it

Each is measured once more on a folder with a real model, by a few lines of transformers and numpy
alone: own texts, own draws, own formulas. What the ledger says of the same model is held against it
(`headscan reproduce S1 S2 S4 P2 P4 --on MODEL`).

    python benchmarks/five_numbers_of_the_ledger_by_hand.py MODEL TEXT
"""

from __future__ import annotations

import argparse
import itertools
import math
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

ROWS = 60
WINDOW = 32


def cosines(rows: np.ndarray) -> np.ndarray:
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit @ unit.T


def off_diagonal_mean(square: np.ndarray) -> float:
    return float((square.sum() - np.trace(square)) / (len(square) * (len(square) - 1)))


def first_share(rows: np.ndarray) -> float:
    energies = np.linalg.eigvalsh(rows.T @ rows)
    return float(energies[-1] / energies.sum())


def entropy(probabilities: list[float]) -> float:
    """Return the entropy of a distribution in nats."""
    return -sum(p * math.log(p) for p in probabilities if p > 0)


@torch.no_grad()
def measured(folder: str, text: str) -> list[tuple[str, float, bool]]:
    """Return statement and number, value, and whether the statement is supported."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(text, return_tensors="pt").input_ids[0, 1 : 1 + ROWS * WINDOW].view(-1, WINDOW)
    hidden = model(ids, output_hidden_states=True).hidden_states
    last = hidden[-1][:, :-1].flatten(0, 1).double().numpy()
    head = model.get_output_embeddings().weight.double().numpy()
    rng = np.random.default_rng(0)
    verdicts = []

    cone = off_diagonal_mean(cosines(last))
    verdicts.append(("S1 average cosine of the last states, at least 0.2", cone, cone >= 0.2))
    ratio = first_share(last) / first_share(rng.standard_normal(last.shape))
    verdicts.append(("S2 first direction over a Gaussian cloud's, at least 2", ratio, ratio >= 2))
    invariant = head - head.mean(0)
    pushed = float(((invariant @ last.T < 0).mean(1) > 0.5).mean())
    name = "S4 words pushed away, the rows' mean taken out, at least 0.6"
    verdicts.append((name, pushed, pushed >= 0.6))
    # P4: supports of three tokens have at most log 3 of entropy; printed: 1.6597.
    grid = itertools.product(np.arange(0.01, 0.5, 0.01), repeat=2)
    most = max(entropy([a, b, 1 - a - b]) for a, b in grid)
    verdicts.append(("P4 most entropy of three tokens, 1.6597 printed", most, most >= 1.6597))
    # P2 at V = 6, k = 2: centred 0/1 supports of all pairs, words and contexts by the symmetric
    # factors of their matrix.
    supports = np.zeros((15, 6))
    for row, pair in enumerate(itertools.combinations(range(6), 2)):
        supports[row, list(pair)] = 1
    centred = supports - supports.mean(1, keepdims=True)
    left, sizes, right = np.linalg.svd(centred, full_matrices=False)
    contexts = left * np.sqrt(sizes)
    word_vectors = right.T * np.sqrt(sizes)
    inside = float(
        contexts[0]
        @ word_vectors[0]
        / np.linalg.norm(contexts[0])
        / np.linalg.norm(word_vectors[0])
    )
    printed = math.sqrt(5 / (2 * 4))
    verdicts.append(
        (
            f"P2 cosine inside a support, {printed:.4f} printed",
            inside,
            abs(inside - printed) < 1e-6,
        )
    )
    return verdicts


def main() -> None:
    """Print the five."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("text", type=Path)
    options = parser.parse_args()
    for claim, value, holds in measured(
        options.model, options.text.read_text(encoding="utf-8")[:20000]
    ):
        print(f"{claim}: {value:.4g}, {'supported' if holds else 'not supported'}")


if __name__ == "__main__":
    main()
