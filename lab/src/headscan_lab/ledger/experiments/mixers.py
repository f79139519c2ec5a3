"""What a mixer's (or a transformer's) outputs still hold of a token whose own output is hidden: the
tool behind 105-122.

Two ways of asking. *Continuous*, as the source does: embeddings are moved by gradient until the
visible outputs match, and decoded to the nearest token. *Exact*: every token of the vocabulary is
tried at the last hidden position, with the rest known; if one fits and no other does, the
information is there, whatever an optimizer made of it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headscan.model import Lens
from headscan.model.inputs import IdsLike
from headscan.model.mixer import MixerConfig, MixerModel
from headscan.model.slicing import Slice
from headscan.run import Json
from headscan.training.losses import ce_loss
from headscan_lab.ledger.experiment import (
    EXPERIMENTS,
    Experiment,
    ExperimentOutcome,
    ExperimentWords,
    StandIn,
    enough,
)
from headscan_lab.ledger.experiments.descents import FEW
from headscan_lab.ledger.measurement import PROMPTS, SHARE_TEST, own_seeds, share_of
from headscan_lab.ledger.stand_ins import VOCABULARY, OnModels, language, lens_of, prompts, twin_of


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
    """How far each output moves when each token of one prompt is replaced by random others.

    Returns:
        float32 [T, T']: entry (j, i) is the largest ||O_i(changed at j) - O_i|| / ||O_i|| over the
        trials. Zero means that output i did not depend on token j (up to `1e-6`, the rounding of
        other batch shapes) for these replacements; it is no proof for all tokens.

    Cost: T x trials rows of T tokens.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> lens = Lens(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=1, n_head=2)))
    >>> (leak_check(Slice(), lens, [1, 2, 3]) > 0).int()
    tensor([[1, 1, 1],
            [0, 1, 1],
            [0, 0, 1]], dtype=torch.int32)
    """
    cut = slice_.on(lens)
    ids = cut.check(torch.atleast_2d(torch.as_tensor(input_ids)))[:1]
    length = ids.shape[1]
    vocabulary = cut.vocabulary_size
    generator = torch.Generator().manual_seed(seed)
    rows = ids.repeat(length * trials, 1)
    shift = torch.randint(1, max(vocabulary, 2), (length * trials,), generator=generator).to(
        ids.device
    )
    changed = (
        torch.arange(len(rows), device=ids.device),
        torch.arange(length).repeat_interleave(trials).to(ids.device),
    )
    rows[changed] = (rows[changed] + shift) % vocabulary
    moved = []
    for chunk in rows.split(max(1, batch - 1)):
        # The unchanged prompt runs in the same batch, so that both see the same kernels.
        both = cut.run(torch.cat([ids, chunk])).float()
        moved.append((both[1:] - both[:1]).norm(dim=-1) / both[:1].norm(dim=-1).clamp_min(1e-30))
    largest = torch.cat(moved).reshape(length, trials, -1).amax(1).cpu()
    return torch.where(largest > 1e-6, largest, torch.zeros_like(largest))


SLOTS = 12
SIZE = VOCABULARY
MIXER_PROMPTS = 6


@dataclass(frozen=True, eq=False)
class Recall:
    """What was found, 1 or 0 a token.

    Attributes:
        own: [n, T - first], tokens whose output is visible, by descent; hidden: [n, first], the
            others (None for first = 0).
        exact: [n, 1], the last hidden token by search, all others known; margin: the least relative
            residual of a runner-up in that search: near 0, nothing tells the two apart.
    """

    own: Tensor
    hidden: Tensor | None
    exact: Tensor | None
    margin: float | None

    def numbers(self) -> dict[str, Json]:
        """Shares and margin as plain numbers."""
        hidden, exact = (
            None if part is None else float(part.mean()) for part in (self.hidden, self.exact)
        )
        count = 0 if self.hidden is None else self.hidden.shape[1]
        return {
            "own": float(self.own.mean()),
            "hidden": hidden,
            "exact": exact,
            "margin": self.margin,
            "count": count,
        }


def body(kind: str, width: int, blocks: int, *, trained: int = 0, seed: int = 0) -> Any:
    """A body on embeddings N(0, 1) as published: a mixer by its mixing, or "llama"; `trained` steps
    on a made-up language.
    """
    torch.manual_seed(seed)
    if kind == "llama":
        from transformers import LlamaConfig, LlamaModel

        config = LlamaConfig(
            vocab_size=SIZE,
            hidden_size=width,
            intermediate_size=4 * width,
            num_hidden_layers=blocks,
            num_attention_heads=4,
            max_position_embeddings=SLOTS,
        )
        model: Any = LlamaModel(config)
    else:
        expansion = (
            {"mixing": "expanded", "mixing_expansion": 1}
            if kind == "expanded"
            else {"mixing": kind}
        )
        model = MixerModel(
            MixerConfig(
                vocab_size=SIZE,
                hidden_size=width,
                num_hidden_layers=blocks,
                max_position_embeddings=SLOTS,
                **expansion,
            )
        )
    if trained:
        _train(model, trained, seed)
    return model.eval().requires_grad_(False)


def recall(
    model: Any,
    *,
    first: int,
    seed: int = 0,
    steps: int = 150,
    blocks: int | None = None,
    rate: float = 0.1,
    ids: Tensor | None = None,
) -> Recall:
    """Recover texts int [n, T] from the outputs at positions `first`, ..., T - 1 of block `blocks`;
    by default MIXER_PROMPTS texts of SLOTS tokens of the made-up language.

    Continuous: Adam on the mean absolute difference from embeddings drawn as the table's own, the
        rate falling to zero.
    """
    ids = language(seed + 50_000_000, MIXER_PROMPTS, SLOTS) if ids is None else ids
    run = _runner(model, blocks)
    table = model.get_input_embeddings().weight.detach()
    target = run(table[ids])[:, first:]
    torch.manual_seed(seed)
    guess = (torch.randn(*ids.shape, table.shape[1]) * table.std()).requires_grad_()
    optimizer = torch.optim.Adam([guess], lr=rate * float(table.std()))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        (run(guess)[:, first:] - target).abs().mean().backward()
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
    """Try every token at position first - 1, the last hidden one, all others known."""
    hits = []
    margins = []
    for row, want in zip(ids, target, strict=True):
        candidates = row.repeat(len(table), 1)
        candidates[:, first - 1] = torch.arange(len(table))
        residual = torch.cat(
            [
                (run(table[part])[:, first:] - want).flatten(1).norm(dim=1)
                for part in candidates.split(128)
            ]
        )
        best = residual.argsort()[:2]
        hits.append(float(best[0] == row[first - 1]))
        margins.append(float(residual[best[1]] / want.norm()))
    return torch.tensor(hits)[:, None], min(margins)


def _runner(model: Any, blocks: int | None) -> Callable[[Tensor], Tensor]:
    """Embeddings to the output of a block (1 is the first; None the last), later blocks left out."""

    def run(embeds: Tensor) -> Tensor:
        if isinstance(model, MixerModel):
            for layer in model.layers[:blocks]:
                embeds = layer(embeds)
            return embeds
        states: Tensor = model(inputs_embeds=embeds, use_cache=False).last_hidden_state
        return states

    return run


def _train(model: Any, steps: int, seed: int) -> None:
    """Next-token prediction with a head of its own, which is then thrown away."""
    head = torch.nn.Linear(model.config.hidden_size, SIZE, bias=False)
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-3)
    for step in range(steps):
        ids = language(100_000 * seed + step, 32, SLOTS)
        states = model(input_ids=ids).last_hidden_state[:, :-1].flatten(0, 1)
        loss = ce_loss(states, head.weight, ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


# ---- How much of its input a masked mixer's (or a transformer's) outputs give back, trained and not, wide and narrow, deep.


@EXPERIMENTS.register("mixer-recall")
class MixerRecall(Experiment):
    """A body of `blocks` blocks, its first `first` outputs hidden; `at` blocks are run (None: all).

    The control tries every token for the last hidden place, the others known: it cannot miss what
    is there.
    """

    words = ExperimentWords(
        quantity="share of hidden tokens (of all, where none is hidden) that a descent finds",
        test=SHARE_TEST,
        scope=f"bodies on {SLOTS} tokens of a made-up language of {SIZE}, widths up to 128, Adam",
    )
    controlled = True

    body: Literal["flat", "expanded", "parallel", "llama"] = "flat"
    width: int = 128
    blocks: int = 1
    trained: int = 0
    first: int = 1
    at: int | None = None
    scored: Literal["hidden", "all"] = "hidden"

    def stand_ins(self) -> tuple[StandIn, ...]:
        how = f"trained here for {self.trained} steps" if self.trained else "random weights"
        name = (
            f"one {self.body} body a seed, {self.width} wide, {self.blocks} blocks, V = {SIZE}, "
            f"{how}"
        )
        return (
            StandIn(
                name, "The same architecture; narrower, on shorter texts of a smaller vocabulary."
            ),
        )

    def observe(self, seed: int) -> ExperimentOutcome:
        return _observe(self, seed)


@lru_cache(maxsize=32)
def _body(kind: str, width: int, blocks: int, trained: int, seed: int) -> Any:
    return body(kind, width, blocks, trained=trained, seed=seed)


@lru_cache(maxsize=64)
def _observe(asked: MixerRecall, seed: int) -> ExperimentOutcome:
    own = []
    hidden = []
    exact = []
    everything = asked.first == 0 or asked.scored == "all"
    count = enough(SLOTS if everything else asked.first)
    for inner in own_seeds(seed):
        model = _body(asked.body, asked.width, asked.blocks, asked.trained, inner)
        found = recall(
            model,
            first=asked.first,
            seed=inner,
            blocks=asked.at,
            ids=language(inner + 50_000_000, count, SLOTS),
        )
        own.append(found.own.numpy())
        if found.hidden is not None and found.exact is not None:
            hidden.append(found.hidden.numpy())
            exact.append(found.exact.numpy())
    what = f"{asked.body}, {asked.width} wide, {asked.at or asked.blocks} of {asked.blocks} blocks"
    shown = share_of(f"tokens with visible outputs found ({what})", own, chance=1 / SIZE)
    if not hidden:
        return ExperimentOutcome(effect=shown, models=(what,))
    lost = share_of(f"hidden tokens found ({what})", hidden, chance=1 / SIZE)
    return ExperimentOutcome(
        effect=shown if asked.scored == "all" else lost,
        control=share_of(
            "the last hidden token by search, the others known", exact, chance=1 / SIZE
        ),
        cause="the optimiser failed where the information is there",
        beside=(lost if asked.scored == "all" else shown,),
        models=(what,),
    )


# ---- Whether later tokens reach earlier outputs of attention whose mask is lifted.


@EXPERIMENTS.register("mask-lifted")
class MaskLifted(OnModels):
    """Each later token of a prompt is changed: the share of earlier outputs that move, without the
    mask and with it.
    """

    words = ExperimentWords(
        quantity="share of earlier outputs that a later token moves when no mask is given",
        test="Wilson's interval, clustered by prompt and seed",
        scope="random weights, and those of models that are given",
    )

    model: str = "llama"

    def on(self, model: str) -> Self | None:
        return replace(self, model=model) if twin_of(model, "llama") else None

    def observe(self, seed: int) -> ExperimentOutcome:
        shares: dict[bool, list[np.ndarray]] = {False: [], True: []}
        for own in own_seeds(seed):
            lens = lens_of(self.model, own)
            ids = prompts(self.model, own, PROMPTS if self.model == "llama" else FEW, 6)
            for lifted, rows in shares.items():
                moved = [
                    leak_check(Slice(causal=False if lifted else None), lens, one) > 0
                    for one in ids
                ]
                rows.append(
                    np.stack(
                        [one[np.tril_indices(6, -1)] for one in map(np.asarray, moved)]
                    ).astype(float)
                )
        return ExperimentOutcome(
            effect=share_of("earlier outputs moved, mask lifted", shares[True]),
            beside=(share_of("earlier outputs moved, with the model's mask", shares[False]),),
            models=tuple(dict.fromkeys(lens_of(self.model, own).name for own in own_seeds(seed))),
        )
