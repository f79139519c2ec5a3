"""The shape of the last states of a stand-in, or of one stand-in less another's: cosines, spectra, uniformity, alignment."""

import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from statistics import median
from typing import Literal, Self

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from headscan.inversion import descend, preset
from headscan.measures.cone import average_cosine, top_direction_share
from headscan.measures.sphere import uniformity
from headscan.model import Lens
from headscan.model.slicing import Slice
from headscan.run import BadInput
from headscan.statistics.uncertainty import student_quantile
from headscan.training import cwt_loss
from headscan_lab.ledger.experiment import EXPERIMENTS, Experiment, ExperimentOutcome, ExperimentWords, Power, StandIn
from headscan_lab.ledger.experiments.descents import Recovered
from headscan_lab.ledger.experiments.inversion import Contrast
from headscan_lab.ledger.measurement import SEEDS, Measurement, mean_of, own_seeds
from headscan_lab.ledger.stand_ins import ABOUT, HEADS, TWIN, Member, about, cached, family_folder, lens_of, prompts

Numbers = npt.NDArray[np.float64]
SHAPE_ROWS, SHAPE_LENGTH = 12, 32


def _target_cosine(states: Numbers, table: Numbers, targets: npt.NDArray[np.int64]) -> float:
    """Mean cosine of a state with the input embedding of the token that follows."""
    own = table[targets]
    return float(((states * own).sum(1) / (np.linalg.norm(states, axis=1) * np.linalg.norm(own, axis=1))).mean())


def _pushed_away(states: Numbers, table: Numbers, targets: npt.NDArray[np.int64]) -> float:
    return float(((table @ states.T < 0).mean(1) > 0.5).mean())


def _over_gaussian(states: Numbers) -> float:
    """Of as many vectors of the same width, the mean of five draws."""
    null = [float(top_direction_share(np.random.default_rng(k).standard_normal(states.shape)) or 0.0) for k in range(5)]
    return float(top_direction_share(states) or 0.0) / float(np.mean(null))


MEASURES: dict[str, Callable[[Numbers, Numbers, npt.NDArray[np.int64]], float]] = {
    "average cosine": lambda states, table, targets: float(average_cosine(states) or 0.0),
    "share of energy on the first direction over that of a Gaussian cloud": lambda states, table, targets: _over_gaussian(states),
    "uniformity": lambda states, table, targets: float(uniformity(states) or 0.0),
    "cosine with the next token's embedding": _target_cosine,
    "share of words pushed away by most states": _pushed_away,
}
RANDOM_HEAD = "share of words pushed away by most states, of a random head"


