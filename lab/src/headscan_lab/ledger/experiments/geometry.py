"""The shape of the last states of a stand-in, or of one stand-in less another's: cosines, spectra,
uniformity, alignment.
"""

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
from transformers import BertConfig, BertModel, PreTrainedModel

from headscan.inversion import descend, preset
from headscan.measures.cone import average_cosine, top_direction_share
from headscan.measures.sphere import uniformity
from headscan.model import Lens
from headscan.model.slicing import Slice
from headscan.run import BadInput
from headscan.statistics.uncertainty import student_quantile
from headscan.training import ce_loss, cwt_loss, gather_rows
from headscan.training.heads import body_of
from headscan_lab.ledger.experiment import (
    EXPERIMENTS,
    Experiment,
    ExperimentOutcome,
    ExperimentWords,
    Power,
    StandIn,
)
from headscan_lab.ledger.experiments.descents import DEEPEST, LARGE, Recovered, causal
from headscan_lab.ledger.experiments.inversion import Contrast
from headscan_lab.ledger.measurement import SEEDS, Measurement, mean_of, own_seeds
from headscan_lab.ledger.stand_ins import (
    ABOUT,
    HEADS,
    TWIN,
    Member,
    about,
    cached,
    family_folder,
    lens_of,
    prompts,
)

Numbers = npt.NDArray[np.float64]
SHAPE_ROWS = 12
SHAPE_LENGTH = 32


def _target_cosine(states: Numbers, table: Numbers, targets: npt.NDArray[np.int64]) -> float:
    """Mean cosine of a state with the input embedding of the token that follows."""
    own = table[targets]
    return float(
        (
            (states * own).sum(1) / (np.linalg.norm(states, axis=1) * np.linalg.norm(own, axis=1))
        ).mean()
    )


def _pushed_away(states: Numbers, table: Numbers, targets: npt.NDArray[np.int64]) -> float:
    return float(((table @ states.T < 0).mean(1) > 0.5).mean())


def _over_gaussian(states: Numbers) -> float:
    """Of as many vectors of the same width, the mean of five draws."""
    null = [
        float(top_direction_share(np.random.default_rng(k).standard_normal(states.shape)) or 0.0)
        for k in range(5)
    ]
    return float(top_direction_share(states) or 0.0) / float(np.mean(null))


MEASURES: dict[str, Callable[[Numbers, Numbers, npt.NDArray[np.int64]], float]] = {
    "average cosine": lambda states, table, targets: float(average_cosine(states) or 0.0),
    "share of energy on the first direction over that of a Gaussian cloud": lambda states, table, targets: (
        _over_gaussian(states)
    ),
    "uniformity": lambda states, table, targets: float(uniformity(states) or 0.0),
    "cosine with the next token's embedding": _target_cosine,
    "share of words pushed away by most states": _pushed_away,
}
RANDOM_HEAD = "share of words pushed away by most states, of a random head"


