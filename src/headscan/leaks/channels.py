"""What may leak: hidden states, a key-value cache, logits, an embedding."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.inversion.observation import EmbeddingSlice
from headscan.leaks.audit import audit
from headscan.leaks.mechanism import (
    UNCHANGED,
    Change,
    Exposure,
    Fitted,
    Mechanism,
    cross_entropy,
    loss_with,
    loss_with_cache,
    working,
)
from headscan.leaks.positions import Asked, PositionLeak, Prior, at_position, cut_prior, prior_of
from headscan.leaks.result import LeakRow
from headscan.leaks.rows import bits_row, share_interval
from headscan.leaks.run import CHANNELS, Auditing, AuditPlan, Leak, LeakChannel, plan_of, windows_of
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
        "sites", "noise", "format", "prior", "windows", "length", "candidates", "draws", "defence",
    )  # fmt: skip
    meaning: ClassVar[str] = (
        "Bits that the state at a token's position tells of that token to one who knows the tokens before it; what later "
        "states add is not counted."
    )

    def attack(self, lens: Lens, texts: list[list[int]], settings: Auditing, run: Run) -> Leak:
        names = lens.match(settings.sites) if settings.sites else few_of(lens.match("block.*"))
        widths = tuple(lens.width(name) for name in names)
        together, loss = Slice(sites=names).on(lens), partial(loss_with, lens)
        exposure = Exposure(names, together, widths, lambda name: Slice(sites=(name,)).on(lens), loss=loss)
        return audit(exposure, texts, settings, run)


def few_of(names: tuple[str, ...]) -> tuple[str, ...]:
    """All of few names; of many the first, the middle and the last."""
    return names if len(names) <= MANY else (names[0], names[len(names) // 2], names[-1])


# ---- A leaked key-value cache.


@CHANNELS.register("cache")
class CacheChannel(LeakChannel):
    """Keys, values or both that attention stores, of some blocks and heads, in the number format of the cache."""

    name: ClassVar[str] = "cache"
    uses: ClassVar[tuple[str, ...]] = (
        "sites", "noise", "format", "defence", "stored", "prior", "windows", "length", "candidates", "draws",
    )  # fmt: skip
    meaning: ClassVar[str] = (
        "Bits that what the cache holds of a token tells of that token to one who knows the tokens before it; what later "
        "tokens' entries add is not counted."
    )

    def attack(self, lens: Lens, texts: list[list[int]], settings: Auditing, run: Run) -> Leak:
        if lens.traits.encoder_decoder or not lens.traits.causal:
            raise BadInput(f"'{lens.name}' is no causal model with a key-value cache.")
        names = lens.match(settings.sites) if settings.sites else few_of(lens.match("block.*"))
        wrong = [name for name in names if re.fullmatch(r"block\.\d+", name) is None]
        if wrong:
            raise BadInput(f"A cache belongs to a block: write --sites 'block.3', not {wrong[0]}.")

        def layer(name: str) -> int:
            return int(name.partition(".")[2])

        def alone(name: str) -> SlicedModel:
            return cache_slice(lens, [layer(name)], settings.stored)

        def loss(name: str, ids: Int[Tensor, "B T"], change: Change) -> Tensor:
            return loss_with_cache(lens, layer(name), settings.stored, ids, change)

        whole = cache_slice(lens, [layer(name) for name in names], settings.stored)
        each = len(whole.parts) // len(names)
        parts = tuple(whole.parts[i : i + each] for i in range(0, len(whole.parts), each))
        return audit(Exposure(names, whole, tuple(map(sum, parts)), alone, parts, loss=loss), texts, settings, run)


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
    uses: ClassVar[tuple[str, ...]] = ("noise", "prior", "windows", "length", "candidates", "draws")
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

        def loss(_: str, ids: Int[Tensor, "B T"], change: Change) -> Tensor:
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


# ---- A leaked embedding: one vector for a whole text.

BATCH, PASSAGES = 256, 200


@CHANNELS.register("embedding")
class EmbeddingChannel(LeakChannel):
    """The mean of the last block's states, of unit length: what a vector store holds of a text. No training is needed.

    One vector stands for all tokens, so the bits are those of one token to one who knows all the others (a genie):
    B_t = I(X_t; Y | all other tokens). Their sum is no bound on the whole text from below. Without noise the attack names the
    nearest candidate, the others given; `headscan invert --given embedding` searches all tokens jointly.

    What a defence costs is told by retrieval: of up to 200 passages of the text, as long as a window, the share that the clean
    embedding of their first half finds first among what is released of all.
    """

    name: ClassVar[str] = "embedding"
    uses: ClassVar[tuple[str, ...]] = ("noise", "prior", "windows", "length", "candidates", "draws", "defence")
    meaning: ClassVar[str] = (
        "Bits that the embedding of a text tells of one token to one who knows all the others, before and after it: more than "
        "an attacker has, so no sum of them bounds the whole text from below."
    )

    def attack(self, lens: Lens, texts: list[list[int]], settings: Auditing, run: Run) -> Leak:
        if settings.prior == "model":
            prior_of("model", lens, texts)  # whether there is one
        cut = EmbeddingSlice(lens)
        plan = plan_of(cut, texts, settings, whole_rows=True)
        for note in plan.notes:
            run.announce(note)
        leak, passages = Leak(rows=[], notes=list(plan.notes)), windows_of(texts, PASSAGES, settings.length)
        stored, queries = (_embedded(cut, ids) for ids in (passages, passages[:, : (settings.length + 1) // 2]))
        prior = prior_of(settings.prior, lens, texts)
        for number, defence in enumerate(settings.protections()):
            fit = UNCHANGED if defence is None else defence.fit(stored.float(), settings.seed, lens)
            leak.rows.extend(_rows(cut, defence, fit, plan, prior, (stored, queries), settings, run, number))
        return leak


def _rows(
    cut: SlicedModel, defence: Mechanism | None, fit: Fitted, plan: AuditPlan, prior: Prior, passages: tuple[Tensor, Tensor],
    settings: Auditing, run: Run, number: int,
) -> list[LeakRow]:  # fmt: skip
    windows, levels = plan.windows, tuple(dict.fromkeys(settings.noise))
    seen = fit.seen(_embedded(cut, windows).float()).double()
    scale = float(seen.var(0, unbiased=False).mean().sqrt()) if len(windows) > 1 else float(seen.std())
    mark = f"{number}-" if number else ""
    sigmas = (tuple(level * scale for level in levels),)
    asked = Asked((seen.shape[1],), sigmas, prior, plan.candidates, settings.draws, settings.seed)
    found: list[list[PositionLeak]] = []
    for place, window in enumerate(windows):
        work = partial(_window, cut, fit.seen, window, asked, settings.prior == "model")
        found.append(run.unit(f"{mark}window-{place}", list[PositionLeak], work))
        run.progress("bits", (place + 1) * len(window), windows.numel(), "tokens")
    rows, name = list[LeakRow](), "none" if defence is None else defence.name
    for place, level in enumerate(levels):
        parts = [[one for one in part if one.level == place] for part in found]
        row = bits_row("embedding", name, level, level * scale, parts, settings.draws, None)
        generator = torch.Generator().manual_seed(settings.seed + 2)
        share = retrieval(*passages, working(fit.kept or fit.seen, fit.back, level * scale, generator))
        row = replace(row, retrieval=share, retrieval_interval=share_interval(share, len(passages[0])))
        if not level and (defence is None or not defence.rounds):
            row = replace(
                row, bits_lower=None, bits_upper=None, bits_truth=None, bits_truth_error=None, bits_interval=None,
                lower_by=None, upper_by=None, attack="nearest, others known", attack_accuracy_upper=None,
                attack_accuracy=row.text_accuracy, attack_accuracy_interval=row.text_accuracy_interval,
            )  # fmt: skip
        rows.append(row)
    return rows


def retrieval(stored: Float[Tensor, "N w"], queries: Float[Tensor, "N w"], change: Change) -> float:
    """The share of queries whose own passage has the largest cosine among what `change` makes of the stored vectors."""
    left = change(stored.float()).double()
    cosines = queries @ (left / left.norm(dim=1, keepdim=True).clamp_min(1e-30)).T
    return float((cosines.argmax(1) == torch.arange(len(queries))).double().mean())


@torch.no_grad()
def _embedded(cut: SlicedModel, rows: Int[Tensor, "B T"]) -> Float[Tensor, "B w"]:
    return torch.cat([cut.run(part)[:, 0] for part in rows.split(BATCH)]).cpu().double()


@torch.no_grad()
def _window(
    cut: SlicedModel, released: Change, ids: Int[Tensor, " T"], asked: Asked, ordered: bool
) -> list[PositionLeak]:
    """Every position of a window, the others known. A model's prior is that given the tokens before: what the later ones say of
    the token is left out of it, so that it counts as the release's."""
    seen, found = released(_embedded(cut, ids[None]).float())[0].double(), list[PositionLeak]()
    shares = asked.prior(ids[None])[0]
    for place in range(int(ordered), len(ids)):
        tokens, coded = cut_prior(shares[place - 1] if ordered else shares[place], asked.candidates)
        rows = ids.repeat(len(tokens), 1)
        rows[:, place] = tokens
        code = coded(released(_embedded(cut, rows).float()))
        own = (tokens == ids[place]).nonzero()
        named = int(own[0]) if len(own) else None
        found += at_position(code, seen, named, 0, asked.sigmas[0], asked.draws, asked.seed + 7919 * place)
    return found
