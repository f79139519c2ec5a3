"""The text alone forecasts how a trained model's contexts lie: how far, over ten texts whose tokens
are more and less uneven.

    python benchmarks/the_text_alone_forecasts_how_contexts_lie.py [--runs 10] [--steps 60]
    [--folder FOLDER]

Each text is 20,000 tokens of a Markov chain over 40 tokens, whose successors are drawn by a Zipf
law (exponents 0 to 1.8). From its counts alone two forecasts of the cosines of all pairs of
contexts are made along the regularisation path min CE + λ‖L‖_* of next-token prediction: with every
context counted once, and with every occurrence of it (`frequency-weighted`: the norm of a context
costs as often as it occurs). All forecasts are written to FOLDER, with a hash, before any model is
built. Then a GPT-2 (d = 32, one block) is trained on the text; its loss picks the point of the path
with the same loss, which is all that is read of the model. Whatever is finished stays in FOLDER: a
run that was stopped goes on from there.

Compared are the cosines between mean final states of contexts: R² is the squared correlation over
pairs, each weighted by how often its two contexts occur; intervals leave contexts out one at a
time, and that of all texts is Student's over them.

Nulls: the same model's contexts with their names permuted (95 % of draws); the forecast of another
text with the same exponent, contexts matched by rank; the model before training. Last, the forecast
of the cone: the average cosine of contexts by frequency, forecast against measured over all texts.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from headscan_lab.theory import regularisation_path
from headscan_lab.theory.path import largest_penalty
from scipy.stats import t as student
from transformers import GPT2Config, GPT2LMHeadModel

from headscan.ntp import SoftLabels

VOCABULARY = 40
TOKENS = 20_000
WINDOW = 16
OCCURRENCES = 400
POINTS = 10
T = TypeVar("T")
Forecast = list[tuple[float, np.ndarray]]
Lists = dict[str, list[tuple[float, list[list[float]]]]]
KINDS = ("each context once", "frequency-weighted")


def text(exponent: float, seed: int) -> np.ndarray:
    """A chain: every token has 1 to 6 successors, drawn by a Zipf law, with probabilities from a
    Dirichlet.
    """
    rng = np.random.default_rng(seed)
    law = np.arange(1, VOCABULARY + 1) ** -exponent
    following = np.zeros((VOCABULARY, VOCABULARY))
    for row in following:
        support = rng.choice(VOCABULARY, rng.integers(1, 7), replace=False, p=law / law.sum())
        row[support] = rng.dirichlet(np.ones(len(support)))
    token_ids = [0]
    for _ in range(
        TOKENS - 1
    ):  # one token in twenty is drawn anew, so that no part of the chain is left for good
        p = following[token_ids[-1]] if rng.random() > 0.05 else law / law.sum()
        token_ids.append(int(rng.choice(VOCABULARY, p=p)))
    return np.array(token_ids)


def counted(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The contexts that occur, and how often each token follows them [m, V]."""
    counts = np.zeros((VOCABULARY, VOCABULARY))
    np.add.at(counts, (ids[:-1], ids[1:]), 1)
    contexts = np.flatnonzero(counts.sum(1) >= 5)
    return contexts, counts[contexts]


def cosines(rows: np.ndarray) -> np.ndarray:
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit @ unit.T


def forecast(
    counts: np.ndarray, kinds: tuple[str, ...] = KINDS
) -> dict[str, list[tuple[float, np.ndarray]]]:
    """By kind: (excess over the entropy in nats, cosines of contexts [m, m]) along the path.

    A minimiser has W and H balanced: with A = D·L, D² how often a context counts, HHᵀ is (AAᵀ)^½
    with each side over D.
    """
    p = counts / counts.sum(1, keepdims=True)
    often = counts.sum(1)
    repeats = np.maximum(1, np.rint(OCCURRENCES * often / often.sum()).astype(int))
    labels_of_kind = {
        KINDS[0]: SoftLabels.from_probability(p, often / often.sum()),
        KINDS[1]: SoftLabels.from_probability(np.repeat(p, repeats, axis=0)),
    }
    times_of_kind = {KINDS[0]: np.ones(len(p), dtype=int), KINDS[1]: repeats}
    paths: dict[str, list[Any]] = {}
    for kind in kinds:
        labels = labels_of_kind[kind]
        times = times_of_kind[kind]
        first = np.cumsum(times) - times
        largest = largest_penalty(labels)
        path = regularisation_path(
            labels,
            (largest * np.geomspace(0.7, 1e-4, POINTS)).tolist(),
            gap=1e-3,
            max_iterations=200,
        )
        paths[kind] = []
        for point in path:
            scaled = point.logits[first] * np.sqrt(times)[:, None]
            left, sizes, _ = np.linalg.svd(scaled, full_matrices=False)
            paths[kind].append((point.excess, cosines(left * np.sqrt(sizes))))
    return paths