@EXPERIMENTS.register("shape")
class ShapeOfStates(Experiment):
    """A measure of the states after the final norm of five texts (`specimen`) or five trainings (`taught`, `headless`); with
    `less`, seed by seed less that of another stand-in on the same texts. `control` names what the effect is held against: the
    same difference on the language without Zipf's law (`flat`), the difference against a tied head (`tied`) or one whose bias
    starts at the log frequencies (`bias`), or the measure less that of a random head on the same states (`random head`)."""

    controlled = True
    words = ExperimentWords(
        quantity="the measure named by the effect, a seed",
        test="Student's interval over five seeds (pieces of text, or trainings)", scope="the stand-in at the size it has",
        range=(-4.0, 4.0),
    )  # fmt: skip

    measure: str = "average cosine"
    model: str = "specimen"
    less: str | None = None
    control: Literal["", "flat", "tied", "bias", "random head"] = ""

    def on(self, model: str) -> Self | None:
        fits = (self.model, self.less) == ("specimen", None) and not model.startswith(TWIN)
        return replace(self, model=model) if fits else None

    def stand_ins(self) -> tuple[StandIn, ...]:
        return (about(self.model),) if self.less is None else (about(self.model), about(self.less))

    def _controlled(self, seed: int, tokens: int) -> tuple[Measurement | None, str]:
        """The control and the cause that it would show."""
        pairs: dict[str, tuple[str, str, str, str]] = {
            "flat": ("headless" if self.model == "zipf-headless" else "taught", "taught" if self.less == "zipf" else "headless",
                     "without Zipf's law", "it is so without Zipf's law as well"),
            "tied": (self.model, "zipf-tied", "against a tied head", "tying the head alone does it"),
            "bias": (self.model, "zipf-bias", "against a head whose bias starts at the log frequencies",
                     "it goes with a head, too, where a bias holds the frequencies"),
        }  # fmt: skip
        if not self.control:
            return None, ""
        if self.control == "random head":
            first, second = (_by_seed(self.model, seed)[name] for name in (self.measure, RANDOM_HEAD))
            name, cause = "the same less that of a random head", "a random head does it as well"
        else:
            one, other, where, cause = pairs[self.control]
            first, second = (_by_seed(kind, seed)[self.measure] for kind in (one, other))
            name = f"the difference {where}"
        apart = [mine - theirs for mine, theirs in zip(first, second, strict=True)]
        return mean_of(name, apart, unit=self.measure, tokens=tokens, prompts=SEEDS * SHAPE_ROWS), cause

    def observe(self, seed: int) -> ExperimentOutcome:
        if self.measure not in _by_seed(self.model, seed):
            raise BadInput(f"{lens_of(self.model).name} has no head, of whose words this is.")
        mine = _by_seed(self.model, seed)[self.measure]
        others = [0.0] * SEEDS if self.less is None else _by_seed(self.less, seed)[self.measure]
        tokens, name = SEEDS * SHAPE_ROWS * (SHAPE_LENGTH - 1), f"{self.measure} of {_named(self.model)}"
        apart = [one - other for one, other in zip(mine, others, strict=True)]
        said = name if self.less is None else f"{name} less {self.less}"
        control, cause = self._controlled(seed, tokens)
        heads = ("zipf-tied", "zipf-bias") if "zipf" in (self.model, self.less) else ()  # the other heads, side by side
        return ExperimentOutcome(
            effect=mean_of(said, apart, unit=self.measure, tokens=tokens, prompts=SEEDS * SHAPE_ROWS), control=control,
            cause=cause,
            beside=() if self.less is None else tuple(
                mean_of(f"{self.measure} of {kind}", values, unit=self.measure, tokens=tokens, prompts=SEEDS * SHAPE_ROWS)
                for kind, values in (
                    (self.model, mine), (self.less, others), *((one, _by_seed(one, seed)[self.measure]) for one in heads)
                )
            ),
            models=tuple(dict.fromkeys(
                lens_of(kind, own).name for kind in (self.model, self.less) if kind for own in own_seeds(seed)
            )),
        )  # fmt: skip


def _named(kind: str) -> str:
    return kind if kind in ABOUT else lens_of(kind).name


@cache
def _by_seed(kind: str, seed: int) -> dict[str, list[float]]:
    """Every measure, a number a seed: one pass serves them all. Without a head there is nothing of words."""
    found: dict[str, list[float]] = {name: [] for name in (*MEASURES, RANDOM_HEAD)}
    for own in own_seeds(seed):
        lens = lens_of(kind, own)
        ids = prompts(kind, own, SHAPE_ROWS, SHAPE_LENGTH)
        states = Slice(sites=(lens.default_sites[-1],)).on(lens).states(ids)[:, :-1].flatten(0, 1).double().numpy()
        targets = ids[:, 1:].flatten().numpy()
        for name, measure in MEASURES.items():
            words = not kind.endswith("headless") and name.startswith("share of words")
            head = lens.model.get_output_embeddings() if words else None
            if words and head is None:
                found.pop(name, None)
                continue
            table = lens.input_embeddings if head is None else head.weight
            found[name].append(measure(states, table.detach().double().numpy(), targets))
        random = np.random.default_rng(own).standard_normal((lens.input_embeddings.shape[0], states.shape[1]))
        found[RANDOM_HEAD].append(_pushed_away(states, random, targets))
    return found


# ---- How a measure of the trained family changes when width, depth or vocabulary doubles, all other factors held.

TREND_ROWS, TREND_LENGTH, PROMPTS, TOKENS = 8, 32, 8, 6
TREND_LEAST = 24  # members: below, six coefficients leave too little to judge them by


