"""Ten verdicts of the ledger come out the same by code that shares nothing with it

Each claim is measured once more on a folder with a real model, by a few lines of transformers and
numpy alone: own texts, own draws, own formulas. The number is compared with the claim's bounds,
which are printed beside it; what the ledger says of the same model is held against that (`headscan
reproduce 7 15 203 204 206 216 304 305 401 403 --on MODEL`).

    python benchmarks/ten_verdicts_of_the_ledger_by_hand.py MODEL TEXT
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


def same_less_other(states: np.ndarray, follows: np.ndarray) -> float:
    square = cosines(states - states.mean(0))
    same = follows[:, None] == follows[None, :]
    return float(square[same & ~np.eye(len(same), dtype=bool)].mean() - square[~same].mean())


def three_dimensions(rows: np.ndarray) -> float:
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    contributions = [off_diagonal_mean(np.outer(column, column)) for column in unit.T]
    return float(np.sort(contributions)[-3:].sum() / np.sum(contributions))


@torch.no_grad()
def entropy(probabilities: list[float]) -> float:
    """Return the entropy of a distribution in nats."""
    return -sum(p * math.log(p) for p in probabilities if p > 0)


def measured(folder: str, text: str) -> list[tuple[str, float, bool]]:
    """(claim and number, value, whether the claim is supported) of ten claims."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(text, return_tensors="pt").input_ids[0, 1 : 1 + ROWS * WINDOW].view(-1, WINDOW)
    hidden = model(ids, output_hidden_states=True).hidden_states
    follows = ids[:, 1:].flatten().numpy()
    last, middle = (
        hidden[k][:, :-1].flatten(0, 1).double().numpy()
        for k in (-1, 1 + model.config.num_hidden_layers // 2)
    )
    table = model.get_input_embeddings().weight.double().numpy()
    head = model.get_output_embeddings().weight.double().numpy()
    rng = np.random.default_rng(0)
    verdicts = []

    cone = off_diagonal_mean(cosines(last))
    verdicts.append(("203 average cosine, at least .2", cone, cone >= 0.2))
    ratio = first_share(last) / first_share(rng.standard_normal(last.shape))
    verdicts.append(("204 first direction over a Gaussian cloud's, at least 2", ratio, ratio >= 2))
    pushed = float(((head @ last.T < 0).mean(1) > 0.5).mean())
    drawn = float(((rng.standard_normal(head.shape) @ last.T < 0).mean(1) > 0.5).mean())
    verdicts.append(
        (
            "206 words pushed away, at least .5, less a random head's above .1",
            pushed,
            pushed >= 0.5 and pushed - drawn > 0.1,
        )
    )
    rows = rng.choice(len(table), min(512, len(table)), replace=False)
    recovered = float(((table[rows] @ np.linalg.pinv(table)).argmax(1) == rows).mean())
    verdicts.append(
        ("7 tokens that the pseudo-inverse takes back, at least .99", recovered, recovered >= 0.99)
    )
    lost = 1 - np.linalg.matrix_rank(table) / len(table)
    verdicts.append(
        ("15 share of R^V that the table takes to zero, at least .01", lost, lost >= 0.01)
    )
    common = float(1 - np.bincount(ids.flatten().numpy()).max() / ids.numel())
    verdicts.append(
        (
            "216 positions where the commonest token is not to be predicted, at least .85",
            common,
            common >= 0.85,
        )
    )
    torch.manual_seed(0)
    fresh = AutoModelForCausalLM.from_config(model.config).eval()
    drawn_states = (
        fresh(ids, output_hidden_states=True)
        .hidden_states[-1][:, :-1]
        .flatten(0, 1)
        .double()
        .numpy()
    )
    close = same_less_other(last, follows)
    chance = same_less_other(drawn_states, follows)
    verdicts.append(
        (
            "304 cosine where one token follows less others, at least .1, random weights below",
            close,
            close >= 0.1 > chance,
        )
    )
    turn = np.linalg.qr(rng.standard_normal((middle.shape[1],) * 2))[0]
    three = three_dimensions(middle)
    turned = three_dimensions(middle @ turn)
    verdicts.append(
        (
            "305 share of the cosine from three dimensions, at least .5, rotated below",
            three,
            three >= 0.5 > turned,
        )
    )
    # 403: supports of three tokens have at most log 3 of entropy; printed: 1.6597.
    grid = itertools.product(np.arange(0.01, 0.5, 0.01), repeat=2)
    most = max(entropy([a, b, 1 - a - b]) for a, b in grid)
    verdicts.append(("403 most entropy of three tokens, 1.6597 printed", most, most >= 1.6597))
    # 401 at V = 6, k = 2: centred 0/1 supports of all pairs, words and contexts by the symmetric
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
            f"401 cosine inside a support, {printed:.4f} printed",
            inside,
            abs(inside - printed) < 1e-6,
        )
    )
    return verdicts


def main() -> None:
    """Print the ten."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("text", type=Path)
    options = parser.parse_args()
    for claim, value, holds in measured(
        options.model, options.text.read_text(encoding="utf-8")[:20000]
    ):
        print(f"{claim}: {value:.4g}, {'supported' if holds else 'refuted or confounded'}")


if __name__ == "__main__":
    main()
