"""States from outside, with noise that nobody knows: its size is estimated while the tokens are read."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from scipy import stats
from torch import Tensor

from headscan.inversion.left_to_right import refuse_unordered
from headscan.inversion.reconstruction import relative
from headscan.leaks.mechanism import NumberFormat, same
from headscan.leaks.positions import Prior
from headscan.leaks.result import OutsideStates
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import CacheSlice, Prefix
from headscan.run import BadInput, Progress
from headscan.text import display

BEAM = 8


@torch.no_grad()
def read_through_noise(
    cut: SlicedModel, seen: Float[Tensor, "T w"], prior: Prior, *, start: Int[Tensor, " s"] | None = None, beam: int = BEAM,
    progress: Progress | None = None,
) -> tuple[Int[Tensor, " T"], float]:  # fmt: skip
    """The likeliest tokens of states with Gaussian noise of unknown size, and that size.

    From left to right, `beam` prefixes at a time. With residuals r of n numbers so far the likelihood, at the noise that makes it
    largest (σ² = Σ r² / n), is −(n/2) ln Σ r² up to a constant: prefixes are ranked by that plus ln p of their tokens. No size of
    noise is asked for; the prior of a first token, where nothing comes before it, is uniform.

    Args:
        cut: a causal slice.
        seen: [T, w] what leaked, from the first token after `start` on; `start` are tokens known to come before.
        beam: prefixes kept. Cost: beam · V runs a token.

    Returns:
        tokens [T], and σ in the unit of the states: √(Σ r² / T w), a little too small where the noise is so large that the
        nearest token is often not the one.
    """
    ids = torch.zeros(1, 0, dtype=torch.int64) if start is None else start[None]
    begun, goal = ids.shape[1], seen.double().cpu()
    every = torch.arange(cut.vocabulary_size)
    squares, beliefs = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    for place, target in enumerate(goal):
        behind = Prefix(cut, ids)
        rows = torch.arange(len(ids)).repeat_interleave(len(every)).to(cut.lens.device)
        points = behind.evaluate(rows, every.repeat(len(ids)).to(cut.lens.device)).cpu().double()
        far = (points - target).square().sum(1).unflatten(0, (len(ids), -1)) + squares[:, None]
        shares = prior(ids)[:, -1].log() if ids.shape[1] else torch.zeros(1, len(every), dtype=torch.float64)
        belief = beliefs[:, None] + shares
        score = belief - (place + 1) * goal.shape[1] / 2 * far.clamp_min(1e-300).log()
        best = score.flatten().topk(min(beam, score.numel())).indices
        best = best[score.flatten()[best] > -math.inf]
        ids = torch.cat([ids[best // len(every)], (best % len(every))[:, None]], 1)
        squares, beliefs = far.flatten()[best], belief.flatten()[best]
        if progress:
            progress("reading through noise", place + 1, len(goal), "tokens")
    return ids[0, begun:], float((squares[0] / goal.numel()).sqrt())


@torch.no_grad()
def estimated(
    cut: SlicedModel, seen: Float[Tensor, "T w"], ids: Int[Tensor, " T"], read: Int[Tensor, " T"], sigma_read: float,
    scale: float,
) -> OutsideStates:  # fmt: skip
    """The noise of states [T, w] whose tokens are known, beside what `read_through_noise` gave without knowing them.

    `scale` is the rms of the site's centred coordinates: the unit of the result's `noise`.
    """
    left = (seen.double().cpu() - cut.run(ids[None].to(cut.lens.device))[0].double().cpu()).flatten()
    count, power = left.numel(), float(left.square().mean())
    sigma = power**0.5
    low, high = (sigma * (count / float(stats.chi2.ppf(share, count))) ** 0.5 for share in (0.975, 0.025))
    return OutsideStates(
        tokens=len(ids), sigma=sigma, sigma_interval=(low, high), sigma_read=sigma_read, noise=sigma / scale,
        kurtosis=float(left.pow(4).mean()) / power**2 - 3 if power else None,
        accuracy=float((read.cpu() == ids.cpu()).double().mean()), strings=display(cut.lens.tokenizer, read.tolist()),
    )  # fmt: skip


# ---- States of a text that were handed over in another order: their tokens and their places.


@dataclass(frozen=True)
class Unshuffled:
    """The tokens in order, the row of what leaked that is each one's, and its relative residual."""

    tokens: list[int]
    rows: list[int]
    residuals: list[float]