@EXPERIMENTS.register("trend")
class Trend(Experiment):
    """Least squares of a measure on log2 of width, depth and vocabulary, head and text: the coefficient of one factor."""

    words = ExperimentWords(
        quantity="change of the measure per doubling of the factor, the others held",
        test="Student's interval of a coefficient of least squares over the members, heteroscedastic (HC3)",
        scope="GPT-2s of widths 32 to 256, depths 1 to 8, V 256 to 8,192, at equal tokens", range=(-1.0, 1.0),
    )  # fmt: skip
    power = Power(TREND_LEAST, 200)

    factor: Literal["width", "depth", "vocabulary"] = "width"
    measure: Literal["recovered at the first block", "recovered at the last block", "average cosine"] = (
        "recovered at the last block"
    )

    def on(self, model: str) -> Experiment | None:
        """Of the depth within a given model: a deep block less the first, by Adam, whose descents do not fail at the first."""
        first = Recovered(adam=True, search=False).on(model) if self.factor == "depth" else None
        return Contrast(high=replace(first, at=f"block.{lens_of(model).depth // 2}"), low=first) if first else None

    def stand_ins(self) -> tuple[StandIn, ...]:
        why = "Width, depth and vocabulary are varied by design, so that a trend with size can be told from its other causes."
        return (StandIn("the trained family of small GPT-2s (lab/scripts/train_family.py)", why),)

    def observe(self, seed: int) -> ExperimentOutcome:
        members = cached(seed % 2)
        if len(members) < TREND_LEAST:
            note = f"{len(members)} members of the trained family are in the cache, {TREND_LEAST} are needed: "
            note += f"python lab/scripts/train_family.py --half {seed % 2}."
            return ExperimentOutcome(effect=None, note=note)
        values = np.array([measured(one, self.measure, seed) for one in members])
        factors = ("width", "depth", "vocabulary")
        columns = [np.log2([getattr(one, name) for one in members]) for name in factors]
        columns += [np.array([float(one.head == kind) for one in members]) for kind in HEADS[1:]]
        columns += [np.array([float(one.text == "second") for one in members]), np.ones(len(members))]
        slope, error, freedom = slope_of(np.stack(columns, 1), values, factors.index(self.factor))
        reach = student_quantile(freedom) * error
        effect = Measurement(
            name=f"{self.measure} per doubling of {self.factor}", value=slope, interval=(slope - reach, slope + reach),
            unit=self.measure, chance=0.0, tokens=len(members) * PROMPTS * TOKENS, prompts=0, seeds=len(members),
        )  # fmt: skip
        return ExperimentOutcome(effect=effect, models=tuple(one.name for one in members))


def slope_of(design: np.ndarray, values: np.ndarray, column: int) -> tuple[float, float, int]:
    """A coefficient of least squares, its standard error (HC3: MacKinnon and White 1985), and the degrees of freedom.

    >>> slope, error, freedom = slope_of(np.array([[1.0, 1], [2, 1], [3, 1], [4, 1]]), np.array([2.0, 4, 6, 8]), 0)
    >>> round(slope, 9), round(error, 9), freedom
    (2.0, 0.0, 2)
    """
    inverse = np.linalg.pinv(design.T @ design)
    fitted = inverse @ design.T @ values
    leverage = np.einsum("ij,jk,ik->i", design, inverse, design)
    scaled = (values - design @ fitted) / np.clip(1 - leverage, 1e-6, None)
    covariance = inverse @ (design.T * scaled**2) @ design @ inverse
    return float(fitted[column]), float(np.sqrt(covariance[column, column])), len(values) - design.shape[1]


@cache
def measured(member: Member, measure: str, seed: int) -> float:
    """A measure of one member at the end of its training, on random ids of its vocabulary."""
    lens = Lens.load(str(family_folder() / member.name), tokenizer="bytes" if member.vocabulary == 256 else None)
    drawing = torch.Generator().manual_seed(seed)
    if measure == "average cosine":
        ids = torch.randint(member.vocabulary, (TREND_ROWS, TREND_LENGTH), generator=drawing)
        return float(average_cosine(Slice(sites=("final_norm",)).on(lens).states(ids).flatten(0, 1).numpy()) or 0.0)
    block = 0 if "first" in measure else member.depth - 1
    ready = Slice(sites=(f"block.{block}",)).on(lens)
    ids = torch.randint(member.vocabulary, (PROMPTS, TOKENS), generator=drawing)
    found = descend(ready, ready.run(ids), TOKENS, preset("seed", steps=200, seed=seed))
    return float((found.tokens == ids).double().mean())


# ---- How large a share of a text its commonest word is.

COMMONEST_SEEDS, WORDS = 5, 4000


