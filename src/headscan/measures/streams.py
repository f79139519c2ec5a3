"""The terms that the states of a residual stream are sums of: a plan from the model's structure,
and the sums of one batch that follows it.

With the factor of each norm on the stream held constant (`headscan.model.norms`), the state of a
token at a site is a sum: the embedding and every branch so far, each carried through the norms
between, and the norms' own biases.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor, nn

from headscan.model import Lens
from headscan.model.norms import Norm, rows_at_once
from headscan.model.stacks import Stack
from headscan.statistics import PartSums, SiteBatch


@dataclass(frozen=True)
class StreamPoint:
    """The number of sources and of factors that a stream has passed at a site."""

    sources: int
    factors: int


@dataclass(frozen=True, eq=False)
class Plan:
    """The terms and norms of one stack's stream, as far as the deepest site of the scan.

    Attributes:
        sources: the sites whose states are added up: the embedding, branches, or blocks whose
            parts are not known.
        born: the number of factors that had passed when each source was added.
        factors: the norms on the stream, in order; None for a plain factor (RWKV halves its
            stream).
        steps: for each site on the stream, the steps since the previous site: a source to add, or
            the number of a factor.
        points: the sites on the stream, in order.
        copied: sites whose tensors the model changes afterwards.
    """

    prefix: str
    sources: tuple[str, ...]
    born: tuple[int, ...]
    factors: tuple[Norm | None, ...]
    steps: Mapping[str, tuple[str | int, ...]]
    points: Mapping[str, StreamPoint]
    copied: frozenset[str]

    @classmethod
    def of(cls, lens: Lens, stack: Stack, sites: Sequence[str]) -> Self | None:
        """Return the plan as far as the deepest of `sites`.

        It is None where none of the sites is on this stack's stream.
        """
        prefix = stack.prefix
        start = f"{prefix}embedding"
        blocks = [f"{prefix}block.{index}" for index in range(stack.depth)]
        stream = [start, *blocks, f"{prefix}final_norm"]
        depths = [depth for depth, site in enumerate(stream) if site in sites]
        if not depths:
            return None

        sources = [start]
        born = [0]
        factors = list[Norm | None]()
        steps: dict[str, tuple[str | int, ...]] = {}
        points = {start: StreamPoint(1, 0)}
        for number, site in enumerate(stream[1 : depths[-1] + 1]):
            site_steps: list[str | int] = []
            for part in _parts_before(lens, stack, number, site):
                if isinstance(part, str):
                    sources.append(part)
                    born.append(len(factors))
                    site_steps.append(part)
                else:
                    site_steps.append(len(factors))
                    factors.append(part)
            steps[site] = tuple(site_steps)
            points[site] = StreamPoint(len(sources), len(factors))
        copied = frozenset(site for site in (*sources, *points) if lens.tap(site).overwritten)
        return cls(prefix, tuple(sources), tuple(born), tuple(factors), steps, points, copied)

    @property
    def passing(self) -> tuple[str, ...]:
        """The sites whose states are needed: those on the stream and the sources."""
        return tuple(dict.fromkeys((*self.points, *self.sources)))

    @property
    def last(self) -> str:
        """The deepest site of the plan."""
        return tuple(self.points)[-1]

    def carried(self, site: str, sources: Tensor, constants: Tensor) -> tuple[Tensor, Tensor]:
        """Return the terms of the states at `site` and the biases in them, both [..., n, d].

        They are made from weighted sums of sources [..., sources, d] and of norms' biases
        [..., factors]: each goes through the norms that come after it.
        """
        point = self.points[site]
        terms = sources.new_zeros(*constants.shape[:-1], 0, sources.shape[-1])
        biases = terms
        for number in range(point.factors + 1):
            born_here = [k for k in range(point.sources) if self.born[k] == number]
            terms = torch.cat([terms, sources[..., born_here, :]], dim=-2)
            if number == point.factors:
                break
            norm = self.factors[number]
            if norm is None:
                bias = torch.zeros(sources.shape[-1], dtype=torch.float64)
            else:
                bias = norm.bias
                terms = norm.linear(terms)
                biases = norm.linear(biases)
            weighted_bias = constants[..., number, None, None] * bias.to(sources.device)
            biases = torch.cat([biases, weighted_bias], dim=-2)
        return terms, biases


def _parts_before(lens: Lens, stack: Stack, number: int, site: str) -> list[str | Norm | None]:
    """Return the steps of the stream from the previous site to this one, block `number` or the
    final norm.

    A step is a source by its site, a norm, or None for a plain factor. A block whose parts are not
    known, or with a norm that is not known, is one source.
    """
    modules: tuple[str | nn.Module, ...] | None = (stack.taps[site].module,)
    if number < stack.depth:
        modules = stack.steps[number]

    parts: list[str | Norm | None] = []
    for module in modules or ():
        if isinstance(module, nn.Module):
            parts.append(Norm.of(module, lens.width(site)))
        else:
            parts.append(module)
    if modules is None or None in parts:
        parts = [site]
    if number < stack.depth and stack.taps[site].where == "input":
        parts.append(None)
    return parts


@dataclass(frozen=True, eq=False)
class Receiver:
    """A site that sums are made for, with the weight of each token, 1/‖x‖."""

    site: str
    sums: PartSums
    weight: Tensor


@dataclass(eq=False)
class Followed:
    """One batch along a stream: its sources and factors so far, and the sums to add them to.

    Memory: the sources of one batch in the model's own precision, tokens·sources·d numbers, until
        the deepest site.

    Attributes:
        plan: the plan of the stream.
        device: where the sums are made.
        stream: the states at the last site on the stream.
        sources: the states of the sources so far, by site.
        factors: the factors of the norms so far, by token.
        receivers: the sites with sums so far.
        windows: the numbers of the batch's windows.
    """

    plan: Plan
    device: torch.device
    stream: Tensor | None = None
    sources: dict[str, Tensor] = field(default_factory=dict)
    factors: list[Tensor] = field(default_factory=list)
    receivers: list[Receiver] = field(default_factory=list)
    windows: list[int] = field(default_factory=list)

    def _restart(self) -> None:
        """Forget the batch."""
        self.stream = None
        self.sources = {}
        self.factors = []
        self.receivers = []

    def see(self, batch: SiteBatch) -> None:
        """Take note of the states of a site that the model passes."""
        site = batch.site
        states = batch.states
        if site in self.plan.copied:
            states = states.clone()
        if site not in self.plan.points:
            self.sources[site] = states
            return

        if site == self.plan.sources[0]:
            self._restart()
            self.sources[site] = states
        else:
            assert self.stream is not None
            self._step(self.stream, self.plan.steps[site], site, states)
        self.stream = states

    def _step(self, x: Tensor, steps: tuple[str | int, ...], site: str, states: Tensor) -> None:
        """Follow the steps from the stream's states x to its states at this site."""
        for number, step in enumerate(steps):
            if isinstance(step, str):
                if step == site:
                    self.sources[site] = states - x
                # The sum is needed where a norm reads it or the site itself is a source.
                if any(isinstance(later, int) or later == site for later in steps[number + 1 :]):
                    x = x + self.sources[step]
                continue
            norm = self.plan.factors[step]
            if norm is None:
                squares = x.double().square().sum(-1)
                products = (states.double() * x.double()).sum(-1)
                self.factors.append(torch.where(squares > 0, products / squares, 0.0))
                continue
            is_last = number + 1 == len(steps)
            y = states if is_last else norm.module.forward(x)
            self.factors.append(norm.factors(x.to(self.device), y.to(self.device)))
            x = y

    def keep(self, sums: PartSums, batch: SiteBatch) -> None:
        """Note that the sums of this batch's site receive the terms; `settle` adds them."""
        weight = torch.where(batch.norms > 0, 1 / batch.norms, 0.0)
        self.receivers.append(Receiver(batch.site, sums, weight))
        self.windows = batch.windows

    def _weights(self, receiver: Receiver) -> list[Tensor]:
        """Return the weights, at a site, of the terms added before each factor, and
        after the last.
        """
        weights = [receiver.weight]
        for number in range(self.plan.points[receiver.site].factors - 1, -1, -1):
            weights.insert(0, weights[0] * self.factors[number])
        return weights

    def _add_source(self, source: int, weights: list[list[Tensor]]) -> None:
        """Add the weighted sums of one source's states to the sites behind it."""
        using = [
            k
            for k, receiver in enumerate(self.receivers)
            if self.plan.points[receiver.site].sources > source
        ]
        if not using:
            return

        states = self.sources[self.plan.sources[source]].to(self.device)
        born = self.plan.born[source]
        source_weights = torch.stack([weights[k][born] for k in using])
        runs = [list(self.receivers[k].sums.runs(self.windows)) for k in using]
        for number, (_, rows) in enumerate(runs[0]):
            totals = _weighted_sums(states[rows].flatten(0, 1), source_weights[:, rows].flatten(1))
            for run, total in zip(runs, totals, strict=True):
                tally = run[number][0]
                tally["sources"][source] += total

    def settle(self) -> None:
        """Add the terms of the batch to the sums of every site, and forget the batch."""
        weights = [self._weights(receiver) for receiver in self.receivers]
        for receiver, site_weights in zip(self.receivers, weights, strict=True):
            if len(site_weights) == 1:
                continue
            for tally, rows in receiver.sums.runs(self.windows):
                tally["constants"] += torch.stack(
                    [weight[rows].sum() for weight in site_weights[1:]]
                )
        for source in range(len(self.plan.sources)):
            self._add_source(source, weights)
        self._restart()


def _weighted_sums(vectors: Tensor, weights: Tensor) -> Tensor:
    """Return the sums [K, d] of vectors [n, d] under each row of the weights [K, n], float64."""
    totals = torch.zeros(
        len(weights), vectors.shape[-1], dtype=torch.float64, device=vectors.device
    )
    step = rows_at_once(vectors)
    pieces = zip(vectors.split(step), weights.split(step, dim=1), strict=True)
    for piece, piece_weights in pieces:
        totals.addmm_(piece_weights, piece.double())
    return totals
