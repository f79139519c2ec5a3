"""What the states of a residual stream are sums of: a plan from the model's structure, and one
batch followed along it.

With the factor of each norm on the stream held still (`headscan.model.norms`), the state of a
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
class StreamPlace:
    """A site on a stream: how many sources and how many factors it has behind it."""

    sources: int
    factors: int


@dataclass(frozen=True, eq=False)
class Plan:
    """One stack's stream as far as the deepest site that is asked for.

    Attributes:
        sources: what is added up, by site: the embedding, branches, or whole blocks of which no
            more is known.
        born: how many factors had passed when each source was added.
        factors: the norms on the stream, in order; None for a plain factor (RWKV halves its
            stream).
        steps: for each site where the stream is seen anew, what is done before: a source to add, or
            the number of a factor.
        places: the sites on the stream.
        copied: sources whose tensors the model goes on to change.
    """

    prefix: str
    sources: tuple[str, ...]
    born: tuple[int, ...]
    factors: tuple[Norm | None, ...]
    steps: Mapping[str, tuple[str | int, ...]]
    places: Mapping[str, StreamPlace]
    copied: frozenset[str]

    @classmethod
    def of(cls, lens: Lens, stack: Stack, sites: Sequence[str]) -> Self | None:
        """The plan as far as the deepest of `sites`; None where none of them is on this stack's
        stream.
        """
        prefix, start = stack.prefix, f"{stack.prefix}embedding"
        stream = [
            start,
            *(f"{prefix}block.{index}" for index in range(stack.depth)),
            f"{prefix}final_norm",
        ]
        depths = [number for number, site in enumerate(stream) if site in sites]
        if not depths:
            return None
        sources = [start]
        born = [0]
        factors = list[Norm | None]()
        steps: dict[str, tuple[str | int, ...]] = {}
        points = {start: StreamPlace(1, 0)}
        for number, site in enumerate(stream[1 : depths[-1] + 1]):
            parts: tuple[str | nn.Module, ...] | None = (stack.taps[site].module,)
            if number < stack.depth:
                parts = stack.steps[number]
            norms = {
                id(part): Norm.of(part, lens.width(site))
                for part in parts or ()
                if isinstance(part, nn.Module)
            }
            done: list[str | int] = []
            if parts is None or None in norms.values():
                parts = (site,)  # the whole block is one source
            for part in parts:
                if isinstance(part, str):
                    sources.append(part)
                    born.append(len(factors))
                    done.append(part)
                else:
                    done.append(len(factors))
                    factors.append(norms[id(part)])
            if number < stack.depth and stack.taps[site].where == "input":
                done.append(len(factors))
                factors.append(None)
            steps[site] = tuple(done)
            points[site] = StreamPlace(len(sources), len(factors))
        copied = frozenset(part for part in (*sources, *points) if lens.tap(part).overwritten)
        return cls(prefix, tuple(sources), tuple(born), tuple(factors), steps, points, copied)

    @property
    def passing(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.places, *self.sources)))

    @property
    def last(self) -> str:
        return tuple(self.places)[-1]

    def carried(self, site: str, sources: Tensor, constants: Tensor) -> tuple[Tensor, Tensor]:
        """Weighted sums of sources [..., sources, d] and of norms' biases [..., factors] as vectors
        at `site`, both [..., n, d]: each goes through the norms that come after it.
        """
        point = self.places[site]
        none = sources.new_zeros(*constants.shape[:-1], 0, sources.shape[-1])
        terms = none
        biases = none
        for number in range(point.factors + 1):
            born_here = [k for k in range(point.sources) if self.born[k] == number]
            terms = torch.cat([terms, sources[..., born_here, :]], dim=-2)
            if number == point.factors:
                break
            if (norm := self.factors[number]) is not None:
                terms = norm.linear(terms)
                biases = norm.linear(biases)
            bias = (
                torch.zeros(sources.shape[-1], dtype=torch.float64) if norm is None else norm.bias
            )
            biases = torch.cat(
                [biases, constants[..., number, None, None] * bias.to(sources.device)], dim=-2
            )
        return terms, biases


@dataclass(eq=False)
class Followed:
    """One batch on its way along a stream: the sources as they come, the factors, and the sites
    that keep sums.

    Memory: the sources of one batch in the model's own precision, tokens·sources·d numbers, until
        the deepest site.
    """

    plan: Plan
    device: torch.device
    stream: Tensor | None = None
    held: dict[str, Tensor] = field(default_factory=dict)
    factors: list[Tensor] = field(default_factory=list)
    kept: list[tuple[str, PartSums, Tensor]] = field(default_factory=list)
    windows: list[int] = field(default_factory=list)

    def see(self, batch: SiteBatch) -> None:
        """A site was passed."""
        site = batch.site
        states = batch.states
        states = states.clone() if site in self.plan.copied else states
        if site not in self.plan.places:
            self.held[site] = states
            return
        if site == self.plan.sources[0]:
            self.held = {site: states}
            self.factors = []
            self.kept = []
        else:
            assert self.stream is not None
            self._step(self.stream, self.plan.steps[site], site, states)
        self.stream = states

    def _step(self, x: Tensor, steps: tuple[str | int, ...], site: str, states: Tensor) -> None:
        for number, step in enumerate(steps):
            if isinstance(step, str):
                if step == site:
                    self.held[site] = states - x
                if any(isinstance(later, int) or later == site for later in steps[number + 1 :]):
                    x = x + self.held[step]
                continue
            norm = self.plan.factors[step]
            last = number + 1 == len(steps)
            if norm is None:
                squares = x.double().square().sum(-1)
                self.factors.append(
                    torch.where(squares > 0, (states.double() * x.double()).sum(-1) / squares, 0.0)
                )
                continue
            y = states if last else norm.module.forward(x)
            self.factors.append(norm.factors(x.to(self.device), y.to(self.device)))
            x = y

    def keep(self, sums: PartSums, batch: SiteBatch) -> None:
        """This site keeps sums; at the deepest of them all is added up."""
        self.kept.append((batch.site, sums, torch.where(batch.norms > 0, 1 / batch.norms, 0.0)))
        self.windows = batch.windows

    def settle(self) -> None:
        """Add what was followed to the sums that are kept."""
        weights: list[
            list[Tensor]
        ] = []  # by site: of what was added before the first factor, the second, ... the last
        for site, sums, weight in self.kept:
            site_weights = [weight]
            for number in range(self.plan.places[site].factors - 1, -1, -1):
                site_weights.insert(0, site_weights[0] * self.factors[number])
            weights.append(site_weights)
            for tally, rows in sums.runs(self.windows):
                tally["constants"] += (
                    torch.stack([factor_weight[rows].sum() for factor_weight in site_weights[1:]])
                    if site_weights[1:]
                    else 0.0
                )
        for source, (name, born) in enumerate(zip(self.plan.sources, self.plan.born, strict=True)):
            using = [
                k
                for k, (site, _, _) in enumerate(self.kept)
                if self.plan.places[site].sources > source
            ]
            if not using:
                continue
            states = self.held[name].to(self.device)
            source_weights = torch.stack([weights[k][born] for k in using])
            runs = [list(self.kept[k][1].runs(self.windows)) for k in using]
            for number, (_, rows) in enumerate(runs[0]):
                totals = torch.zeros(
                    len(using), states.shape[-1], dtype=torch.float64, device=self.device
                )
                flat = states[rows].flatten(0, 1)
                weighted = source_weights[:, rows].flatten(1)
                for part, weight_chunk in zip(
                    flat.split(rows_at_once(flat)),
                    weighted.split(rows_at_once(flat), dim=1),
                    strict=True,
                ):
                    totals.addmm_(weight_chunk, part.double())
                for run, factor_weight in zip(runs, totals, strict=True):
                    run[number][0]["sources"][source] += factor_weight
        self.stream = None
        self.held = {}
        self.factors = []
        self.kept = []