@EXPERIMENTS.register("shape")
class ShapeOfStates(Experiment):
    """A measure of the states after the final norm of five texts (`specimen`) or five trainings
    (`taught`, `headless`); with `less`, seed by seed less that of another stand-in on the same
    texts. `control` names what the effect is held against: the same difference on the language
    without Zipf's law (`flat`), the difference against a tied head (`tied`) or one whose bias
    starts at the log frequencies (`bias`), or the measure less that of a random head on the same
    states (`random head`).
    """

    controlled = True
    words = ExperimentWords(
        quantity="the measure named by the effect, a seed",
        test="interval of the mean over five seeds (pieces of text, or trainings)",
        scope="the stand-in at the size it has",
        range=(-4.0, 4.0),
    )

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
            "flat": (
                "headless" if self.model == "zipf-headless" else "taught",
                "taught" if self.less == "zipf" else "headless",
                "without Zipf's law",
                "it is so without Zipf's law as well",
            ),
            "tied": (
                self.model,
                "zipf-tied",
                "against a tied head",
                "tying the head alone does it",
            ),
            "bias": (
                self.model,
                "zipf-bias",
                "against a head whose bias starts at the log frequencies",
                "it goes with a head, too, where a bias holds the frequencies",
            ),
        }
        if not self.control:
            return None, ""
        if self.control == "random head":
            first, second = (
                _by_seed(self.model, seed)[name] for name in (self.measure, RANDOM_HEAD)
            )
            name = "the same less that of a random head"
            cause = "a random head does it as well"
        else:
            one, other, where, cause = pairs[self.control]
            first, second = (_by_seed(kind, seed)[self.measure] for kind in (one, other))
            name = f"the difference {where}"
        apart = [mine - theirs for mine, theirs in zip(first, second, strict=True)]
        return mean_of(
            name, apart, unit=self.measure, tokens=tokens, prompts=SEEDS * SHAPE_ROWS
        ), cause

    def observe(self, seed: int) -> ExperimentOutcome:
        if self.measure not in _by_seed(self.model, seed):
            raise BadInput(f"{lens_of(self.model).name} has no head, of whose words this is.")
        mine = _by_seed(self.model, seed)[self.measure]
        others = [0.0] * SEEDS if self.less is None else _by_seed(self.less, seed)[self.measure]
        tokens = SEEDS * SHAPE_ROWS * (SHAPE_LENGTH - 1)
        name = f"{self.measure} of {_named(self.model)}"
        apart = [one - other for one, other in zip(mine, others, strict=True)]
        words = self.measure.startswith("share of words")
        bounds = (
            (-float(not words), 1.0)
            if self.less is None and (words or "cosine" in self.measure)
            else (-np.inf, np.inf)
        )
        said = name if self.less is None else f"{name} less {self.less}"
        control, cause = self._controlled(seed, tokens)
        # the other heads, side by side
        heads = ("zipf-tied", "zipf-bias") if "zipf" in (self.model, self.less) else ()
        return ExperimentOutcome(
            effect=mean_of(
                said,
                apart,
                unit=self.measure,
                tokens=tokens,
                prompts=SEEDS * SHAPE_ROWS,
                bounds=bounds,
            ),
            control=control,
            cause=cause,
            beside=()
            if self.less is None
            else tuple(
                mean_of(
                    f"{self.measure} of {kind}",
                    values,
                    unit=self.measure,
                    tokens=tokens,
                    prompts=SEEDS * SHAPE_ROWS,
                )
                for kind, values in (
                    (self.model, mine),
                    (self.less, others),
                    *((one, _by_seed(one, seed)[self.measure]) for one in heads),
                )
            ),
            models=tuple(
                dict.fromkeys(
                    lens_of(kind, own).name
                    for kind in (self.model, self.less)
                    if kind
                    for own in own_seeds(seed)
                )
            ),
        )


def _named(kind: str) -> str:
    return kind if kind in ABOUT else lens_of(kind).name


@cache
def _by_seed(kind: str, seed: int) -> dict[str, list[float]]:
    """Every measure, a number a seed: one pass serves them all. Without a head there is nothing of
    words.
    """
    found: dict[str, list[float]] = {name: [] for name in (*MEASURES, RANDOM_HEAD)}
    for own in own_seeds(seed):
        lens = lens_of(kind, own)
        ids = prompts(kind, own, SHAPE_ROWS, SHAPE_LENGTH)
        states = (
            Slice(sites=(lens.default_sites[-1],))
            .on(lens)
            .states(ids)[:, :-1]
            .flatten(0, 1)
            .double()
            .numpy()
        )
        targets = ids[:, 1:].flatten().numpy()
        for name, measure in MEASURES.items():
            words = not kind.endswith("headless") and name.startswith("share of words")
            head = lens.model.get_output_embeddings() if words else None
            if words and head is None:
                found.pop(name, None)
                continue
            table = lens.input_embeddings if head is None else head.weight
            found[name].append(measure(states, table.detach().double().numpy(), targets))
        random = np.random.default_rng(own).standard_normal(
            (lens.input_embeddings.shape[0], states.shape[1])
        )
        found[RANDOM_HEAD].append(_pushed_away(states, random, targets))
    return found


# ---- How a measure of the trained family changes when width, depth or vocabulary doubles, all other factors held.

