"""The cached table: what a slice returns for every token of the vocabulary, at the first position and after some text."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Float, Int
from safetensors.torch import load_file, save
from torch import Tensor

from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import Prefix
from headscan.model.slicing.specification import split_on_exhaustion
from headscan.run import Progress, write_atomic

# Below this many numbers a table is made faster than it is read.
WORTH_KEEPING = 8_000_000
COMPONENTS = 24
# Tokens before the second part of the table: enough that attention is shared out, few enough to cost nothing.
CONTEXT = 4
STEP = 512
TABLE = "table of one-token outputs"


@dataclass
class FirstPositions:
    """Outputs of every token, alone and after a short text of the model's own, and what is computed from them once.

    Attributes:
        outputs: float32 [V, w'], F_0: at position 0, with nothing before it.
        change: float32 [V, w'], F_c - F_0: what a short text before it changes. Attention gives a lone token all of its
            own value and a later one a share, which differs from token to token: no constant shift tells that.
        built: forward passes (tokens) that were needed now; 0 if it was read from disk.
    """

    outputs: Float[Tensor, "V w"]
    change: Float[Tensor, "V w"]
    built: int = 0

    def __repr__(self) -> str:
        return f"FirstPositions({len(self.outputs)} tokens, {self.outputs.shape[1]} features)"

    @cached_property
    def products(self) -> tuple[Tensor, Tensor, Tensor]:
        """F_0.F_0, F_0.change and change.change of each token, [V] each."""
        parts = [
            torch.stack([(f * f).sum(1), (f * g).sum(1), (g * g).sum(1)])
            for f, g in zip(self.outputs.split(4096), self.change.split(4096), strict=True)
        ]
        one, two, three = torch.cat(parts, dim=1)
        return one, two, three

    @cached_property
    def coordinates(self) -> Tensor:
        """[V, k]: the tokens on the table's first principal directions, each of unit variance."""
        centred = self.outputs - self.outputs.mean(0)
        count = min(COMPONENTS, *centred.shape)
        # The d x d second moment is enough, and V rows of it cost one product.
        values, vectors = torch.linalg.eigh((centred.T.double() @ centred.double()) / len(centred))
        values, vectors = values.flip(0)[:count], vectors.flip(1)[:, :count]
        found: Tensor = ((centred.double() @ vectors) / values.clamp_min(1e-30).sqrt()).float()
        return found


def table_of(cut: SlicedModel, *, progress: Progress | None = None, keep: bool = True) -> FirstPositions:
    """The table of a slice: from memory, else from disk, else by one pass over the vocabulary.

    Args:
        cut: the slice on its model.
        progress: called with (name, done, all).
        keep: write a large table to the cache folder (`HEADSCAN_CACHE`, else `~/.cache/headscan`), where the next run
            with the same weights and slice finds it.

    Cost: 2 V forward passes of one token, once a model and slice (without a key-value cache, V of them of five tokens).
    """
    return cut.once(TABLE, lambda: _read_or_build(cut, progress, keep))


def share_table(whole: SlicedModel, part: SlicedModel) -> None:
    """Give a slice that keeps some features of another one the columns of its table, so that no second one is made.

    Cost: the table of `whole`, where it has none yet.
    """

    def columns() -> FirstPositions:
        table = table_of(whole)
        return FirstPositions(part.features(table.outputs).contiguous(), part.features(table.change).contiguous())

    part.once(TABLE, columns)


def passes_of_table(cut: SlicedModel) -> int:
    """Tokens that are run for the table of a slice."""
    return 2 * cut.vocabulary_size


def _read_or_build(cut: SlicedModel, progress: Progress | None, keep: bool) -> FirstPositions:
    large = cut.vocabulary_size * cut.width >= WORTH_KEEPING
    path = cache_folder() / "tables" / f"{fingerprint(cut)}.safetensors" if large and keep else None
    if path is not None and path.is_file():
        saved = load_file(path)
        return FirstPositions(saved["outputs"].to(cut.lens.device), saved["change"].to(cut.lens.device))
    table = _build(cut, progress)
    if path is not None:
        _write(path, table)
    return table


@torch.no_grad()
def _build(cut: SlicedModel, progress: Progress | None) -> FirstPositions:
    prefix = Prefix(cut, _context(cut))
    parts: list[list[Tensor]] = [[], []]
    total, done, batch = passes_of_table(cut), 0, STEP
    for number, before in enumerate((Prefix(cut, prefix.ids[:, :0]), prefix)):
        for tokens in torch.arange(cut.vocabulary_size, device=cut.lens.device).split(STEP):
            if before.length:
                found = before.evaluate(torch.zeros_like(tokens), tokens)
            else:
                # Without a cache: at the first position there is nothing to read from it.
                def run(part: slice, tokens: Tensor = tokens) -> Tensor:
                    return cut.states(inputs_embeds=cut.embed(tokens[part])[:, None])[:, 0].float()

                found, batch, _ = split_on_exhaustion(run, len(tokens), batch)
            parts[number].append(found)
            done += len(tokens)
            if progress:
                progress("table of the vocabulary", done, total, "tokens")
        if not prefix.length:  # a model of one position has no later ones
            parts[1] = [torch.zeros_like(one) for one in parts[0]]
            break
    # What is no number predicts nothing; the candidates themselves are judged by what they really give.
    outputs, later = (torch.cat(part).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0) for part in parts)
    change = later - outputs if prefix.length else later
    return FirstPositions(outputs, change, built=done)


def _context(cut: SlicedModel) -> Tensor:
    """A short text [1, c] that the model itself would write; random tokens where it has no head that would."""
    lens = cut.lens
    length = min(CONTEXT, (lens.context_length or CONTEXT + 1) - 1)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, cut.vocabulary_size, (1, length), generator=generator)
    heads = [site for site in lens.sites if site == "head"]
    for place in range(1, length) if heads else ():
        logits = lens.run(ids[:, :place].to(lens.device), sites="head")["head"][:, -1].float().cpu()
        if logits.shape[-1] == cut.vocabulary_size and bool(logits.isfinite().all()):
            ids[:, place] = torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]
    return ids


