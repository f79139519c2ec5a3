"""What a descent and a search find again of prompts whose outputs are given: the tool behind the
claims on inversion.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Literal, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor

from headscan.inversion import Descent, descend, exact, preset
from headscan.inversion.continuous import Descended
from headscan.model import Lens
from headscan.model.slicing import Slice, SlicedModel
from headscan_lab.ledger.experiment import (
    EXPERIMENTS,
    Experiment,
    ExperimentOutcome,
    ExperimentWords,
    StandIn,
    enough,
)
from headscan_lab.ledger.measurement import (
    DIFFERENCE_TEST,
    PROMPTS,
    SHARE_TEST,
    difference_of,
    own_seeds,
    share_of,
)
from headscan_lab.ledger.stand_ins import TRAINED, TWIN, about, lens_of, prompts, twin_of

Scored: TypeAlias = Literal["all", "hidden", "shown", "whole", "set", "five", "five anywhere"]
AT_ONCE = 4096  # rows of a batch of candidates
# prompts of a repeat on a model that was given: the 40 of all repeats decide a share of 0 against
# .2, of 1 against .9
FEW = 8
# numbers of an embedding table: beyond, two descents are tried, for six tokens at the first block
LARGE = 100_000_000
DEEPEST = 11  # the last block of a given model that descents go down from: deeper ones take hours
WIDE = 8192  # tokens: with more, a search beside a descent is of 12 prompts a repeat
# of a vocabulary above 8,192 so many tokens, the right ones among them, are tried for hidden places
AMONG = 256
START = "hidden answers that are those after one step: the descent returns its own start"
ROUNDED = "found by the same search of outputs rounded to 8 bits"
FITS = 1e-4  # relative residual of outputs that count as equal


def causal(lens: Lens) -> bool:
    """Whether an output sees earlier tokens only, as what is said of language models takes for
    granted.
    """
    return Slice().on(lens).causal


def positions(ready: SlicedModel, length: int, scored: Scored) -> list[int]:
    """The positions that are scored: those whose own output is not given (hidden), those whose is,
    or all.
    """
    kept = set(ready.kept(length))
    hidden = [place for place in range(length) if place not in kept]
    if scored == "hidden" or (scored in ("five", "five anywhere", "set") and hidden):
        return hidden
    return sorted(kept) if scored == "shown" else list(range(length))


def hits(
    tokens: Tensor, top: Tensor | None, ids: Tensor, places: list[int], scored: Scored
) -> Tensor:
    """Hits [prompts, places] (0 or 1; one column for whole prompts) of the answers [prompts, T]
    against the ids.

    "set": the token stands anywhere in the answer; "five": among the best five at its place; "five
    anywhere": among the best five of any place.
    """
    true = ids[:, places]
    if scored == "set":
        found = (true[:, :, None] == tokens[:, None, :]).any(-1)
    elif scored == "five" and top is not None:
        found = (top[:, places] == true[..., None]).any(-1)
    elif scored == "five anywhere" and top is not None:
        found = (true[:, :, None] == top.flatten(1)[:, None, :]).any(-1)
    else:
        found = tokens[:, places] == true
    return (found.all(-1, keepdim=True) if scored == "whole" else found).double()


def allowed_words(vocabulary: int, ids: Tensor, extra: int, seed: int) -> Tensor:
    """Bool [prompts, V]: of each prompt [prompts, T] its own tokens and so many random others."""
    allowed = torch.zeros(len(ids), vocabulary, dtype=torch.bool).scatter_(1, ids, True)
    others = torch.rand(allowed.shape, generator=torch.Generator().manual_seed(seed)).masked_fill(
        allowed, -1.0
    )
    return allowed.scatter_(1, others.topk(extra, dim=1).indices, True)


def search_shown(ready: SlicedModel, target: Tensor, allowed: Tensor | None) -> Tensor:
    """Tokens [prompts, T] by exact search from left to right, of all tokens or of each prompt's own
    [prompts, V]; every output must be given.
    """
    if allowed is None:
        return torch.tensor([one.tokens for one in exact(ready, list(target))])
    return torch.tensor(
        [
            exact(ready, [goal], allowed=own)[0].tokens
            for goal, own in zip(target, allowed, strict=True)
        ]
    )


@torch.no_grad()
def search_hidden(
    ready: SlicedModel, target: Tensor, start: Tensor, allowed: Tensor | None, sweeps: int = 3
) -> Tensor:
    """Tokens [prompts, T] by exchange: from a start, every allowed token is tried at one place
    after another, the hidden places first, and the best is kept. A prompt is done when its outputs
    fit, or a sweep changes nothing; the truth plays no part in it. Cost: at most sweeps · T · V
    runs a prompt, mostly V.
    """
    tokens = start.clone()
    every = torch.arange(ready.vocabulary_size)
    kept = set(ready.kept(tokens.shape[1]))
    order = sorted(range(tokens.shape[1]), key=lambda place: (place in kept, place))
    for row, goal in enumerate(target):
        words = every if allowed is None else every[allowed[row]]
        best = float((ready.run(tokens[row : row + 1]) - goal).norm())
        still = 0
        for place in order * sweeps:
            if best <= FITS * float(goal.norm()) or still == len(order):
                break
            tried = tokens[row].repeat(len(words), 1)
            tried[:, place] = words
            apart = torch.cat(
                [(ready.run(part) - goal).flatten(1).norm(dim=1) for part in tried.split(AT_ONCE)]
            )
            best = float(apart.min())
            chosen = words[apart.argmin()]
            still = still + 1 if chosen == tokens[row, place] else 0
            tokens[row, place] = chosen
    return tokens


# ---- How much of a prompt the published descent finds again, with a search of the same outputs beside it.

SAID = {
    "whole": "whole prompts",
    "set": "tokens anywhere in the answer",
    "five": "tokens among the best five",
    "five anywhere": "tokens among any best five",
}


@EXPERIMENTS.register("recovered")
class Recovered(Experiment):
    """Prompts whose outputs at a slice are given; the tokens are sought by the published descent,
    then by search.

    `model`, `width`, `depth`: the stand-in. `at` and the five after it: the slice. `method`,
    `loss`, `steps`, `start`, `adam`: the descent. `length`: tokens of a prompt. `allow`: a prompt's
    own tokens and so many others are allowed; None is the whole vocabulary. `scored`: which tokens,
    and what counts as found. `search`: whether a search is made beside it. `least`: prompts of a
    repeat, at least. `deep`: the place on a given model, which must be wide.
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
        trained = self.model in ("specimen", *TRAINED)
        kind = (
            (None if model.startswith(TWIN) else model) if trained else twin_of(model, self.model)
        )
        if kind is None or self.width != 64 or not causal(lens := lens_of(model, depth=1)):
            return None  # a claim about a width is not tried at another
        table = lens.input_embeddings
        # what is said of deep blocks is said of wide models
        narrow = bool(self.deep) and table.shape[1] < 512
        if narrow or (
            table.numel() > LARGE and replace(self, loss="l1", search=True) != Recovered()
        ):
            return None
        here = self.deep or self.at
        if any(int(number) > DEEPEST for number in re.findall(r"block\.(\d+)", here)):
            return None
        if any(
            site not in lens.sites for site in here.partition("[")[0].replace(" ", "").split("+")
        ):
            return None
        place, comma, features = here.rpartition(", ")  # of the specimen's 128
        if comma and features != ":]":
            here = f"{place}, " + re.sub(
                r"\d+", lambda number: str(int(number[0]) * table.shape[1] // 128), features
            )
        return replace(self, model=kind, at=here, least=FEW, deep="")

    def closer(self) -> Self | None:
        return replace(self, least=4 * PROMPTS) if self.least == PROMPTS else None

    def stand_ins(self) -> tuple[StandIn, ...]:
        return (about(self.model, self.width, self.depth),)

    def observe(self, seed: int) -> ExperimentOutcome:
        return _observe(self, seed)

    def descent(self, seed: int) -> Descent:
        """The published settings with this experiment's changes, or Adam's own."""
        if self.adam:
            return Descent(steps=self.steps, loss=self.loss, seed=seed, check_every=0)
        if self.start == "zeros":
            return Descent(
                method=self.method, init="zeros", steps=self.steps, loss=self.loss, seed=seed
            )
        # A cosine's gradient falls with the norms, so its rate is larger than the published one of
        # distances.
        name, rate, angular = (
            ("seed", 0.2, 200.0) if self.method == "indirect" else ("seed-direct", 0.01, 2000.0)
        )
        rate = angular if self.loss == "cosine" else rate
        mask = "-inf" if self.allow is not None else "zero"
        return preset(name, steps=self.steps, loss=self.loss, rate=rate, seed=seed, mask=mask)

    def sliced(self) -> "Recovered":
        """What is left of it when the descent and the score are forgotten: what a search depends
        on.
        """
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

    def allowed(self, ready: SlicedModel, ids: Tensor, own: int) -> Tensor | None:
        """The tokens [prompts, V] that may be returned."""
        return (
            None
            if self.allow is None
            else allowed_words(ready.vocabulary_size, ids, self.allow, own)
        )

    def cut(self, at: str) -> Slice:
        """The slice at a place."""
        return Slice.parse(
            at,
            only=self.only,
            residual=self.residual,
            normalisation=self.normalisation,
            causal=self.causal,
            embedding=self.embedding,
        )

    def lens(self, own: int) -> Lens:
        """The model of a seed; of random weights in a real size no more blocks than the slice has."""
        deepest = 1 + max(int(number) for number in re.findall(r"block\.(\d+)", self.at))
        return lens_of(
            self.model, own, self.width, deepest if self.model.startswith(TWIN) else self.depth
        )

    def arms(self, seed: int) -> Iterator[tuple[int, SlicedModel, Tensor]]:
        """A seed, the slice on its model, and its prompts, five times."""
        for own in own_seeds(seed):
            ready = self.cut(self.at).on(self.lens(own))
            scored = (
                1 if self.scored == "whole" else len(positions(ready, self.length, self.scored))
            )
            yield own, ready, prompts(self.model, own, enough(scored, self.least), self.length)


@lru_cache(maxsize=128)
def _observe(asked: Recovered, seed: int) -> ExperimentOutcome:
    found = list[np.ndarray]()
    begun = list[np.ndarray]()
    names = list[str]()
    sought = list[np.ndarray]()
    planted = list[np.ndarray]()
    rounded = list[np.ndarray]()
    chance = 1.0
    scored = asked.scored if asked.scored in ("set", "whole") else "all"
    for own, ready, ids in asked.arms(seed):
        places = positions(ready, asked.length, asked.scored)
        allowed = asked.allowed(ready, ids, own)
        chance = 1 / (
            ready.vocabulary_size if allowed is None else float(allowed.sum(1).double().mean())
        )
        done = descended(replace(asked, search=True), own, len(ids))
        if asked.scored == "hidden":
            first = descend(
                ready,
                ready.run(ids),
                asked.length,
                replace(asked.descent(own), steps=1),
                allowed=allowed,
            ).tokens
            begun.append((first == done.tokens)[:, places].double().numpy())
        found.append(hits(done.tokens, done.top, ids, places, asked.scored).numpy())
        names.append(ready.lens.name)
        if asked.search:
            for rows, answer in zip(
                (sought, planted, rounded), _searched(asked.sliced(), own, len(ids)), strict=True
            ):
                rows += (
                    [hits(answer, None, ids[: len(answer)], places, scored).numpy()]
                    if answer is not None
                    else []
                )
    chance *= {"set": asked.length, "five": 5, "five anywhere": 5 * asked.length}.get(
        asked.scored, 1
    )
    among = (
        f" among {AMONG} tokens"
        if planted and asked.allow is None and ready.vocabulary_size > WIDE
        else ""
    )
    what = (
        f"{asked.scored} tokens"
        if asked.scored in ("hidden", "shown")
        else SAID.get(asked.scored, "tokens")
    )
    return ExperimentOutcome(
        effect=share_of(f"{what} found by the descent", found, chance=min(1.0, chance)),
        control=share_of(f"by a search of the same outputs{among}", sought) if sought else None,
        cause="the optimiser failed where the information is there",
        works=share_of("the same search where all outputs are given", planted) if planted else None,
        beside=tuple(
            share_of(name, shares)
            for name, shares in ((START, begun), (ROUNDED, rounded))
            if shares
        ),
        models=tuple(dict.fromkeys(names)),
    )


@lru_cache(maxsize=64)
def descended(asked: Recovered, own: int, count: int) -> Descended:
    """What the descent finds, whether or not there is a search beside it."""
    ready = asked.cut(asked.at).on(asked.lens(own))
    ids = prompts(asked.model, own, count, asked.length)
    return descend(
        ready,
        ready.run(ids),
        asked.length,
        asked.descent(own),
        allowed=asked.allowed(ready, ids, own),
    )


@lru_cache(maxsize=256)
def _searched(asked: Recovered, own: int, count: int) -> tuple[Tensor | None, ...]:
    """What a search finds, whatever the descent; where outputs are hidden also what it finds when
    all are given, and when those given are rounded to 8 bits, each by the largest of its numbers.
    """
    ready = asked.cut(asked.at).on(asked.lens(own))
    few = count if ready.vocabulary_size <= WIDE else 3 * FEW // 2
    ids = prompts(asked.model, own, count, asked.length)
    allowed = (
        None
        if asked.allow is None
        else allowed_words(ready.vocabulary_size, ids, asked.allow, own)[:few]
    )
    target = ready.run(ids := ids[:few])
    if ready.causal and len(ready.kept(asked.length)) == asked.length:
        return search_shown(ready, target, allowed), None, None
    if allowed is None and ready.vocabulary_size > WIDE:
        allowed = allowed_words(ready.vocabulary_size, ids, AMONG - asked.length, own)
    begin = descend(
        ready, target, asked.length, Descent(steps=100, seed=own, check_every=0), allowed=allowed
    ).tokens
    full = asked.cut(asked.at.partition("[")[0].strip()).on(ready.lens)
    step = target.abs().amax(-1, keepdim=True) / 127
    goals = ((ready, target), (full, full.run(ids)), (ready, (target / step).round() * step))
    return tuple(search_hidden(cut, goal, begin, allowed) for cut, goal in goals)


# ---- Wrong answers of direct descents: whose tokens they are, the model's or the random start's.

LENGTH = 6


@EXPERIMENTS.register("start-decides")
class StartDecides(Experiment):
    """`models`: wrong tokens that two models (`first`, and a Llama or itself with fresh weights)
    with two prompts share, place by place, when they start alike. `prompts`: wrong answers to
    prompts of one token, or for a hidden first token, that are the commonest wrong answer.
    """

    words = ExperimentWords(
        quantity="share of wrong tokens that two descents from one start have in common",
        test=SHARE_TEST,
        scope="the stand-ins and these descents",
    )

    among: Literal["models", "one-token prompts", "hidden first tokens"] = "models"
    first: str = "gpt2"
    second: Literal["llama", "untrained"] = "llama"
    method: Literal["direct", "indirect"] = "direct"
    loss: Literal["l1", "cosine"] = "l1"

    def on(self, model: str) -> Self | None:
        kind = (
            twin_of(model, self.first)
            if self.first == "gpt2"
            else None
            if model.startswith(TWIN)
            else model
        )
        if (
            kind is None
            or not causal(lens := lens_of(model))
            or lens.input_embeddings.numel() > LARGE
        ):
            return None
        return replace(self, first=kind)

    def stand_ins(self) -> tuple[StandIn, ...]:
        both = self.among == "models" and self.second == "llama"
        return (about(self.first), about("llama")) if both else (about(self.first),)

    def observe(self, seed: int) -> ExperimentOutcome:
        shares = []
        names = []
        for own in own_seeds(seed):
            shared, used = self._models(own) if self.among == "models" else self._prompts(own)
            shares.append(shared)
            names += used
        vocabulary = lens_of(
            self.first, own_seeds(seed)[0], depth=1 if self.first.startswith(TWIN) else 3
        ).vocabulary_size
        return ExperimentOutcome(
            effect=share_of("wrong tokens in common", shares, chance=1 / vocabulary),
            models=tuple(dict.fromkeys(names)),
        )

    def _answers(
        self, kind: str, own: int, length: int, at: str, shift: int, weights: str | None = None
    ) -> tuple[Tensor, Tensor, str]:
        ready = Slice.parse(at, weights=weights).on(
            lens_of(kind, own, depth=1 if kind.startswith(TWIN) else 3)
        )
        ids = prompts(kind, own + shift, 40 if length == 1 or at != "block.0" else PROMPTS, length)
        rate = {"direct": {"l1": 0.01, "cosine": 2000.0}, "indirect": {"l1": 0.2, "cosine": 200.0}}[
            self.method
        ][self.loss]
        name = "seed-direct" if self.method == "direct" else "seed"
        setting = preset(name, steps=150, loss=self.loss, rate=rate, seed=own)
        return descend(ready, ready.run(ids), length, setting).tokens, ids, ready.lens.name

    def _models(self, own: int) -> tuple[np.ndarray, list[str]]:
        """Places [prompts, T] at which both are wrong and the same, of places where the first is
        wrong.
        """
        one, ids, name = self._answers(self.first, own, LENGTH, "block.0", 0)
        kind = self.first if self.second == "untrained" else "llama"
        weights = f"fresh:{own}" if self.second == "untrained" else None
        two, others, second = self._answers(kind, own, LENGTH, "block.0", 500, weights)
        both = ((one == two) & (one != ids) & (two != others)).double()
        return both.numpy(), [name, second]

    def _prompts(self, own: int) -> tuple[np.ndarray, list[str]]:
        """Of each prompt [prompts, 1]: whether its wrong answer is the commonest of all; right
        answers count as 0.
        """
        hidden = self.among == "hidden first tokens"
        found, ids, name = self._answers(
            self.first, own, 3 if hidden else 1, "block.0[:, 1:, :]" if hidden else "block.0", 0
        )
        wrong = [int(a) for a, b in zip(found[:, 0], ids[:, 0], strict=True) if a != b]
        commonest = Counter(wrong).most_common(1)[0][0] if wrong else -1
        shared = (found[:, 0] == commonest) & (found[:, 0] != ids[:, 0])
        return shared.double()[:, None].numpy(), [name]


# ---- Direct inversion of two targets: a scaled one-hot vector's output, and the pseudo-inverse's.


@EXPERIMENTS.register("target-scaled")
class TargetScaled(Experiment):
    """Descents from zero to the output of 10 W (one-hot) and of W (pseudo-inverse, W⁺W being one on
    rows).
    """

    words = ExperimentWords(
        quantity="share of tokens found for the one-hot target less that for the pseudo-inverse's",
        test=DIFFERENCE_TEST,
        scope="random weights, Adam from zero",
        range=(-1.0, 1.0),
    )

    def stand_ins(self) -> tuple[StandIn, ...]:
        return (about("gpt2"),)

    def observe(self, seed: int) -> ExperimentOutcome:
        shares: dict[float, list[np.ndarray]] = {10.0: [], 1.0: []}
        for own in own_seeds(seed):
            ready = Slice().on(lens_of("gpt2", own))
            ids = prompts("gpt2", own, PROMPTS, 6)
            setting = Descent(
                method="direct", init="zeros", steps=150, rate=0.02, seed=own, check_every=0
            )
            for scale, rows in shares.items():
                target = ready.run(inputs_embeds=scale * ready.embed(ids))
                rows.append((descend(ready, target, 6, setting).tokens == ids).double().numpy())
        one = share_of("found, one-hot target", shares[10.0])
        other = share_of("found, pseudo-inverse's target", shares[1.0])
        return ExperimentOutcome(
            effect=difference_of("one-hot less pseudo-inverse", one, other),
            beside=(one, other),
            models=tuple(lens_of("gpt2", own).name for own in own_seeds(seed)),
        )