@EXPERIMENTS.register("commonest-words")
class CommonestWords(Experiment):
    """The shares of the three commonest words in five pieces, drawn at random, of 4,000 words of the English that describes the
    Python language (`pydoc_data` of the standard library), which no model here has read or written."""

    words = ExperimentWords(
        quantity="share of the commonest word", test="Student's interval over five pieces of text",
        scope="one English text of people's, on a technical matter",
    )  # fmt: skip

    def stand_ins(self) -> tuple[StandIn, ...]:
        return (
            StandIn("the reference of the Python language", "It is English that people wrote; other texts have other shares."),
        )

    def observe(self, seed: int) -> ExperimentOutcome:
        from pydoc_data.topics import topics

        read = re.findall(r"[a-z']+", " ".join(topics.values()).lower())
        drawn = np.random.default_rng(seed).integers(0, max(1, len(read) - WORDS), COMMONEST_SEEDS)
        pieces = [Counter(read[start : start + WORDS]) for start in drawn]
        shares = [[one.most_common(3)[rank][1] / one.total() for one in pieces] for rank in range(3)]
        share = partial(mean_of, unit="share of words", tokens=COMMONEST_SEEDS * WORDS, prompts=COMMONEST_SEEDS)
        ranked = [share(f"share of word {rank + 1}", found) for rank, found in enumerate(shares)]
        return ExperimentOutcome(effect=ranked[0], beside=tuple(ranked[1:]), models=())


# ---- What a step of the prediction costs with a head and without one: processor time, and memory kept for the backward pass.

REPEATS, STEP_COST_LEAST = 5, 0.005  # seconds a repeat: of a single quick step some clocks see nothing


LOSSES = (lambda hidden, table, targets: F.cross_entropy(hidden @ table.T, targets), cwt_loss)


@EXPERIMENTS.register("step-cost")
class StepCost(Experiment):
    """Cross-entropy over `vocabulary` tokens against contrastive weight tying among `batch` targets drawn by Zipf's law, width
    `width`, forward and backward; the body, which both have, is left out."""

    words = ExperimentWords(
        quantity="cost with a head over cost without one",
        test="Student's interval over five draws of targets; of seconds the medians of alternating repeats",
        scope="the loss alone at this vocabulary, batch and width, on one processor core", range=(0.0, 1000.0),
    )  # fmt: skip
    power = Power(SEEDS, 200)

    cost: Literal["seconds", "bytes"] = "seconds"
    vocabulary: int = 8192
    batch: int = 256
    width: int = 64

    def observe(self, seed: int) -> ExperimentOutcome:
        ratios = []
        for own in own_seeds(seed):
            drawing = torch.Generator().manual_seed(own)
            table = torch.randn(self.vocabulary, self.width, generator=drawing, requires_grad=True)
            hidden = torch.randn(self.batch, self.width, generator=drawing, requires_grad=True)
            law = 1 / torch.arange(1.0, self.vocabulary + 1)
            targets = torch.multinomial(law, self.batch, replacement=True, generator=drawing)
            costs = _kept(hidden, table, targets) if self.cost == "bytes" else _seconds(hidden, table, targets)
            ratios.append(costs[0] / costs[1])
        tokens = SEEDS * self.batch
        name = f"{self.cost} with a head over {self.cost} without (V = {self.vocabulary:,}, {self.batch} targets)"
        return ExperimentOutcome(effect=mean_of(name, ratios, unit="ratio", tokens=tokens, prompts=SEEDS, chance=1.0))


def _seconds(hidden: Tensor, table: Tensor, targets: Tensor) -> list[float]:
    found: list[list[float]] = [[], []]
    for _ in range(REPEATS):
        for which in (0, 1):
            start, steps, spent = time.process_time(), 0, 0.0
            while spent < STEP_COST_LEAST:
                torch.autograd.grad(LOSSES[which](hidden, table, targets), (hidden, table))
                steps, spent = steps + 1, time.process_time() - start
            found[which].append(spent / steps)
    return [median(times) for times in found]


def _kept(hidden: Tensor, table: Tensor, targets: Tensor) -> list[float]:
    """Of the tensors that autograd keeps, the inputs not counted."""
    found = []
    for which in (0, 1):
        kept: dict[int, int] = {}

        def keep(tensor: Tensor, kept: dict[int, int] = kept) -> Tensor:
            if tensor.data_ptr() not in (hidden.data_ptr(), table.data_ptr()):
                kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = LOSSES[which](hidden, table, targets)
        found.append(float(sum(kept.values())))
        del loss
    return found