TREND_ROWS = 8
TREND_LENGTH = 32
PROMPTS = 8
TOKENS = 6
TREND_LEAST = 24  # members: below, six coefficients leave too little to judge them by


@EXPERIMENTS.register("trend")
class Trend(Experiment):
    """Least squares of a measure on log2 of width, depth and vocabulary, head and text: the
    coefficient of one factor.
    """

    words = ExperimentWords(
        quantity="change of the measure per doubling of the factor, the others held",
        test="Student's interval of a coefficient of least squares over the members, "
        "heteroscedastic (HC3)",
        scope="GPT-2s of widths 32 to 256, depths 1 to 8, V 256 to 8,192, at equal tokens",
        range=(-1.0, 1.0),
    )
    power = Power(TREND_LEAST, 200)

    factor: Literal["width", "depth", "vocabulary"] = "width"
    measure: Literal[
        "recovered at the first block", "recovered at the last block", "average cosine"
    ] = "recovered at the last block"

    def on(self, model: str) -> Experiment | None:
        """Of the depth within a given model: a deep block less the first, by Adam, whose descents
        do not fail at the first.
        """
        first = Recovered(adam=True, search=False).on(model) if self.factor == "depth" else None
        middle = f"block.{min(DEEPEST, lens_of(model).depth // 2)}"
        return Contrast(high=replace(first, at=middle), low=first) if first else None

    def stand_ins(self) -> tuple[StandIn, ...]:
        why = (
            "Width, depth and vocabulary are varied by design, so that a trend with size can be "
            "told from its other causes."
        )
        return (StandIn("the trained family of small GPT-2s (lab/scripts/train_family.py)", why),)

    def observe(self, seed: int) -> ExperimentOutcome:
        members = cached(seed % 2)
        if len(members) < TREND_LEAST:
            note = (
                f"{len(members)} members of the trained family are in the cache, {TREND_LEAST} "
                "are needed: "
            )
            note += f"python lab/scripts/train_family.py --half {seed % 2}."
            return ExperimentOutcome(effect=None, note=note)
        values = np.array([measured(one, self.measure, seed) for one in members])
        factors = ("width", "depth", "vocabulary")
        columns = [np.log2([getattr(one, name) for one in members]) for name in factors]
        columns += [np.array([float(one.head == kind) for one in members]) for kind in HEADS[1:]]
        columns += [
            np.array([float(one.text == "second") for one in members]),
            np.ones(len(members)),
        ]
        slope, error, freedom = slope_of(np.stack(columns, 1), values, factors.index(self.factor))
        reach = student_quantile(freedom) * error
        effect = Measurement(
            name=f"{self.measure} per doubling of {self.factor}",
            value=slope,
            interval=(slope - reach, slope + reach),
            unit=self.measure,
            chance=0.0,
            tokens=len(members) * PROMPTS * TOKENS,
            prompts=0,
            seeds=len(members),
        )
        return ExperimentOutcome(effect=effect, models=tuple(one.name for one in members))


def slope_of(design: np.ndarray, values: np.ndarray, column: int) -> tuple[float, float, int]:
    """A coefficient of least squares, its standard error (HC3: MacKinnon and White 1985), and the
    degrees of freedom.

    >>> slope, error, freedom = slope_of(np.array([[1.0, 1], [2, 1], [3, 1], [4, 1]]), np.array([2.0, 4, 6, 8]), 0)
    >>> round(slope, 9), round(error, 9), freedom
    (2.0, 0.0, 2)
    """
    inverse = np.linalg.pinv(design.T @ design)
    fitted = inverse @ design.T @ values
    leverage = np.einsum("ij,jk,ik->i", design, inverse, design)
    scaled = (values - design @ fitted) / np.clip(1 - leverage, 1e-6, None)
    covariance = inverse @ (design.T * scaled**2) @ design @ inverse
    return (
        float(fitted[column]),
        float(np.sqrt(covariance[column, column])),
        len(values) - design.shape[1],
    )


