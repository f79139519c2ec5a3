"""Claims about masked mixers (105 to 122): what outputs hold of a token whose own output is hidden.

Two ways are used. *Continuous*, as the source does: embeddings are moved by gradient until the
visible outputs match, and decoded to the nearest token. *Exact*: every token of the vocabulary is
tried at the last hidden position, with the rest known; if one fits and no other does, the
information is there, whatever an optimizer made of it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor
from transformers import LlamaConfig, LlamaModel

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
    enough_prompts,
)
from headscan_lab.ledger.experiments.descents import FEW_PROMPTS
from headscan_lab.ledger.language import VOCABULARY, language
from headscan_lab.ledger.measurement import PROMPTS, SHARE_TEST, repeat_seeds, share_of
from headscan_lab.ledger.proxies import OnModels, lens_of, prompts, random_twin


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
SIZE = VOCABULARY
MIXER_PROMPTS = 6
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


def body(kind: str, width: int, blocks: int, *, trained: int = 0, seed: int = 0) -> Any:
    """Return a body on embeddings N(0, 1), as published.

    Args:
        kind: a mixer's mixing, or "llama".
        trained: steps of training on a made-up language.
    """
    torch.manual_seed(seed)
    model: Any = _llama(width, blocks) if kind == "llama" else _mixer(kind, width, blocks)
    if trained:
        _train(model, trained, seed)
    return model.eval().requires_grad_(False)


def _llama(width: int, blocks: int) -> LlamaModel:
    return LlamaModel(
        LlamaConfig(
            vocab_size=SIZE,
            hidden_size=width,
            intermediate_size=4 * width,
            num_hidden_layers=blocks,
            num_attention_heads=4,
            max_position_embeddings=SLOTS,
        )
    )


def _mixer(mixing: str, width: int, blocks: int) -> MixerModel:
    options: dict[str, Any] = {"mixing": mixing}
    if mixing == "expanded":
        options["mixing_expansion"] = 1
    return MixerModel(
        MixerConfig(
            vocab_size=SIZE,
            hidden_size=width,
            num_hidden_layers=blocks,
            max_position_embeddings=SLOTS,
            **options,
        )
    )


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
    """Recover texts from the outputs of a block at the positions from `first` on.

    The descent is Adam on the mean absolute difference, from embeddings drawn as the table's own;
    its rate falls to zero.

    Args:
        blocks: how many blocks are run; None: all.
        ids: the texts int [n, T]; by default MIXER_PROMPTS texts of SLOTS tokens of the made-up
            language.
    """
    ids = language(seed + 50_000_000, MIXER_PROMPTS, SLOTS) if ids is None else ids
    run = _runner(model, blocks)
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


def _runner(model: Any, blocks: int | None) -> Callable[[Tensor], Tensor]:
    """Return a function from embeddings to the output of a mixer's block (None: the last)."""

    def run(embeddings: Tensor) -> Tensor:
        if isinstance(model, MixerModel):
            states = embeddings
            for layer in model.layers[:blocks]:
                states = layer(states)
            return states
        last: Tensor = model(inputs_embeds=embeddings, use_cache=False).last_hidden_state
        return last

    return run