@torch.no_grad()
def unshuffle(cut: SlicedModel, seen: Float[Tensor, "T w"], *, progress: Progress | None = None) -> Unshuffled:
    """Find the tokens of states that leaked in a secret order of the positions.

    In a causal model the state of the first token is that of the token alone, the second's that of two tokens, and so on: after
    the tokens found, every token is run and compared with every state that is left. The nearest pair is the next token.

    `cut` is a causal slice; of coordinates that were permuted, too, a `Mapped` one that sorts them. Cost: V runs a token, and
    V · T · w multiplications.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> from headscan.model import Lens
    >>> from headscan.model.slicing import Slice
    >>> lens = Lens(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2)))
    >>> cut = Slice(sites=("block.1",)).on(lens)
    >>> unshuffle(cut, cut.run([[7, 3, 5, 7]])[0][[2, 0, 3, 1]]).tokens
    [7, 3, 5, 7]
    """
    refuse_unordered(cut)
    goal = seen.to(cut.lens.device).float()
    every = torch.arange(cut.vocabulary_size, device=cut.lens.device)
    left, found = list(range(len(goal))), Unshuffled([], [], [])
    prefix = Prefix(cut, torch.zeros(1, 0, dtype=torch.int64))
    while left:
        points = prefix.evaluate(torch.zeros_like(every), every)
        far = torch.stack([relative(points, goal[row].expand_as(points)) for row in left])
        place, token = divmod(int(far.argmin()), len(every))
        found.tokens.append(token)
        found.rows.append(left.pop(place))
        found.residuals.append(float(far.min()))
        if left:
            prefix.extend(every[token].view(1, 1))
        if progress:
            progress("unshuffling", len(found.tokens), len(goal), "tokens")
    return found


# ---- Where in its context a leaked cache begins, if that is not known: its first token and its offset together.

SHORT = 256
BATCH = 4096


@dataclass(frozen=True, kw_only=True)
class FoundOffset:
    """A first token and where it stands."""

    offset: int
    token: int
    residual: float  # relative distance of the nearest token and offset
    # least distance of any token at another offset: where it is not larger, the offset is not told by what leaked
    # (values, in a model with rotary positions, are the same at every offset)
    rival: float
    evaluations: int  # tokens that were run

    @property
    def told(self) -> bool:
        return self.residual < 0.5 * self.rival


@torch.no_grad()
def find_offset(
    cut: CacheSlice, first: Float[Tensor, " w"], *, offsets: int | None = None, form: NumberFormat | None = None,
    progress: Progress | None = None,
) -> FoundOffset:  # fmt: skip
    """The offset of a cache from its first entry.

    A rotary angle turns keys and leaves the length of each head's key as it is: tokens are ranked by these lengths at offset
    0, and the nearest 256 are run at every offset. Where lengths change with the offset (learned positions) every token is run
    at every offset.

    Args:
        cut: the cache at offset 0: layers, part and heads that leaked.
        first: [w] what it holds of the first token that was read.
        offsets: how many are tried, from 0; the context by default.
        form: the number format of the cache: candidates are rounded as it was.

    Raises BadInput for a model that is not told positions, or of which no context is known where none is given.

    Cost: V + 256 · offsets runs of one token with rotary positions, V · offsets with learned ones.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> from headscan.model import Lens
    >>> from headscan.model.slicing.prefix import cache_slice
    >>> config = LlamaConfig(vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
    ...                      num_attention_heads=2, max_position_embeddings=64)
    >>> lens = Lens(LlamaForCausalLM(config))
    >>> leaked = cache_slice(lens, [0], "keys", offset=37).run([[5, 6, 7]])
    >>> found = find_offset(cache_slice(lens, [0], "keys"), leaked[0, 0])
    >>> found.offset, found.token, found.told
    (37, 5, True)
    """
    lens, count = cut.lens, offsets or cut.lens.context_length
    if not cut.takes("position_ids") or count is None:
        raise BadInput(f"The offset of a cache of '{lens.name}' is not known to be told: give the number of offsets.")

    def run(tokens: Tensor, offset: int) -> Tensor:
        """[n, w] of each token at that position, nothing being before it."""
        place = {"position_ids": torch.full((1, 1), offset, device=tokens.device)}
        return torch.cat([cut.states(part[:, None], extra=dict(place))[:, 0].float() for part in tokens.split(BATCH)])

    def lengths(values: Tensor) -> Tensor:
        """The length of each head's vector."""
        return torch.as_tensor(values.float().unflatten(-1, (-1, cut.size)).norm(dim=-1))

    goal, rounded = first.to(lens.device).float(), same if form is None else form.each(cut.parts)
    every = torch.arange(cut.vocabulary_size, device=lens.device)
    here, there = run(every, 0), run(every[:SHORT], count - 1)
    turned = bool(relative(lengths(there), lengths(here[:SHORT])).max() < 1e-3)
    short = relative(lengths(here), lengths(first.to(here)).expand(len(here), -1)).argsort()[:SHORT]
    some = short if turned else every
    best: list[tuple[float, int]] = []
    for offset in range(count):
        far = relative(rounded(run(some, offset)), goal)
        low, place = far.min(0)
        best.append((float(low), int(some[place])))
        if progress:
            progress("offsets", offset + 1, count, "offsets")
    offset = min(range(count), key=lambda one: best[one][0])
    rival = min((far for one, (far, _) in enumerate(best) if one != offset), default=float("inf"))
    return FoundOffset(
        offset=offset, token=best[offset][1], residual=best[offset][0], rival=rival,
        evaluations=len(every) + len(there) + count * len(some),
    )  # fmt: skip