@cache
def measured(member: Member, measure: str, seed: int) -> float:
    """A measure of one member at the end of its training, on random ids of its vocabulary."""
    lens = Lens.load(
        str(family_folder() / member.name), tokenizer="bytes" if member.vocabulary == 256 else None
    )
    drawing = torch.Generator().manual_seed(seed)
    if measure == "average cosine":
        ids = torch.randint(member.vocabulary, (TREND_ROWS, TREND_LENGTH), generator=drawing)
        return float(
            average_cosine(Slice(sites=("final_norm",)).on(lens).states(ids).flatten(0, 1).numpy())
            or 0.0
        )
    block = 0 if "first" in measure else member.depth - 1
    ready = Slice(sites=(f"block.{block}",)).on(lens)
    ids = torch.randint(member.vocabulary, (PROMPTS, TOKENS), generator=drawing)
    found = descend(ready, ready.run(ids), TOKENS, preset("seed", steps=200, seed=seed))
    return float((found.tokens == ids).double().mean())


# ---- How large a share of a text its commonest word is.

COMMONEST_SEEDS = 5
WORDS = 4000


@EXPERIMENTS.register("commonest-words")
class CommonestWords(Experiment):
    """The shares of the three commonest words in five pieces, drawn at random, of 4,000 words of
    the English that describes the Python language (`pydoc_data` of the standard library), which no
    model here has read or written.
    """

    words = ExperimentWords(
        quantity="share of the commonest word",
        test="interval of the mean over five pieces of text",
        scope="one English text of people's, on a technical matter",
    )

    def stand_ins(self) -> tuple[StandIn, ...]:
        return (
            StandIn(
                "the reference of the Python language",
                "It is English that people wrote; other texts have other shares.",
            ),
        )

    def observe(self, seed: int) -> ExperimentOutcome:
        from pydoc_data.topics import topics

        read = re.findall(r"[a-z']+", " ".join(topics.values()).lower())
        drawn = np.random.default_rng(seed).integers(0, max(1, len(read) - WORDS), COMMONEST_SEEDS)
        pieces = [Counter(read[start : start + WORDS]) for start in drawn]
        shares = [
            [one.most_common(3)[rank][1] / one.total() for one in pieces] for rank in range(3)
        ]
        share = partial(
            mean_of,
            unit="share of words",
            bounds=(0.0, 1.0),
            tokens=COMMONEST_SEEDS * WORDS,
            prompts=COMMONEST_SEEDS,
        )
        ranked = [share(f"share of word {rank + 1}", found) for rank, found in enumerate(shares)]
        return ExperimentOutcome(effect=ranked[0], beside=tuple(ranked[1:]), models=())


# ---- What a training step costs with a head and without one: processor time, and memory kept for the backward pass.

REPEATS = 2
TEXTS = 4
CONTEXT = 128
MASKED = 0.15
SMALL_ENOUGH = 50_000_000  # parameters: 45 steps of more take over five minutes
SMALL = StandIn(
    "a BERT with random weights, 4 x 256, V = 8,192",
    "It is the same architecture; its sizes are smaller.",
)

FORMS: tuple[
    Callable[..., Tensor], ...
] = (  # without a head; with one; with one on the predicted positions alone
    lambda rows, targets, table, states, labels: cwt_loss(rows, table, targets, sparse=True),
    lambda rows, targets, table, states, labels: F.cross_entropy(
        (states @ table.T).flatten(0, 1), labels.flatten()
    ),
    lambda rows, targets, table, states, labels: ce_loss(rows, table, targets),
)


def _loss(
    form: Callable[..., Tensor], body: PreTrainedModel, ids: Tensor, labels: Tensor
) -> Tensor:
    states = body(input_ids=ids).last_hidden_state
    return form(*gather_rows(states, labels), body.get_input_embeddings().weight, states, labels)