def _train(model: Any, steps: int, seed: int) -> None:
    """Train a body to predict next tokens, with a head that is then dropped."""
    head = torch.nn.Linear(model.config.hidden_size, SIZE, bias=False)
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-3)
    for step in range(steps):
        ids = language(100_000 * seed + step, 32, SLOTS)
        states = model(input_ids=ids).last_hidden_state[:, :-1].flatten(0, 1)
        loss = ce_loss(states, head.weight, ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@EXPERIMENTS.register("mixer-recall")
class MixerRecall(Experiment):
    """The share of tokens that a descent finds from a body's outputs, the first of them hidden.

    The body has `blocks` blocks, of which `at` are run (None: all); its first `first` outputs are
    hidden. The control tries every token at the last hidden position, with the others known: it
    cannot miss what is there.
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
        why = "The same architecture; narrower, on shorter texts of a smaller vocabulary."
        return (StandIn(name, why),)

    def observe(self, seed: int) -> ExperimentOutcome:
        return _observe(self, seed)


@lru_cache(maxsize=32)
def _body(kind: str, width: int, blocks: int, trained: int, seed: int) -> Any:
    return body(kind, width, blocks, trained=trained, seed=seed)


@lru_cache(maxsize=64)
def _observe(experiment: MixerRecall, seed: int) -> ExperimentOutcome:
    all_are_scored = experiment.first == 0 or experiment.scored == "all"
    count = enough_prompts(SLOTS if all_are_scored else experiment.first)
    visible_hits = []
    hidden_hits = []
    search_hits = []
    for repeat_seed in repeat_seeds(seed):
        model = _body(
            experiment.body, experiment.width, experiment.blocks, experiment.trained, repeat_seed
        )
        recovered = recall(
            model,
            first=experiment.first,
            seed=repeat_seed,
            blocks=experiment.at,
            ids=language(repeat_seed + 50_000_000, count, SLOTS),
        )
        visible_hits.append(recovered.visible.numpy())
        if recovered.hidden is not None and recovered.exact is not None:
            hidden_hits.append(recovered.hidden.numpy())
            search_hits.append(recovered.exact.numpy())

    name = (
        f"{experiment.body}, {experiment.width} wide, {experiment.at or experiment.blocks} of "
        f"{experiment.blocks} blocks"
    )
    chance = 1 / SIZE
    visible = share_of(f"tokens with visible outputs found ({name})", visible_hits, chance=chance)
    if not hidden_hits:
        return ExperimentOutcome(effect=visible, models=(name,))
    hidden = share_of(f"hidden tokens found ({name})", hidden_hits, chance=chance)
    scores_all = experiment.scored == "all"
    return ExperimentOutcome(
        effect=visible if scores_all else hidden,
        control=share_of(
            "the last hidden token by search, the others known", search_hits, chance=chance
        ),
        cause="the optimiser failed where the information is there",
        beside=(hidden if scores_all else visible,),
        models=(name,),
    )


@EXPERIMENTS.register("mask-lifted")
class MaskLifted(OnModels):
    """The share of earlier outputs that move when a later token is changed, without the mask and
    with it.
    """

    words = ExperimentWords(
        quantity="share of earlier outputs that a later token moves when no mask is given",
        test="Wilson's interval, clustered by prompt and seed",
        scope="random weights, and those of models that are given",
    )

    model: str = "llama"

    def on(self, model: str) -> Self | None:
        return replace(self, model=model) if random_twin(model, "llama") else None

    def observe(self, seed: int) -> ExperimentOutcome:
        count = PROMPTS if self.model == "llama" else FEW_PROMPTS
        with_mask = []
        without_mask = []
        names = []
        for repeat_seed in repeat_seeds(seed):
            lens = lens_of(self.model, repeat_seed)
            ids = prompts(self.model, repeat_seed, count, 6)
            with_mask.append(_moved_earlier_outputs(Slice(causal=None), lens, ids))
            without_mask.append(_moved_earlier_outputs(Slice(causal=False), lens, ids))
            names.append(lens.name)
        return ExperimentOutcome(
            effect=share_of("earlier outputs moved, mask lifted", without_mask),
            beside=(share_of("earlier outputs moved, with the model's mask", with_mask),),
            models=tuple(dict.fromkeys(names)),
        )


def _moved_earlier_outputs(slice_: Slice, lens: Lens, ids: Tensor) -> npt.NDArray[np.float64]:
    """Return which earlier outputs a changed later token moves, [prompts, pairs of positions]."""
    below_diagonal = np.tril_indices(ids.shape[1], -1)
    rows = []
    for prompt in ids:
        moved = np.asarray(leak_check(slice_, lens, prompt) > 0)
        rows.append(moved[below_diagonal])
    return np.stack(rows).astype(float)
