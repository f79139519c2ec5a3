"""The experiment behind the claims on inversion: what the published descent finds of a prompt.

A search of the same outputs stands beside it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, Self

import numpy as np
import numpy.typing as npt
from torch import Tensor

from headscan.inversion import Descent, descend, preset
from headscan.inversion.continuous import Descended
from headscan.model import Lens
from headscan.model.slicing import Slice, SlicedModel
from headscan_lab.ledger.experiment import (
    EXPERIMENTS,
    Experiment,
    ExperimentOutcome,
    ExperimentWords,
    StandIn,
    enough_prompts,
)
from headscan_lab.ledger.experiments.search import (
    Scored,
    allowed_tokens,
    hits,
    is_causal,
    positions,
    search_hidden,
    search_shown,
)
from headscan_lab.ledger.measurement import PROMPTS, SHARE_TEST, Measurement, repeat_seeds, share_of
from headscan_lab.ledger.named_models import RANDOM_TWIN
from headscan_lab.ledger.proxies import LARGE_TABLE, TRAINED, about, lens_of, prompts, random_twin

# Prompts of a repeat on a model of the user: the 40 of all repeats decide a share of 0 against 0.2,
# of 1 against 0.9.
FEW_PROMPTS = 8
DEEPEST_BLOCK = 11  # of a user's model that descents go down from: deeper ones take hours
LEAST_WIDTH = 512  # of a model on which a claim about deep blocks is tried
LARGE_VOCABULARY = 8192  # with more tokens a search beside a descent is of fewer prompts
SEARCHED_PROMPTS = 12  # of a repeat with a large vocabulary
# Of a large vocabulary so many tokens, the right ones among them, are tried for hidden positions.
SEARCHED_TOKENS = 256
SPECIMEN_WIDTH = 128

START = "hidden answers that are those after one step: the descent returns its own start"
ROUNDED = "found by the same search of outputs rounded to 8 bits"
SCORED_IN_WORDS = {
    "hidden": "hidden tokens",
    "shown": "shown tokens",
    "whole": "whole prompts",
    "set": "tokens anywhere in the answer",
    "five": "tokens among the best five",
    "five anywhere": "tokens among any best five",
}


@dataclass(frozen=True, eq=False)
class Repeat:
    """One repeat of the experiment: a seed, the slice of its model, the prompts [prompts, T]."""

    seed: int
    ready: SlicedModel
    ids: Tensor


@EXPERIMENTS.register("recovered")
class Recovered(Experiment):
    """The share of a prompt's tokens that the published descent finds from outputs of a slice.

    A search of the same outputs stands beside it. `model`, `width`, `depth`: the proxy. `at` and
    the five after it: the slice. `method`, `loss`, `steps`, `start`, `adam`: the descent. `length`:
    tokens of a prompt. `allow`: a prompt's own tokens and so many others are allowed; None: the
    whole vocabulary. `scored`: which tokens, and what counts as found. `search`: whether a search
    is made. `least`: prompts of a repeat, at least. `deep`: the slice on a model of the user, which
    must be wide.
    """

    words = ExperimentWords(
        quantity="share of the scored tokens that the descent finds",
        test=SHARE_TEST,
        scope="the stand-in, its prompts and this descent; other starts and rates are not tried",
    )
    controlled = True

    model: str = "specimen"
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
    deep: str = ""

    def on(self, model: str) -> Self | None:
        kind = self._kind_on(model)
        if kind is None or self.width != 64:  # a claim about a width is not tried at another
            return None
        lens = lens_of(model, depth=1)
        if not is_causal(lens):
            return None
        table = lens.input_embeddings
        if self.deep and table.shape[1] < LEAST_WIDTH:
            return None
        usual = replace(self, loss="l1", search=True) == Recovered()
        if table.numel() > LARGE_TABLE and not usual:
            return None
        at = self.deep or self.at
        if not _has_sites(lens, at):
            return None
        return replace(self, model=kind, at=_scaled(at, table.shape[1]), least=FEW_PROMPTS, deep="")

    def _kind_on(self, model: str) -> str | None:
        """Return the kind of a user's model in place of the proxy; None where it does not fit."""
        if self.model not in ("specimen", *TRAINED):
            return random_twin(model, self.model)
        return None if model.startswith(RANDOM_TWIN) else model

    def closer(self) -> Self | None:
        return replace(self, least=4 * PROMPTS) if self.least == PROMPTS else None

    def stand_ins(self) -> tuple[StandIn, ...]:
        return (about(self.model, self.width, self.depth),)

    def observe(self, seed: int) -> ExperimentOutcome:
        return _observe(self, seed)

    def descent(self, seed: int) -> Descent:
        """Return the published settings with this experiment's changes, or Adam's own."""
        if self.adam:
            return Descent(steps=self.steps, loss=self.loss, seed=seed, check_every=0)
        if self.start == "zeros":
            return Descent(
                method=self.method, init="zeros", steps=self.steps, loss=self.loss, seed=seed
            )
        mask = "-inf" if self.allow is not None else "zero"
        return preset(
            PRESETS[self.method],
            steps=self.steps,
            loss=self.loss,
            rate=descent_rate(self.method, self.loss),
            seed=seed,
            mask=mask,
        )

    def without_descent(self) -> "Recovered":
        """Return the experiment with the usual descent and score: what a search depends on."""
        return replace(
            self,
            method="indirect",
            loss="l1",
            steps=1,
            start="noise",
            adam=False,
            scored="all",
            search=True,
        )

    def allowed(self, ready: SlicedModel, ids: Tensor, seed: int) -> Tensor | None:
        """Return the tokens [prompts, V] that an answer may have; None: all."""
        if self.allow is None:
            return None
        return allowed_tokens(ready.vocabulary_size, ids, self.allow, seed)

    def cut(self, at: str) -> Slice:
        """Return the slice at a site."""
        return Slice.parse(
            at,
            only=self.only,
            residual=self.residual,
            normalisation=self.normalisation,
            causal=self.causal,
            embedding=self.embedding,
        )

    def lens(self, seed: int) -> Lens:
        """Return the model of a seed.

        One with random weights in a real size has no more blocks than the slice.
        """
        depth = self.depth
        if self.model.startswith(RANDOM_TWIN):
            depth = 1 + max(_blocks_in(self.at))
        return lens_of(self.model, seed, self.width, depth)

    def ready(self, seed: int) -> SlicedModel:
        """Return the slice on the model of a seed."""
        return self.cut(self.at).on(self.lens(seed))

    def repeats(self, seed: int) -> Iterator[Repeat]:
        """Yield the five repeats of a master seed."""
        for repeat_seed in repeat_seeds(seed):
            ready = self.ready(repeat_seed)
            scored = 1
            if self.scored != "whole":
                scored = len(positions(ready, self.length, self.scored))
            count = enough_prompts(scored, self.least)
            ids = prompts(self.model, repeat_seed, count, self.length)
            yield Repeat(repeat_seed, ready, ids)