@EXPERIMENTS.register("step-cost")
class StepCost(Experiment):
    """A whole step (forward, loss, backward, AdamW) of random weights in a given model's shape, or
    of a BERT of four blocks 256 wide, on texts that follow Zipf's law. An encoder predicts 15 % of
    its positions, and its head projects all, as is usual; the control's projects those 15 % alone.
    A causal model predicts all.
    """

    controlled = True
    words = ExperimentWords(
        quantity="cost of a whole step with a head over that of one without",
        test="interval of the mean over five draws of weights and texts; of seconds the medians "
        "of alternating repeats",
        scope=f"{TEXTS} texts of {CONTEXT} tokens, one processor core; memory is what is kept for "
        "the backward pass, without weights, gradients and moments",
        range=(0.0, 1000.0),
    )
    power = Power(SEEDS, 200)

    cost: Literal["seconds", "bytes"] = "seconds"
    model: str = ""

    def on(self, model: str) -> Self | None:
        table = lens_of(
            model
        ).input_embeddings  # of a small vocabulary a head costs nothing: that is not what is said
        quick = (
            self.cost == "bytes" or (lens_of(model).provenance().parameters or 0) <= SMALL_ENOUGH
        )
        fits = table.numel() <= LARGE and (lens_of(model).context_length or CONTEXT) >= CONTEXT
        return replace(self, model=model) if quick and fits and len(table) >= 8192 else None

    def stand_ins(self) -> tuple[StandIn, ...]:
        return (about(self.model) if self.model else SMALL,)

    def observe(self, seed: int) -> ExperimentOutcome:
        ratios: list[list[float]] = [[], []]
        for own in own_seeds(seed):
            body, every = self._body(own)
            law = 1 / torch.arange(1.0, body.config.vocab_size + 1)
            drawing = torch.Generator().manual_seed(own)
            ids = torch.multinomial(law, TEXTS * CONTEXT, replacement=True, generator=drawing).view(
                TEXTS, CONTEXT
            )
            labels = ids.masked_fill(
                torch.rand(ids.shape, generator=drawing) >= (1 if every else MASKED), -100
            )
            without, *heads = (_kept if self.cost == "bytes" else _seconds)(body, ids, labels)
            for column, cost in zip(ratios, heads, strict=True):
                column.append(cost / without)
        number = partial(
            mean_of,
            unit="ratio",
            tokens=SEEDS * int(TEXTS * CONTEXT * MASKED),
            prompts=SEEDS * TEXTS,
            chance=1.0,
        )
        return ExperimentOutcome(
            effect=number(f"{self.cost} of a step with a head over {self.cost} without", ratios[0]),
            control=number("the same with a head on masked positions alone", ratios[1]),
            cause="projecting masked positions alone does as much",
            models=(self.stand_ins()[0].name,),
        )

    def _body(self, own: int) -> tuple[PreTrainedModel, bool]:
        """A body with random weights, and whether it is causal, so that it predicts every token."""
        if self.model:
            return body_of(lens_of(self.model).random_init(own).model).requires_grad_(), causal(
                lens_of(self.model)
            )
        config = BertConfig(
            vocab_size=8192,
            hidden_size=256,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=1024,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(own)
            return BertModel(config, add_pooling_layer=False).eval(), False


def _seconds(body: PreTrainedModel, ids: Tensor, labels: Tensor) -> list[float]:
    found: list[list[float]] = [[] for _ in FORMS]
    optimiser = torch.optim.AdamW(body.parameters(), lr=1e-4)
    for turn in range(REPEATS + 1):
        for times, form in zip(found, FORMS, strict=True):
            start = time.process_time()
            optimiser.zero_grad(set_to_none=False)
            _loss(form, body, ids, labels).backward()
            optimiser.step()
            # the first makes gradients and moments
            times += [time.process_time() - start] if turn else []
    return [median(times) for times in found]


def _kept(body: PreTrainedModel, ids: Tensor, labels: Tensor) -> list[float]:
    """Bytes of the tensors that autograd keeps for the backward pass, without the weights."""
    found = []
    weights = {one.untyped_storage().data_ptr() for one in body.parameters()}
    for form in FORMS:
        kept: dict[int, int] = {}

        def keep(tensor: Tensor, kept: dict[int, int] = kept) -> Tensor:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = _loss(form, body, ids, labels)
        found.append(float(sum(size for place, size in kept.items() if place not in weights)))
        del loss
    return found