def at_loss(path: list[tuple[float, np.ndarray]], excess: float) -> np.ndarray:
    """The point with that loss, cosines interpolated in the log of the excess."""
    logs = np.log([max(point_excess, 1e-9) for point_excess, _ in path])
    log_excess = np.log(max(excess, 1e-9))
    k = int(np.clip(np.searchsorted(-logs, -log_excess), 1, len(path) - 1))
    above, below = logs[k - 1 : k + 1]
    share = np.clip((above - log_excess) / (above - below), 0, 1)
    return (1 - share) * path[k - 1][1] + share * path[k][1]


def measured(
    model: GPT2LMHeadModel, ids: np.ndarray, contexts: np.ndarray
) -> tuple[np.ndarray, float]:
    """Mean final states of the contexts [m, d], and the loss on the text in nats."""
    windows = torch.from_numpy(ids[: len(ids) // WINDOW * WINDOW].reshape(-1, WINDOW))
    model.eval()
    with torch.no_grad():
        states = model.transformer(windows).last_hidden_state[:, :-1].flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(model.lm_head(states), windows[:, 1:].flatten())
    tokens = windows[:, :-1].flatten()
    sums = torch.zeros(VOCABULARY, states.shape[1]).index_add_(0, tokens, states)
    number = torch.bincount(tokens, minlength=VOCABULARY).clamp(min=1)
    means = sums / number[:, None]
    return means[torch.from_numpy(contexts)].double().numpy(), float(loss)


def trained(ids: np.ndarray, steps: int, seed: int) -> tuple[GPT2LMHeadModel, GPT2LMHeadModel]:
    """A model before and after training on the text."""
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=WINDOW,
        n_embd=32,
        n_layer=1,
        n_head=2,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    untrained = GPT2LMHeadModel(config)
    model = GPT2LMHeadModel(config)
    untrained.load_state_dict(model.state_dict())
    windows = torch.from_numpy(ids[: len(ids) // WINDOW * WINDOW].reshape(-1, WINDOW))
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    for _ in range(steps):
        batch = windows[torch.randint(len(windows), (32,))]
        loss = model(batch, labels=batch).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return untrained, model


def r_squared(a: np.ndarray, b: np.ndarray, often: np.ndarray) -> float:
    """The squared correlation of the entries off the diagonal, weighted by both contexts'
    frequency.
    """
    i, j = np.triu_indices(len(a), 1)
    w = often[i] * often[j]
    w = w / w.sum()
    x = a[i, j] - w @ a[i, j]
    y = b[i, j] - w @ b[i, j]
    return float((w @ (x * y)) ** 2 / ((w @ x**2) * (w @ y**2)))


def jackknife(a: np.ndarray, b: np.ndarray, often: np.ndarray) -> tuple[float, float]:
    """The 95 % interval of R² from leaving contexts out one at a time."""
    value = r_squared(a, b, often)
    n = len(a)
    left = []
    for k in range(n):
        remaining = np.delete(np.arange(n), k)
        grid = np.ix_(remaining, remaining)
        left.append(r_squared(a[grid], b[grid], often[remaining]))
    half = 1.96 * float(np.sqrt(n - 1) * np.std(left))
    return max(0.0, value - half), min(1.0, value + half)


def cone(table: np.ndarray, often: np.ndarray) -> float:
    """The average cosine of contexts, by frequency, without the diagonal."""
    w = np.outer(often, often)
    np.fill_diagonal(w, 0)
    return float((w * table).sum() / w.sum())


def of_all(values: list[float]) -> str:
    """Mean and Student's interval over texts."""
    half = student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    return f"{np.mean(values):.2f} [{np.mean(values) - half:.2f}, {np.mean(values) + half:.2f}]"


def stored(path: Path, make: Callable[[], T]) -> T:
    """Return what the file holds; make and write it where there is no file."""
    if not path.exists():
        path.write_text(json.dumps(make()))
    stored_value: T = json.loads(path.read_text())
    return stored_value


def forecast_lists(z: float, seed: int) -> Lists:
    """Return the forecasts of one text as lists, as they are written to a file."""
    _, counts = counted(text(z, seed))
    return as_lists(forecast(counts))


def as_lists(forecasts: dict[str, Forecast]) -> Lists:
    return {
        kind: [(excess, table.tolist()) for excess, table in path]
        for kind, path in forecasts.items()
    }


def run(z: float, seed: int, path: dict[str, Forecast], steps: int) -> dict[str, Any]:
    """One text: its model, and both forecasts against it."""
    ids = text(z, seed)
    contexts, counts = counted(ids)
    often = counts.sum(1) / counts.sum()
    p = counts / counts.sum(1, keepdims=True)
    logs = np.log(np.where(counts > 0, p, 1))
    entropy = -float((counts * logs).sum() / counts.sum())
    untrained, model = trained(ids, steps, seed)
    states, loss = measured(model, ids, contexts)
    own_cosines = cosines(states)
    excess = loss - entropy
    row: dict[str, Any] = {"zipf": z, "excess": excess}
    for kind in KINDS:
        expected = at_loss(path[kind], excess)
        row[kind] = [
            r_squared(own_cosines, expected, often),
            *jackknife(own_cosines, expected, often),
        ]
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(len(own_cosines)) for _ in range(200)]
    row["permuted"] = float(
        np.quantile([r_squared(own_cosines, expected[np.ix_(o, o)], often) for o in orders], 0.95)
    )
    # Another text's contexts, the most frequent held against the most frequent.
    _, other_counts = counted(text(z, 1000 + seed))
    size = min(len(own_cosines), len(other_counts))
    ranks = np.argsort(-often)[:size], np.argsort(-other_counts.sum(1))[:size]
    other_cosines = at_loss(forecast(other_counts, KINDS[1:])[KINDS[1]], excess)
    row["another"] = r_squared(
        own_cosines[np.ix_(ranks[0], ranks[0])],
        other_cosines[np.ix_(ranks[1], ranks[1])],
        often[ranks[0]],
    )
    row["untrained"] = r_squared(cosines(measured(untrained, ids, contexts)[0]), expected, often)
    return row | {"cone": cone(own_cosines, often), "cone forecast": cone(expected, often)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--folder", type=Path, default=Path("forecasts"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    clock = time.process_time()
    options.folder.mkdir(parents=True, exist_ok=True)
    exponents = [round(float(z), 2) for z in np.linspace(0, 1.8, options.runs)]
    files = [options.folder / f"forecast-{z}.json" for z in exponents]
    paths = []
    for seed, (z, file) in enumerate(zip(exponents, files, strict=True)):
        lists = stored(file, partial(forecast_lists, z, seed))
        paths.append(
            {
                kind: [(excess, np.array(table)) for excess, table in path]
                for kind, path in lists.items()
            }
        )
    together = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    print(f"forecasts written: sha256 {together}\n", flush=True)
    print(
        f"| Zipf | nats above entropy | {' | '.join(KINDS)} | permuted (95 %) | another text | "
        "untrained | cone | forecast |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    rows = []
    for seed, (z, path) in enumerate(zip(exponents, paths, strict=True)):
        row = stored(
            options.folder / f"run-{z}-{options.steps}.json",
            partial(run, z, seed, path, options.steps),
        )
        rows.append(row)
        cells = [f"{row[kind][0]:.2f} [{row[kind][1]:.2f}, {row[kind][2]:.2f}]" for kind in KINDS]
        cells += [f"{row[name]:.2f}" for name in ("permuted", "another", "untrained")]
        print(
            f"| {z} | {row['excess']:.3f} | {' | '.join(cells)} | {row['cone']:.3f} | "
            f"{row['cone forecast']:.3f} |",
            flush=True,
        )
    scores = {kind: of_all([row[kind][0] for row in rows]) for kind in KINDS}
    print(
        f"\nR² over {options.runs} texts: "
        + "; ".join(f"{kind} {score}" for kind, score in scores.items())
    )
    print(
        "the second less the first: "
        f"{of_all([row[KINDS[1]][0] - row[KINDS[0]][0] for row in rows])}"
    )
    pairs = np.array([(row["cone"], row["cone forecast"]) for row in rows])
    rng = np.random.default_rng(0)
    draws = [
        np.corrcoef(pairs[rng.integers(0, len(pairs), len(pairs))].T)[0, 1] ** 2
        for _ in range(2000)
    ]
    print(
        f"R² of the cone over texts: {np.corrcoef(pairs.T)[0, 1] ** 2:.2f} "
        f"[{np.nanquantile(draws, 0.025):.2f}, {np.nanquantile(draws, 0.975):.2f}] (bootstrap)"
    )
    print(f"{time.process_time() - clock:.0f} s of processor time")


if __name__ == "__main__":
    main()
