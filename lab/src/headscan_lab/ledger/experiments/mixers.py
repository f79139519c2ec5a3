"""Statements on masked mixers: what outputs hold of a token whose own output is hidden.

Two ways are used. *Continuous*, as the source does: embeddings are moved by gradient until the
visible outputs match, and decoded to the nearest token. *Exact*: every token of the vocabulary is
tried at the last hidden position, with the rest known; if one fits and no other does, the
information is there, whatever an optimizer made of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from headscan.model.mixer import MixerConfig, MixerModel
from headscan_lab.ledger.language import VOCABULARY, language
from headscan_lab.ledger.measurement import Measurement, share_of
from headscan_lab.ledger.statement import Observation, enter_experiment

SLOTS = 12  # tokens of a text
MIXER_PROMPTS = 8  # of a seed
ROWS_AT_ONCE = 128


@dataclass(frozen=True, eq=False)
class Recall:
    """Which tokens were found: 1, else 0.

    Attributes:
        visible: [n, T - first], tokens whose output is visible, by descent.
        hidden: [n, first], the other tokens, by descent.
        exact: [n, 1], the last hidden token by search, all others known.
        margin: the least relative residual of a runner-up in that search; near 0, nothing
            distinguishes the two.
    """

    visible: Tensor
    hidden: Tensor
    exact: Tensor
    margin: float


def mixer(mixing: str, width: int, seed: int) -> MixerModel:
    """Return one untrained block on embeddings N(0, 1), as published."""
    torch.manual_seed(seed)
    options: dict[str, Any] = {"mixing": mixing}
    if mixing == "expanded":
        options["mixing_expansion"] = 1
    config = MixerConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        num_hidden_layers=1,
        max_position_embeddings=SLOTS,
        **options,
    )
    model: Any = MixerModel(config)
    frozen: MixerModel = model.eval().requires_grad_(False)
    return frozen


def recall(
    model: Any,
    *,
    first: int,
    seed: int = 0,
    steps: int = 150,
    rate: float = 0.1,
    ids: Tensor,
) -> Recall:
    """Recover texts from the last block's outputs at the positions from `first` on.

    The descent is Adam on the mean absolute difference, from embeddings drawn as the table's own;
    its rate falls to zero.

    Args:
        ids: the texts int [n, T].
    """
    run = _runner(model)
    table = model.get_input_embeddings().weight.detach()
    target = run(table[ids])[:, first:]
    torch.manual_seed(seed)
    guess = torch.randn(*ids.shape, table.shape[1]) * table.std()
    guess.requires_grad_()
    optimizer = torch.optim.Adam([guess], lr=rate * float(table.std()))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (run(guess)[:, first:] - target).abs().mean()
        loss.backward()
        optimizer.step()
        schedule.step()
    hits = (torch.cdist(guess.detach(), table).argmin(-1) == ids).float()
    exact, margin = _search(run, table, ids, target, first)
    return Recall(hits[:, first:], hits[:, :first], exact, margin)


@torch.no_grad()
def _search(
    run: Callable[[Tensor], Tensor], table: Tensor, ids: Tensor, target: Tensor, first: int
) -> tuple[Tensor, float]:
    """Try every token at position first - 1, the last hidden one, with all others known.

    Return which were found [n, 1], and the least relative residual of a runner-up.
    """
    hits = []
    margins = []
    for row, row_target in zip(ids, target, strict=True):
        candidates = row.repeat(len(table), 1)
        candidates[:, first - 1] = torch.arange(len(table))
        residuals = []
        for part in candidates.split(ROWS_AT_ONCE):
            outputs = run(table[part])[:, first:]
            residuals.append((outputs - row_target).flatten(1).norm(dim=1))
        residual = torch.cat(residuals)
        best, runner_up = residual.argsort()[:2]
        hits.append(float(best == row[first - 1]))
        margins.append(float(residual[runner_up] / row_target.norm()))
    return torch.tensor(hits)[:, None], min(margins)


def _runner(model: Any) -> Callable[[Tensor], Tensor]:
    """Return a function from embeddings to the last block's output."""

    def run(embeddings: Tensor) -> Tensor:
        if isinstance(model, MixerModel):
            states = embeddings
            for layer in model.layers:
                states = layer(states)
            return states
        last: Tensor = model(inputs_embeds=embeddings, use_cache=False).last_hidden_state
        return last

    return run


WIDTHS = (64, 256, 512)
SEEDS = 8
MORE_SEEDS = 48  # where eight do not decide
DESCENTS = ((150, 0.1), (150, 0.3), (300, 0.03))  # steps and rates


@cache
def _tuned(mixing: str, width: int, seed: int) -> tuple[int, float]:
    """Return the steps and the rate that find most hidden tokens of a mixer that is not judged."""
    training = SEEDS * seed + 70_000
    model = mixer(mixing, width, training)
    ids = language(training + 50_000_000, MIXER_PROMPTS, SLOTS)

    def share(descent: tuple[int, float]) -> float:
        steps, rate = descent
        found = recall(model, first=1, seed=training, steps=steps, rate=rate, ids=ids)
        return float(found.hidden.mean())

    return max(DESCENTS, key=share)


@cache
def _hidden(
    mixing: str, width: int, seed: int, trainings: int = SEEDS
) -> tuple[Measurement, Measurement]:
    """Return the shares of hidden first tokens that a descent and a search find."""
    found = []
    searched = []
    steps, rate = _tuned(mixing, width, seed)
    for number in range(trainings):
        training = trainings * seed + number
        model = mixer(mixing, width, training)
        ids = language(training + 50_000_000, MIXER_PROMPTS, SLOTS)
        recovered = recall(model, first=1, seed=training, steps=steps, rate=rate, ids=ids)
        found.append(recovered.hidden.numpy())
        searched.append(recovered.exact.numpy())
    name = f"{mixing}, {width} wide"
    return (
        share_of(f"{name}, {steps} steps at {rate:g}", found, chance=1 / VOCABULARY),
        share_of(f"{name}, by search", searched, chance=1 / VOCABULARY),
    )


def _flat(_model: str, seed: int) -> Observation:
    value, searched = _hidden("flat", WIDTHS[-1], seed, MORE_SEEDS)
    narrower = [_hidden("flat", width, seed)[0] for width in WIDTHS[:-1]]
    expanded = _hidden("expanded", WIDTHS[-1], seed)[0]
    return Observation(
        values=[value],
        controls=[*narrower, expanded, searched],
    )


def _expanded(_model: str, seed: int) -> Observation:
    values = [_hidden("expanded", width, seed)[0] for width in (WIDTHS[0], WIDTHS[-1])]
    searched = _hidden("expanded", WIDTHS[-1], seed)[1]
    return Observation(
        values=values,
        controls=[searched, _hidden("flat", WIDTHS[-1], seed)[0]],
        note="optimiser" if searched.value > 0.9 else "",
        why="A search finds the hidden token in the same outputs.",
    )


enter_experiment("A13", _flat, lambda seed: _hidden("expanded", WIDTHS[-1], seed)[0])
enter_experiment("A14", _expanded, lambda seed: _hidden("flat", WIDTHS[-1], seed)[0])