PRESETS = {"indirect": "seed", "direct": "seed-direct"}
"""The published settings of a descent, by method."""


def descent_rate(method: str, loss: str) -> float:
    """Return the rate of the published descents.

    A cosine's gradient falls with the norms, so that its rate is larger than that of distances.
    """
    if method == "indirect":
        return 200.0 if loss == "cosine" else 0.2
    return 2000.0 if loss == "cosine" else 0.01


def _blocks_in(at: str) -> list[int]:
    return [int(number) for number in re.findall(r"block\.(\d+)", at)]


def _has_sites(lens: Lens, at: str) -> bool:
    """Return whether a model has the sites of a slice, none of them too deep for a descent."""
    if any(block > DEEPEST_BLOCK for block in _blocks_in(at)):
        return False
    sites = at.partition("[")[0].replace(" ", "").split("+")
    return all(site in lens.sites for site in sites)


def _scaled(at: str, width: int) -> str:
    """Return a slice of the specimen with its features scaled to another width."""
    start, comma, features = at.rpartition(", ")
    if not comma or features == ":]":
        return at

    def scaled(number: re.Match[str]) -> str:
        return str(int(number[0]) * width // SPECIMEN_WIDTH)

    return f"{start}, " + re.sub(r"\d+", scaled, features)


@dataclass
class _Hits:
    """The hits [prompts, positions] of each repeat, of a descent and of what stands beside it.

    Attributes:
        descent: found by the descent.
        unmoved: hidden answers that the descent's first step has as well.
        search: found by a search of the same outputs.
        planted: found by the search where all outputs are given.
        rounded: found by the search of rounded outputs.
    """

    descent: list[npt.NDArray[np.float64]] = field(default_factory=list)
    unmoved: list[npt.NDArray[np.float64]] = field(default_factory=list)
    search: list[npt.NDArray[np.float64]] = field(default_factory=list)
    planted: list[npt.NDArray[np.float64]] = field(default_factory=list)
    rounded: list[npt.NDArray[np.float64]] = field(default_factory=list)

    def add_descent(self, experiment: Recovered, repeat: Repeat) -> None:
        """Add what the descent finds in one repeat."""
        scored_positions = positions(repeat.ready, experiment.length, experiment.scored)
        result = descended(replace(experiment, search=True), repeat.seed, len(repeat.ids))
        descent_hits = hits(
            result.tokens, result.top, repeat.ids, scored_positions, experiment.scored
        )
        self.descent.append(descent_hits.numpy())
        if experiment.scored == "hidden":
            first_step = _first_step(experiment, repeat)
            unmoved = (first_step == result.tokens)[:, scored_positions]
            self.unmoved.append(unmoved.double().numpy())

    def add_search(self, experiment: Recovered, repeat: Repeat) -> None:
        """Add what the searches find in one repeat."""
        scored_positions = positions(repeat.ready, experiment.length, experiment.scored)
        scored = experiment.scored if experiment.scored in ("set", "whole") else "all"
        answers = _searched(experiment.without_descent(), repeat.seed, len(repeat.ids))

        def found(answer: Tensor) -> npt.NDArray[np.float64]:
            ids = repeat.ids[: len(answer)]
            return hits(answer, None, ids, scored_positions, scored).numpy()

        self.search.append(found(answers.search))
        if answers.planted is not None and answers.rounded is not None:
            self.planted.append(found(answers.planted))
            self.rounded.append(found(answers.rounded))


@lru_cache(maxsize=128)
def _observe(experiment: Recovered, seed: int) -> ExperimentOutcome:
    all_hits = _Hits()
    names = []
    chance = 1.0
    large = False
    for repeat in experiment.repeats(seed):
        all_hits.add_descent(experiment, repeat)
        if experiment.search:
            all_hits.add_search(experiment, repeat)
        names.append(repeat.ready.lens.name)
        chance = _chance(experiment, repeat)
        large = repeat.ready.vocabulary_size > LARGE_VOCABULARY

    scored_name = SCORED_IN_WORDS.get(experiment.scored, "tokens")
    control = None
    if all_hits.search:
        among = ""
        if all_hits.planted and experiment.allow is None and large:
            among = f" among {SEARCHED_TOKENS} tokens"
        control = share_of(f"by a search of the same outputs{among}", all_hits.search)
    works = None
    if all_hits.planted:
        works = share_of("the same search where all outputs are given", all_hits.planted)
    beside: list[Measurement] = []
    if all_hits.unmoved:
        beside.append(share_of(START, all_hits.unmoved))
    if all_hits.rounded:
        beside.append(share_of(ROUNDED, all_hits.rounded))
    return ExperimentOutcome(
        effect=share_of(f"{scored_name} found by the descent", all_hits.descent, chance=chance),
        control=control,
        cause="the optimiser failed where the information is there",
        works=works,
        beside=tuple(beside),
        models=tuple(dict.fromkeys(names)),
    )


def _chance(experiment: Recovered, repeat: Repeat) -> float:
    """Return the share of tokens that a random answer would find."""
    allowed = experiment.allowed(repeat.ready, repeat.ids, repeat.seed)
    if allowed is None:
        choices = float(repeat.ready.vocabulary_size)
    else:
        choices = float(allowed.sum(1).double().mean())
    guesses = {"set": experiment.length, "five": 5, "five anywhere": 5 * experiment.length}
    return min(1.0, 1 / choices * guesses.get(experiment.scored, 1))


def _first_step(experiment: Recovered, repeat: Repeat) -> Tensor:
    """Return the answer [prompts, T] of the descent after one step."""
    target = repeat.ready.run(repeat.ids)
    settings = replace(experiment.descent(repeat.seed), steps=1)
    allowed = experiment.allowed(repeat.ready, repeat.ids, repeat.seed)
    return descend(repeat.ready, target, experiment.length, settings, allowed=allowed).tokens


@lru_cache(maxsize=64)
def descended(experiment: Recovered, seed: int, count: int) -> Descended:
    """Return what the descent finds of `count` prompts, whether or not it is also searched."""
    ready = experiment.ready(seed)
    ids = prompts(experiment.model, seed, count, experiment.length)
    return descend(
        ready,
        ready.run(ids),
        experiment.length,
        experiment.descent(seed),
        allowed=experiment.allowed(ready, ids, seed),
    )


@dataclass(frozen=True, eq=False)
class _Answers:
    """The tokens [prompts, T] that searches find.

    Attributes:
        search: from the outputs that are given.
        planted: from all outputs; None where all are given anyway.
        rounded: from those given, rounded to 8 bits; None likewise.
    """

    search: Tensor
    planted: Tensor | None = None
    rounded: Tensor | None = None


@lru_cache(maxsize=256)
def _searched(experiment: Recovered, seed: int, count: int) -> _Answers:
    """Return what searches find, whatever the descent."""
    ready = experiment.ready(seed)
    large = ready.vocabulary_size > LARGE_VOCABULARY
    searched = SEARCHED_PROMPTS if large else count
    ids = prompts(experiment.model, seed, count, experiment.length)
    allowed = experiment.allowed(ready, ids, seed)
    if allowed is not None:
        allowed = allowed[:searched]
    ids = ids[:searched]
    target = ready.run(ids)
    if ready.causal and len(ready.kept(experiment.length)) == experiment.length:
        return _Answers(search_shown(ready, target, allowed))

    if allowed is None and large:
        extra = SEARCHED_TOKENS - experiment.length
        allowed = allowed_tokens(ready.vocabulary_size, ids, extra, seed)
    settings = Descent(steps=100, seed=seed, check_every=0)
    start = descend(ready, target, experiment.length, settings, allowed=allowed).tokens
    all_outputs = experiment.cut(experiment.at.partition("[")[0].strip()).on(ready.lens)
    # The levels of each output reach to the largest of its numbers.
    step = target.abs().amax(-1, keepdim=True) / 127
    rounded_target = (target / step).round() * step
    return _Answers(
        search=search_hidden(ready, target, start, allowed),
        planted=search_hidden(all_outputs, all_outputs.run(ids), start, allowed),
        rounded=search_hidden(ready, rounded_target, start, allowed),
    )
