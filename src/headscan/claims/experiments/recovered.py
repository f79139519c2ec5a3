"""How much of a prompt the published descent finds again, with a search of the same outputs beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal, Self

from torch import Tensor

from headscan.claims.experiment import (
    EXPERIMENTS,
    PROMPTS,
    Experiment,
    ExperimentOutcome,
    ExperimentWords,
    enough,
    own_seeds,
)
from headscan.claims.measurement import share_of
from headscan.claims.protocol import StandIn
from headscan.claims.recovery import Scored, allowed_words, hits, positions, search_hidden, search_shown
from headscan.claims.stand_ins import ModelKind, about, lens_of, prompts
from headscan.inversion import Descent, descend, preset
from headscan.model.slicing import Slice, SlicedModel

__all__ = ["Recovered"]

SAID = {
    "whole": "whole prompts",
    "set": "tokens anywhere in the answer",
    "five": "tokens among the best five",
    "five anywhere": "tokens among any best five",
}


@EXPERIMENTS.register("recovered")
@dataclass(frozen=True, kw_only=True)
class Recovered(Experiment):
    """Prompts whose outputs at a slice are given; the tokens are sought by the published descent, then by search.

    `model`, `width`, `depth`: the stand-in. `at` and the five after it: the slice. `method`, `loss`, `steps`, `start`,
    `adam`: the descent. `length`: tokens of a prompt. `allow`: a prompt's own tokens and so many others are allowed; None is
    the whole vocabulary. `scored`: which tokens, and what counts as found. `search`: whether a search is made beside it.
    `least`: prompts of a repeat, at least.
    """

    words: ClassVar[ExperimentWords] = ExperimentWords(
        quantity="share of the scored tokens that the descent finds",
        test="Wilson's interval on the effective number of tokens, clustered by prompt and seed",
        scope="the stand-in, its prompts and this descent; other starts and rates are not tried",
    )
    controlled: ClassVar[bool] = True

    model: ModelKind = "specimen"
    width: int = 64
    depth: int = 3
    at: str = "block.0"
    only: Literal["attention", "mlp"] | None = None
    residual: bool = True
    normalisation: bool = True
    causal: bool | None = None
    embedding: str | None = None
    method: Literal["indirect", "direct"] = "indirect"
    loss: Literal["l1", "l2", "cosine", "linear"] = "l1"
    steps: int = 200
    start: Literal["noise", "zeros"] = "noise"
    adam: bool = False
    length: int = 6
    allow: int | None = None
    scored: Scored = "all"
    search: bool = True
    least: int = PROMPTS

    def closer(self) -> Self | None:
        """Once."""
        return replace(self, least=4 * PROMPTS) if self.least == PROMPTS else None

    def stand_ins(self) -> tuple[StandIn, ...]:
        """The model of its kind."""
        return (about(self.model, self.width, self.depth),)

    def observe(self, seed: int) -> ExperimentOutcome:
        """See the class."""
        return _observe(self, seed)

    def descent(self, seed: int) -> Descent:
        """The published settings with this experiment's changes, or Adam's own."""
        if self.adam:
            return Descent(steps=self.steps, loss=self.loss, seed=seed, check_every=0)
        if self.start == "zeros":
            return Descent(method=self.method, init="zeros", steps=self.steps, loss=self.loss, seed=seed)
        # A cosine's gradient falls with the norms, so its rate is larger than the published one of distances.
        name, rate, angular = ("seed", 0.2, 200.0) if self.method == "indirect" else ("seed-direct", 0.01, 2000.0)
        rate = angular if self.loss == "cosine" else rate
        mask = "-inf" if self.allow is not None else "zero"
        return preset(name, steps=self.steps, loss=self.loss, rate=rate, seed=seed, mask=mask)

    def sliced(self) -> Recovered:
        """What is left of it when the descent and the score are forgotten: what a search depends on."""
        return replace(
            self, method="indirect", loss="l1", steps=1, start="noise", adam=False, scored="all", search=True
        )

    def allowed(self, ready: SlicedModel, ids: Tensor, own: int) -> Tensor | None:
        """The tokens [prompts, V] that may be returned."""
        return None if self.allow is None else allowed_words(ready.vocabulary_size, ids, self.allow, own)

    def cut(self, at: str) -> Slice:
        """The slice at a place."""
        return Slice.parse(
            at, only=self.only, residual=self.residual, normalisation=self.normalisation, causal=self.causal,
            embedding=self.embedding,
        )  # fmt: skip

    def arms(self, seed: int) -> Iterator[tuple[int, SlicedModel, Tensor]]:
        """A seed, the slice on its model, and its prompts, five times."""
        for own in own_seeds(seed):
            ready = self.cut(self.at).on(lens_of(self.model, own, self.width, self.depth))
            scored = 1 if self.scored == "whole" else len(positions(ready, self.length, self.scored))
            yield own, ready, prompts(self.model, own, enough(scored, self.least), self.length)


@lru_cache(maxsize=128)
def _observe(asked: Recovered, seed: int) -> ExperimentOutcome:
    found, sought, planted, names = [], [], [], []
    chance, scored = 1.0, asked.scored if asked.scored in ("set", "whole") else "all"
    for own, ready, ids in asked.arms(seed):
        places = positions(ready, asked.length, asked.scored)
        allowed = asked.allowed(ready, ids, own)
        chance = 1 / (ready.vocabulary_size if allowed is None else float(allowed.sum(1).double().mean()))
        done = descend(ready, ready.run(ids), asked.length, asked.descent(own), allowed=allowed)
        found.append(hits(done.tokens, done.top, ids, places, asked.scored).numpy())
        names.append(ready.lens.name)
        if asked.search:
            tokens, certain = _searched(asked.sliced(), own, len(ids))
            sought.append(hits(tokens, None, ids, places, scored).numpy())
            planted += [hits(certain, None, ids, places, scored).numpy()] if certain is not None else []
    chance *= {"set": asked.length, "five": 5, "five anywhere": 5 * asked.length}.get(asked.scored, 1)
    what = f"{asked.scored} tokens" if asked.scored in ("hidden", "shown") else SAID.get(asked.scored, "tokens")
    return ExperimentOutcome(
        effect=share_of(f"{what} found by the descent", found, chance=min(1.0, chance)),
        control=share_of("by a search of the same outputs", sought) if sought else None,
        cause="the optimiser failed, the information is there",
        works=share_of("the same search where all outputs are given", planted) if planted else None,
        models=tuple(dict.fromkeys(names)),
    )


@lru_cache(maxsize=256)
def _searched(asked: Recovered, own: int, count: int) -> tuple[Tensor, Tensor | None]:
    """What a search finds, whatever the descent; where outputs are hidden also what it finds when all are given."""
    ready = asked.cut(asked.at).on(lens_of(asked.model, own, asked.width, asked.depth))
    ids = prompts(asked.model, own, count, asked.length)
    allowed, target = asked.allowed(ready, ids, own), ready.run(ids)
    if ready.causal and len(ready.kept(asked.length)) == asked.length:
        return search_shown(ready, target, allowed), None
    begin = descend(ready, target, asked.length, Descent(steps=100, seed=own, check_every=0), allowed=allowed).tokens
    full = asked.cut(asked.at.partition("[")[0].strip()).on(ready.lens)
    return search_hidden(ready, target, begin, allowed), search_hidden(full, full.run(ids), begin, allowed)
