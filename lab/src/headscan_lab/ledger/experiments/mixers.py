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
from jaxtyping import Float
from torch import Tensor

from headscan.model import Lens
from headscan.model.inputs import IdsLike
from headscan.model.mixer import MixerConfig, MixerModel
from headscan.model.slicing import Slice
from headscan.run import Json
from headscan_lab.ledger.language import VOCABULARY, language
from headscan_lab.ledger.measurement import Measurement, share_of
from headscan_lab.ledger.statement import Observation, Region, Statement, enter


@torch.no_grad()
def leak_check(
    slice_: Slice,
    lens: Lens,
    input_ids: IdsLike,
    *,
    trials: int = 4,
    seed: int = 0,
    batch: int = 256,
) -> Float[Tensor, "T kept"]:
    """Return how far each output moves when each token of one prompt is replaced by random others.

    Returns:
        float32 [T, T']: entry (j, i) is the largest ||O_i(changed at j) - O_i|| / ||O_i|| over the
        trials. Zero means that output i did not depend on token j (up to `1e-6`, the rounding of
        other batch shapes) for these replacements; it is no proof for all tokens.

    Cost: T x trials rows of T tokens.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> config = GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=1, n_head=2)
    >>> lens = Lens(GPT2LMHeadModel(config))
    >>> (leak_check(Slice(), lens, [1, 2, 3]) > 0).int()
    tensor([[1, 1, 1],
            [0, 1, 1],
            [0, 0, 1]], dtype=torch.int32)
    """
    cut = slice_.on(lens)
    ids = cut.check(torch.atleast_2d(torch.as_tensor(input_ids)))[:1]
    length = ids.shape[1]
    vocabulary = cut.vocabulary_size

    # Each row has one token replaced; a shift by less than the vocabulary makes it another token.
    rows = ids.repeat(length * trials, 1)
    generator = torch.Generator().manual_seed(seed)
    shifts = torch.randint(1, max(vocabulary, 2), (len(rows),), generator=generator)
    row_numbers = torch.arange(len(rows), device=ids.device)
    positions = torch.arange(length).repeat_interleave(trials).to(ids.device)
    shifted = rows[row_numbers, positions] + shifts.to(ids.device)
    rows[row_numbers, positions] = shifted % vocabulary

    changes = []
    for chunk in rows.split(max(1, batch - 1)):
        # The unchanged prompt runs in the same batch, so that the same kernels compute both.
        outputs = cut.run(torch.cat([ids, chunk])).float()
        unchanged = outputs[:1]
        size = unchanged.norm(dim=-1).clamp_min(1e-30)
        changes.append((outputs[1:] - unchanged).norm(dim=-1) / size)
    largest = torch.cat(changes).reshape(length, trials, -1).amax(1).cpu()
    return torch.where(largest > 1e-6, largest, torch.zeros_like(largest))


SLOTS = 12  # tokens of a text
MIXER_PROMPTS = 8  # of a seed
ROWS_AT_ONCE = 128


@dataclass(frozen=True, eq=False)
class Recall:
    """Which tokens were found: 1, else 0.

    Attributes:
        visible: [n, T - first], tokens whose output is visible, by descent.
        hidden: [n, first], the other tokens, by descent; None for first = 0.
        exact: [n, 1], the last hidden token by search, all others known.
        margin: the least relative residual of a runner-up in that search; near 0, nothing
            distinguishes the two.
    """

    visible: Tensor
    hidden: Tensor | None
    exact: Tensor | None
    margin: float | None

    def numbers(self) -> dict[str, Json]:
        """Return shares and margin as plain numbers."""
        return {
            "own": float(self.visible.mean()),
            "hidden": None if self.hidden is None else float(self.hidden.mean()),
            "exact": None if self.exact is None else float(self.exact.mean()),
            "margin": self.margin,
            "count": 0 if self.hidden is None else self.hidden.shape[1],
        }


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
    mixer_model: MixerModel = model.eval().requires_grad_(False)
    return mixer_model


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
    if first == 0:
        return Recall(hits, None, None, None)
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


@cache
def _hidden(mixing: str, width: int, seed: int) -> tuple[Measurement, Measurement]:
    """Return the shares of hidden first tokens that a descent and a search find."""
    found = []
    searched = []
    for number in range(SEEDS):
        training = SEEDS * seed + number
        model = mixer(mixing, width, training)
        ids = language(training + 50_000_000, MIXER_PROMPTS, SLOTS)
        recovered = recall(model, first=1, seed=training, ids=ids)
        assert recovered.hidden is not None
        assert recovered.exact is not None
        found.append(recovered.hidden.numpy())
        searched.append(recovered.exact.numpy())
    name = f"{mixing}, {width} wide"
    return (
        share_of(name, found, chance=1 / VOCABULARY),
        share_of(f"{name}, by search", searched, chance=1 / VOCABULARY),
    )


def _flat(_model: str, seed: int) -> Observation:
    value, searched = _hidden("flat", WIDTHS[-1], seed)
    narrower = [_hidden("flat", width, seed)[0] for width in WIDTHS[:-1]]
    expanded = _hidden("expanded", WIDTHS[-1], seed)[0]
    return Observation(values=[value], controls=[*narrower, expanded, searched])


def _expanded(_model: str, seed: int) -> Observation:
    values = [_hidden("expanded", width, seed)[0] for width in (WIDTHS[0], WIDTHS[-1])]
    searched = _hidden("expanded", WIDTHS[-1], seed)[1]
    return Observation(
        values=values,
        controls=[searched, _hidden("flat", WIDTHS[-1], seed)[0]],
        note="optimiser" if searched.value > 0.9 else "",
        why="A search finds the hidden token in the same outputs.",
    )


MIXERS = "Mixer Information Transfer"
enter(
    Statement(
        id="A13",
        document="article",
        place=MIXERS,
        statement="An untrained flat mixer, 512 wide, gives a hidden token back.",
        measured="share of hidden first tokens that a descent finds from one block's other outputs",
        counts=Region(0.6, None),
        control="the expanded mixer of the same width; narrower mixers; a search",
        turned_by="a share below 0.6",
        range="eight seeds, eight prompts each; widths of 64 and 256 beside",
        models="made here",
        published="perfect at 512, 'iario, the Idea' at 256",
        observe=_flat,
        planted=lambda seed: _hidden("expanded", WIDTHS[-1], seed)[0],
        command="headscan train mixer --text TEXT --mixing flat; headscan invert MODEL --at "
        "'block.0[:, 1:, :]' --method indirect",
    )
)
enter(
    Statement(
        id="A14",
        document="article",
        place=MIXERS,
        statement="An untrained expanded mixer does not give a hidden token back.",
        measured="share of hidden first tokens that a descent finds from one block's other outputs",
        counts=Region(None, 0.2),
        control="the flat mixer of the same width; a search",
        turned_by="a share above 0.2",
        range="widths of 64 and 512; eight seeds, eight prompts each",
        models="made here",
        published="'it, but ario, the Idea' at 512",
        observe=_expanded,
        planted=lambda seed: _hidden("flat", WIDTHS[-1], seed)[0],
        command="headscan train mixer --text TEXT --mixing expanded; headscan invert MODEL --at "
        "'block.0[:, 1:, :]' --method indirect",
    )
)