def _write(path: Path, table: FirstPositions) -> None:
    parts = {"outputs": table.outputs.cpu().contiguous(), "change": table.change.cpu().contiguous()}
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time, not correctness
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, save(parts))


def cache_folder() -> Path:
    """Where tables are kept between runs."""
    return Path(os.environ.get("HEADSCAN_CACHE") or Path.home() / ".cache" / "headscan")


def fingerprint(cut: SlicedModel) -> str:
    """A name for these weights cut so: equal for equal weights and slices, whoever loaded them."""
    digest = hashlib.blake2b(digest_size=16)
    what = cut.document() | {"parts": 2, "class": type(cut.lens.model).__name__}
    digest.update(json.dumps(what, sort_keys=True).encode())
    for name, parameter in cut.lens.model.named_parameters():
        values = parameter.detach().reshape(-1)
        sums = torch.stack([values.double().sum(), values.double().abs().sum()]).cpu()
        digest.update(f"{name} {tuple(parameter.shape)} {parameter.dtype}".encode())
        digest.update(sums.numpy().tobytes() + values[:: max(1, len(values) // 64)].double().cpu().numpy().tobytes())
    return digest.hexdigest()


# ---- A linear readout: which tokens fit an output, told for the whole vocabulary by one product.
#
# A slice's output is modelled as h = F (e_v - mean of e) + mean of h + rest, with e_v the vector of the token that went in
# and a rest, of covariance S, that other tokens and the model's curves cause. F is a ridge regression from vectors to outputs.
# A token is scored by the cosine, in the metric of S, of h - mean of h with what F gives for it:
#
#     score(v) = (h - mean)' S^-1 F (e_v - mean) / ||F (e_v - mean)||_S
#
# the likelihood of h where it is not known how strongly a token shows (a matched filter). Dividing by the length matters:
# tokens that were never trained lie together near the mean, so that any distance puts thousands of them before a rare token
# (measured on Qwen2.5-Coder-1.5B, block 2, prompts of names, German and code: mean rank 1.8 against 2,060 by distance, and
# 3,700 by the cosine of an ordinary ridge readout). All sums are streamed, so that the fit is one pass of a few thousand tokens.

# Of outputs wider than this (logits) so many features are read, evenly spaced.
WIDEST = 4096
# The rest's covariance is shrunk towards its diagonal by this share and one that falls with the tokens seen.
SHRUNK = 1e-3
RIDGE = 1e-2
ROWS = 8192


@dataclass(frozen=True, eq=False)
class TokenReadout:
    """The scores of all tokens for outputs of a slice.

    Attributes:
        mean: [w] of the outputs, of the features read; centre: [e] of the vectors.
        filter: [w, e]: S^-1 F.
        metric: [e, e]: F' S^-1 F, by which the predicted outputs of two tokens lie apart.
        lengths: [V]: ||F (e_v - centre)|| in that metric.
        columns: the features that are read, or None for all.
    """

    mean: Float[Tensor, " w"]
    centre: Float[Tensor, " e"]
    filter: Float[Tensor, "w e"]
    metric: Float[Tensor, "e e"]
    lengths: Float[Tensor, " V"]
    columns: Int[Tensor, " w"] | None = None

    def __repr__(self) -> str:
        return f"TokenReadout({len(self.mean)} features to {len(self.lengths)} tokens)"

    def scores(self, vectors: Float[Tensor, "V e"], outputs: Float[Tensor, "N w"]) -> Float[Tensor, "N V"]:
        """How well each token fits each output; the larger the better, in units of the rest's standard deviation."""
        seen = outputs if self.columns is None else outputs[:, self.columns]
        wanted = (seen - self.mean) @ self.filter
        along = _products(vectors, wanted.T).T - (wanted @ self.centre)[:, None]
        return along / self.lengths.clamp_min(1e-20)

    def distances(self, vectors: Float[Tensor, "V e"], tokens: Int[Tensor, " N"]) -> Float[Tensor, "N V"]:
        """The squared distance of every token's predicted output from those of `tokens`, each row up to a constant."""
        toward = self.metric @ (vectors[tokens].float() - self.centre).T
        return self.lengths.square() - 2 * _products(vectors, toward).T


class ReadoutSums:
    """Streamed second moments of outputs and vectors together, from which a `TokenReadout` is solved.

    Memory: (w + e)^2 numbers of 8 bytes, whatever the number of tokens.

    >>> table, generator = torch.eye(5), torch.Generator().manual_seed(0)
    >>> tokens, mix = torch.arange(5).repeat(200), torch.randn(5, 7, generator=generator)
    >>> outputs = table[tokens] @ mix + 0.1 * torch.randn(1000, 7, generator=generator)
    >>> moments = ReadoutSums(7)
    >>> moments.update(table[tokens], outputs)
    >>> moments.solve(table).scores(table, outputs[:5]).argmax(1).tolist()
    [0, 1, 2, 3, 4]
    """

    def __init__(self, width: int) -> None:
        self.columns = None if width <= WIDEST else torch.linspace(0, width - 1, WIDEST).round().long()
        self.count = 0
        self._sums: tuple[Tensor, Tensor] | None = None
        self._pilot: Tensor | None = None

    def update(self, vectors: Float[Tensor, "N e"], outputs: Float[Tensor, "N w"]) -> None:
        """Add tokens' vectors and what the slice gave for them; those with NaN or infinity are left out."""
        seen = outputs if self.columns is None else outputs[:, self.columns.to(outputs.device)]
        both = torch.cat([vectors.double(), seen.double()], dim=1)
        both = both[both.isfinite().all(1)]
        if not len(both):
            return
        if self._pilot is None or self._sums is None:
            self._pilot = both.mean(0)
            self._sums = torch.zeros_like(self._pilot), both.new_zeros(both.shape[1], both.shape[1])
        both = both - self._pilot
        self._sums[0].add_(both.sum(0))
        self._sums[1].addmm_(both.T, both)
        self.count += len(both)

    def solve(self, vectors: Float[Tensor, "V e"]) -> TokenReadout:
        """The readout of a vocabulary [V, e]. Cost: V e^2 + (w + e)^3 products."""
        assert self._sums is not None
        assert self._pilot is not None
        width = vectors.shape[1]
        shift = self._sums[0] / self.count
        mean, moment = self._pilot + shift, self._sums[1] / self.count - torch.outer(shift, shift)
        inputs, cross, outputs = moment[:width, :width], moment[:width, width:], moment[width:, width:]
        forward = _solved(inputs, cross, torch.full_like(inputs[0], RIDGE * float(inputs.diagonal().mean())))
        explained = forward.T @ cross
        rest = outputs - explained - explained.T + forward.T @ inputs @ forward
        share = SHRUNK + len(rest) / (8 * self.count)
        fitting = _solved(rest, forward.T, share * rest.diagonal() + 1e-12 * outputs.diagonal().mean())
        metric = forward @ fitting
        centre, narrow = mean[:width].float(), metric.float()
        moved = (rows.float() - centre for rows in vectors.split(ROWS))
        squares = [(rows @ narrow * rows).sum(1) for rows in moved]
        return TokenReadout(
            mean=mean[width:].float(), centre=centre, filter=fitting.float(), metric=narrow,
            lengths=torch.cat(squares).clamp_min(0).sqrt(), columns=self.columns,
        )  # fmt: skip


def _products(vectors: Tensor, right: Tensor) -> Tensor:
    """vectors @ right in float32, without a copy of a table of lower precision."""
    return torch.cat([rows.float() @ right for rows in vectors.split(ROWS)])


def _solved(matrix: Tensor, right: Tensor, ridge: Tensor) -> Tensor:
    """(matrix + diag(ridge))^-1 right, for a positive semidefinite matrix."""
    found: Tensor = torch.linalg.solve(matrix + torch.diag(ridge.clamp_min(1e-30)), right)
    return found
