"""Leaked hidden states."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.inversion.observation import leaked
from headscan.leaks.audit import audit, scales_of
from headscan.leaks.blind import estimated, read_through_noise
from headscan.leaks.mechanism import Exposure, cross_entropy, loss_with, loss_with_cache
from headscan.leaks.positions import prior_of
from headscan.leaks.run import CHANNELS, Auditing, Leak, LeakChannel
from headscan.model.lens import Lens
from headscan.model.slicing import Slice, SlicedModel
from headscan.model.slicing.checks import Mapped
from headscan.model.slicing.prefix import cache_slice
from headscan.run import BadInput, Run

MANY = 12


@CHANNELS.register("states")
class StatesChannel(LeakChannel):
    """The states of a site at every position: what a split model sends, or a server keeps."""

    name: ClassVar[str] = "states"
    uses: ClassVar[tuple[str, ...]] = (
        "sites", "noise", "format", "prior", "windows", "length", "candidates", "draws", "particles", "defence", "others",
        "states",
    )  # fmt: skip
    meaning: ClassVar[str] = (
        "Bits that the state at a token's position tells of that token to one who knows the tokens before it; what later "
        "states add is in the bits of whole texts."
    )

    def attack(self, lens: Lens, texts: list[list[int]], settings: Auditing, run: Run) -> Leak:
        names = lens.match(settings.sites) if settings.sites else few_of(lens.match("block.*"))
        widths = tuple(lens.width(name) for name in names)
        exposure = Exposure(
            names, Slice(sites=names).on(lens), widths, partial(_states_alone, lens), loss=partial(loss_with, lens)
        )
        if settings.states is not None:
            return _outside(lens, exposure, texts, settings, run)
        return audit(exposure, texts, settings, run)


def few_of(names: tuple[str, ...]) -> tuple[str, ...]:
    """All of few names; of many the first, the middle and the last."""
    return names if len(names) <= MANY else (names[0], names[len(names) // 2], names[-1])


def _outside(lens: Lens, exposure: Exposure, texts: list[list[int]], settings: Auditing, run: Run) -> Leak:
    if len(exposure.names) > 1:
        raise BadInput("States that are given are of one site: name it with --sites.")
    cut = exposure.together
    given = leaked(cut, settings.states)
    seen, stored = given.targets[0], list(given.prompts[0].ids)
    run.identify("the states", given.sha256)
    ids = stored or [token for text in texts for token in text][: len(seen)]
    if len(ids) < len(seen) or len(seen) < 2:
        raise BadInput(f"The states are of {len(seen)} tokens, and the text has {len(ids)}; both need two at least.")
    known = torch.tensor(ids)
    scale = scales_of(exposure, known[None])[0]
    tokens, sigma = read_through_noise(cut, seen, prior_of(settings.prior, lens, texts), progress=run.progress)
    found = estimated(cut, seen, known, tokens, sigma, scale)
    leak = audit(exposure, [ids], settings.but(windows=1, length=len(ids), noise=(found.noise,)), run)
    return replace(leak, outside=found)


def _states_alone(lens: Lens, name: str) -> SlicedModel:
    return Slice(sites=(name,)).on(lens)


# ---- A leaked key-value cache.


@CHANNELS.register("cache")
class CacheChannel(LeakChannel):
    """Keys, values or both that attention stores, of some blocks and heads, in the number format of the cache."""

    name: ClassVar[str] = "cache"
    uses: ClassVar[tuple[str, ...]] = (
        "sites", "noise", "format", "defence", "stored", "heads", "prior", "windows", "length", "candidates", "draws",
        "particles", "others",
    )  # fmt: skip
    meaning: ClassVar[str] = (
        "Bits that what the cache holds of a token tells of that token to one who knows the tokens before it; what later "
        "tokens' entries add is in the bits of whole texts."
    )

    def attack(self, lens: Lens, texts: list[list[int]], settings: Auditing, run: Run) -> Leak:
        if lens.traits.encoder_decoder or not lens.traits.causal:
            raise BadInput(f"'{lens.name}' is no causal model with a key-value cache.")
        names = lens.match(settings.sites) if settings.sites else few_of(lens.match("block.*"))
        wrong = [name for name in names if re.fullmatch(r"block\.\d+", name) is None]
        if wrong:
            raise BadInput(f"A cache belongs to a block: write --sites 'block.3', not {wrong[0]}.")
        layers = [int(name.partition(".")[2]) for name in names]
        whole = cache_slice(lens, layers, settings.stored, settings.heads)
        each = len(whole.parts) // len(layers)
        parts = tuple(whole.parts[i : i + each] for i in range(0, len(whole.parts), each))
        loss = partial(_loss, lens, settings) if settings.heads is None else None
        exposure = Exposure(
            names, whole, tuple(map(sum, parts)), partial(_cache_alone, lens, settings), parts, loss=loss
        )
        return audit(exposure, texts, settings, run)


def _cache_alone(lens: Lens, settings: Auditing, name: str) -> SlicedModel:
    return cache_slice(lens, [int(name.partition(".")[2])], settings.stored, settings.heads)


def _loss(
    lens: Lens, settings: Auditing, name: str, ids: Int[Tensor, "B T"], change: Callable[[Tensor], Tensor]
) -> Tensor:
    return loss_with_cache(lens, int(name.partition(".")[2]), settings.stored, ids, change)


# ---- Leaked logits: the states at the head's input, seen through a linear map.


@CHANNELS.register("logits")
class LogitsChannel(LeakChannel):
    """The logits of every position, or log-probabilities, which lack one number of them.

    Logits are W h + b, with the head's weight W [V, d] and the state h before it: d numbers seen V times. All that noise of
    equal power in every logit leaves of h is in Wᵀ y, so with WᵀW = RᵀR the release is R h with d noises of that power: the
    same distances, the same bits, at d numbers a token and not V. Log-probabilities lack the logits' normaliser: they are
    taken centred over the vocabulary, which is the same for W with its columns centred.
    """

    name: ClassVar[str] = "logits"
    uses: ClassVar[tuple[str, ...]] = (
        "noise", "prior", "windows", "length", "candidates", "draws", "particles", "others"
    )  # fmt: skip
    meaning: ClassVar[str] = (
        "Bits that the logits at a token's position, given as log-probabilities, tell of that token to one who knows the "
        "tokens before it."
    )

    def attack(self, lens: Lens, texts: list[list[int]], settings: Auditing, run: Run) -> Leak:
        """Bits and attacks at the head.

        Noise is in the rms of the equivalent d numbers, times √(d/V) that of a logit.
        """
        head = lens.traits.linear_head
        if head is None:
            raise BadInput(
                f"The head of '{lens.name}' is no linear map of its states, so its logits are not read back."
            )
        root = _root(head.weight)
        cut = Mapped(Slice(sites=(head.site,)).on(lens), lambda states: states.float() @ root.T, "centred logits")

        def loss(_: str, ids: Int[Tensor, "B T"], change: Callable[[Tensor], Tensor]) -> Tensor:
            with torch.no_grad():
                states = lens.run(ids, sites=head.site)[head.site].float()
                seen = states @ root.T
                moved = torch.linalg.lstsq(root, (change(seen) - seen).flatten(0, 1).T).solution.T
                return cross_entropy(head.logits(states + moved.view_as(states)), ids)

        return audit(Exposure(("head",), cut, (cut.width,), lambda _: cut, loss=loss), texts, settings, run)


@torch.no_grad()
def _root(weight: Float[Tensor, "V d"]) -> Float[Tensor, "d d"]:
    centred = weight.double() - weight.double().mean(0)
    values, vectors = torch.linalg.eigh(centred.T @ centred)
    return torch.as_tensor((values.clamp_min(0).sqrt()[:, None] * vectors.T).float())


@torch.no_grad()
def states_from_logits(
    lens: Lens, values: Float[Tensor, "T k"], *, tokens: Int[Tensor, " k"] | None = None, probabilities: bool = False
) -> Float[Tensor, "T d"]:
    """The states before the head from logits, log-probabilities, or those of some tokens (top-k, or asked for by a bias).

    Args:
        lens: a model with a linear head.
        values: of each position, of all tokens or of `tokens`.
        tokens: which k tokens the values are of, the same at every position; at least d of them, d + 1 of log-probabilities.
        probabilities: the values are log-probabilities: one number of each position, their normaliser, is unknown.

    Raises BadInput for a head that is no linear map, or fewer tokens than that.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> lens = Lens(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=1, n_head=2)))
    >>> found = lens.run([[3, 7]], sites="head, final_norm")
    >>> some = torch.arange(0, 50, 4)
    >>> back = states_from_logits(lens, found["head"][0].log_softmax(-1)[:, some], tokens=some, probabilities=True)
    >>> torch.allclose(back, found["final_norm"][0], atol=1e-4)
    True
    """
    head = lens.traits.linear_head
    if head is None:
        raise BadInput(f"The head of '{lens.name}' is no linear map of its states, so its logits are not read back.")
    weight = head.weight.double() if tokens is None else head.weight[tokens].double()
    offset = 0.0 if head.bias is None else (head.bias if tokens is None else head.bias[tokens]).double()
    if len(weight) < weight.shape[1] + int(probabilities):
        need = weight.shape[1] + int(probabilities)
        raise BadInput(
            f"The values of {len(weight)} tokens do not tell a state of {weight.shape[1]}: {need} are needed."
        )
    seen = values.double() - offset
    if probabilities:
        weight, seen = weight - weight.mean(0), seen - seen.mean(-1, keepdim=True)
    return torch.as_tensor(torch.linalg.lstsq(weight, seen.T).solution.T.float())
