"""What a model may have: a code, the number that shows it, the threshold, and what would help."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from headscan.diagnosis.evidence import ModelEvidence, TriedRemedies, interval, value
from headscan.run import Interval, Registry, Row
from headscan.scanner.findings import LEANING

Question = Literal["shape", "cause", "leak", "cure"]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a condition saw in one source, ill or not.

    Attributes:
        value: the number it rests on; interval: 95 %, where there is one; null: what chance gives, `null_of` says how.
        site: where. sentence: what it says to a reader. advice: what would help, with its effect on this model where that
            was measured.
    """

    value: float
    sentence: str
    advice: str
    site: str | None = None
    interval: Interval | None = None
    null: float | None = None
    null_of: str = "with random weights"


class Condition:
    """Subclass it in a file of headscan/diagnosis/conditions (or of a plug-in) and register it under its code.

    Attributes:
        title: its name; question: which of the four it answers; meaning: what it is, in a sentence; source: literature.
        unit: of the value, in words. threshold: from here on (`least`), or down to here (not `least`), it is named.
        known: many healthy models have it: it is stated as a notice; an alarm only where it may have brought another about.
        alarm: where between the threshold and here many healthy models are, and only beyond it is an alarm.
        brings: codes of conditions that it brings about: where both are present, it is named first.
        heading: what its sentence stands under in the summary, where the question's own says something else.
        todo: what to do about it; limits: what it does not say. Both in sentences, for the page of its code.
    """

    title: ClassVar[str]
    question: ClassVar[Question]
    meaning: ClassVar[str]
    source: ClassVar[str]
    unit: ClassVar[str]
    threshold: ClassVar[float]
    least: ClassVar[bool] = True
    known: ClassVar[bool] = False
    alarm: ClassVar[float | None] = None
    brings: ClassVar[tuple[str, ...]] = ()
    heading: ClassVar[str] = ""
    todo: ClassVar[str]
    limits: ClassVar[str]

    @abstractmethod
    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """What it sees in a source (`earlier`: those before it, where they are checkpoints); None where it cannot look."""

    def present(self, value: float, interval: Interval | None = None) -> bool:
        """Whether the value is on the ill side of the threshold; a subclass may ask that its interval be so, too."""
        return value >= self.threshold if self.least else value <= self.threshold

    def alarms(self, value: float) -> bool:
        """Whether it is an alarm by itself: present, and beyond what many healthy models have."""
        beyond = self.alarm is None or (value >= self.alarm if self.least else value <= self.alarm)
        return self.present(value) and not self.known and beyond


CONDITIONS: Registry[type[Condition]] = Registry("condition", "headscan.diagnosis.conditions")
"""Every condition by its code: HS1.. shape, HS2.. cause, HS3.. leak, HS4.. cure."""


def alarming(values: Mapping[str, float]) -> list[str]:
    """Which of these numbers are alarms: by themselves; or known of healthy models, and able to bring such a one about.

    >>> alarming({"HS101": 0.9, "HS102": 0.8}), alarming({"HS101": 0.6, "HS102": 0.8})
    (['HS101', 'HS102'], [])
    """
    kinds = {code: CONDITIONS[code]() for code in values}
    plain = {code for code, kind in kinds.items() if kind.alarms(values[code])}
    return [
        code
        for code, kind in kinds.items()
        if code in plain or (kind.known and kind.present(values[code]) and plain & set(kind.brings))
    ]


# ---- What several conditions say of the remedies that were tried on this very model.


def searching(evidence: ModelEvidence) -> str:
    """What the remedies that were tried did for search, as a sentence with a blank before it."""
    if evidence.cure is None or evidence.cure.best is None:
        return " headscan remedy measures which map helps search."
    return f" For search: {searched(evidence.cure)}."


def searched(cure: TriedRemedies) -> str:
    """How many passages find the one that follows, as they are and after the best remedy; whether that may be chance."""
    best, of = cure.best, cure.queries
    assert best is not None
    gain, ends = best.number("recall_at_1_gain") or 0.0, best.interval("recall_at_1_gain") or (0.0, 0.0)
    before, after = round(of * cure.plain), round(of * (cure.plain + gain))
    plain = f"{before} of {of} passages find the one that follows by the vectors as they are"
    if after <= before:
        return f"{plain}, and no more after any of the {len(cure.rows) - 1} remedies tried"
    chance = "" if ends[0] > 0 else ", so few more that it may be chance"
    return f"{plain}, {after} after the remedy {best.text('remedy')}{chance}"


# ---- HS101: the states stand in a narrow cone.


@CONDITIONS.register("HS101")
class Cone(Condition):
    """Average cosine of the last block's tokens, without sinks."""

    title = "Narrow cone"
    question = "shape"
    meaning = "Any two tokens of the last block point much the same way, so cosines between them say little."
    source = "Ethayarajh 2019, arXiv:1909.00512; Godey et al. 2024, arXiv:2401.12143"
    unit = "average cosine"
    threshold = 0.5
    alarm = 0.7
    brings = ("HS201", "HS401")
    todo = (
        "Compare vectors only after centring (headscan remedy measures which map helps search). Of a model with a linear "
        "head headscan.decone moves the common direction into a bias, and no logit changes. In training: a head with a "
        "bias, or none (docs/training.md)."
    )
    limits = (
        "A cone is no defect by itself: a healthy model may predict well inside one. It says that raw cosines are "
        "uninformative, not that the states are. Sinks are left out, and one site, the last block, decides."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """The last block, the biased input of its head beside it."""
        last = evidence.blocks[-1]
        found = value(last, "average_cosine")
        if found is None:
            return None
        null = value(evidence.null(last.text("site")), "average_cosine")
        where = last.text("site")
        return Seen(
            value=found, site=where, interval=interval(last, "average_cosine"), null=null, advice=_advice(evidence),
            sentence=f"Two tokens have a cosine of {found:.2f} on average at {where}.",
        )  # fmt: skip


def _advice(evidence: ModelEvidence) -> str:
    if evidence.gauge is None or evidence.gauge[1] < LEANING:
        return f"Centre vectors before they are compared.{searching(evidence)}"
    site, before, after = evidence.gauge
    return (
        f"headscan.decone(model) moves the common direction into a bias of the output head: at {site} the average cosine "
        f"goes from {before:.2f} to {after:z.2f}, and no logit changes.{searching(evidence)}"
    )


# ---- HS102: a few coordinates make the cone.


@CONDITIONS.register("HS102")
class RogueCoordinate(Condition):
    """Average cosine that outlying coordinates make alone, at the site where that is largest.

    The average cosine is the share of a unit vector's squared length that all tokens have in common, and a coordinate's part in
    it is the square of that coordinate's mean. From a half on, what a few coordinates hold for every token alike outweighs all
    that the others say of the token; that is what the threshold stands for, chosen before it was computed of any model.
    Healthy models were found beyond it since, as the literature says: alone it is a notice.
    """

    title = "Rogue coordinates"
    question = "shape"
    meaning = "A few coordinates decide how alike two tokens look; distances and probes mostly see these few."
    source = "Timkey and van Schijndel 2021, arXiv:2109.04404"
    unit = "average cosine that outlying coordinates make"
    threshold = 0.5
    known = True
    brings = ("HS101", "HS201", "HS202", "HS401")
    todo = (
        "Standardise coordinates, or leave these out, before vectors are compared or rounded; give them a scale of their "
        "own in 8 bits. Where a checkpoint has them and the one before has not, look at the norms' weights and biases "
        "there."
    )
    limits = (
        "Many large models have such coordinates at early blocks and work with them. The number is of cosines, not of the "
        "loss: whether the model needs them, headscan compare on a model without them says. A coordinate is outlying that "
        "makes a tenth of the average cosine or more. The number has no interval."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """Of all sites."""
        made, row = max(((_made(row), row) for row in evidence.sites), key=lambda pair: pair[0], default=(0.0, None))
        if row is None or not made:
            return Seen(value=0.0, sentence="No coordinate makes a tenth of a site's average cosine.", advice="")
        found, null = row.get("rogue_coordinates"), evidence.null(row.text("site"))
        found = found if isinstance(found, list) else []
        few = f"coordinate{'s' * (len(found) != 1)} {', '.join(map(str, found))}"
        add = "alone adds" if len(found) == 1 else "add"
        left = row.number("average_cosine_without_rogue")
        effect = f": the average cosine is then {left:.2f}" if left is not None else ""
        return Seen(
            value=made, site=row.text("site"), null=_made(null) if null is not None else None,
            sentence=f"Two tokens have a cosine of {value(row, 'average_cosine') or 0.0:.2f} on average at {row['site']}; "
            f"{few} {add} {made:.2f} to it.",
            advice=f"Standardise coordinates, or set {few} aside, before vectors are compared{effect}. Where predictions "
            f"are bad, too, look at the weights and biases that write it.{searching(evidence)}",
        )  # fmt: skip


def _made(row: Row) -> float:
    """The average cosine that outlying coordinates make at a site."""
    return max(0.0, (row.number("rogue_share") or 0.0) * (value(row, "average_cosine") or 0.0))


# ---- HS103: a layer uses a handful of directions only.


@CONDITIONS.register("HS103")
class Collapse(Condition):
    """Participation ratio of the block where it is least, without sinks: it is centred, so a cone alone does not lower it."""

    title = "Collapsed layer"
    question = "shape"
    meaning = "All tokens of a layer differ along a handful of directions only: little of the text passes it."
    source = "dimensional collapse: Jing et al. 2022, arXiv:2110.09348"
    unit = "directions in use (participation ratio)"
    threshold = 3.0
    least = False
    brings = ("HS101", "HS102", "HS201", "HS202", "HS401")
    todo = (
        "Look at that block's weights and at its learning rate; compare with an earlier checkpoint (headscan compare). In "
        "a run, headscan.training.Monitor warns, keeps a checkpoint or stops."
    )
    limits = (
        "The participation ratio counts directions by variance: a few loud ones hide many quiet ones that still carry the "
        "text (HS301 tells). On very few tokens, or a monotonous text, it is low of itself."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """The flattest block."""
        known = [(found, row) for row in evidence.blocks if (found := value(row, "participation_ratio")) is not None]
        if not known:
            return None
        found, row = min(known, key=lambda pair: pair[0])
        null = value(evidence.null(row.text("site")), "participation_ratio")
        width = row.number("width")
        return Seen(
            value=found, site=row.text("site"), null=null, interval=interval(row, "participation_ratio"),
            sentence=f"The tokens of {row['site']} differ along about {found:.1f} of {width:.0f} directions.",
            advice="Look at the block's weights and learning rate; in a run, headscan.training.Monitor stops at the first sign.",
        )  # fmt: skip


# ---- HS104: a few tokens carry most of the energy.


@CONDITIONS.register("HS104")
class SinkTokens(Condition):
    """Share of a site's energy that its sink tokens carry, where it is largest."""

    title = "Sink tokens"
    question = "shape"
    meaning = (
        "A few tokens, mostly the first of a window, are so long that averages over all tokens speak of them alone."
    )
    source = "Xiao et al. 2023, arXiv:2309.17453; Sun et al. 2024, arXiv:2402.17762"
    unit = "share of the energy"
    threshold = 0.5
    known = True
    todo = (
        "Read the columns without sinks; leave the first token out of means; give sinks a scale of their own where "
        "activations are rounded."
    )
    limits = (
        "Sinks are how attention rests, in most trained transformers; they harm only who averages or rounds over them."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """The site whose energy they carry most of."""
        known = [row for row in evidence.sites if row.number("sink_energy") is not None]
        if not known:
            return None
        row = max(known, key=lambda row: row.number("sink_energy") or 0.0)
        energy, null = row.number("sink_energy") or 0.0, evidence.null(row.text("site"))
        return Seen(
            value=energy, site=row.text("site"), null=null.number("sink_energy") if null is not None else None,
            sentence=f"{row.number('sinks') or 0:.0f} of {row.number('tokens') or 0:.0f} tokens carry {energy:.0%} of the "
            f"energy at {row['site']}.",
            advice="Read the columns without sinks; leave the first token out of means, and rounding its own scale.",
        )  # fmt: skip


# ---- HS201: the model predicts no better than counting does.


@CONDITIONS.register("HS201")
class UntrainedHead(Condition):
    """Loss over the entropy of the text's tokens, which is what knowing their frequencies alone loses."""

    title = "Predictions no better than counting"
    question = "cause"
    meaning = (
        "The loss is not below what word frequencies give: the head was not trained, or head, tokenizer, weights and text do not "
        "belong together."
    )
    source = "definition"
    unit = "loss over that of word frequencies"
    threshold = 1.0
    brings = ("HS202",)
    todo = (
        "See that the tokenizer is the model's own and that the checkpoint has the head's weights (a warning of missing "
        "keys on loading). A body that was trained without a head gets one from headscan recover."
    )
    limits = (
        "It compares with the frequencies of the very text that was read, which no model knew beforehand: on a short or "
        "foreign text a healthy model may come near, or beyond (docs/checkup.md: gpt-vanilla and stories260K on wikitext-2). "
        "It does not say whether head, body or tokenizer is at fault."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """Of models that predict a next token."""
        row = evidence.loss
        loss, counted = (row.number("loss"), row.number("unigram_entropy")) if row is not None else (None, None)
        if row is None or loss is None or not counted:
            return None
        ends, random = row.interval("loss"), evidence.loss_of_null
        null = random.number("loss") if random is not None else None
        return Seen(
            value=loss / counted, site="output head", interval=(ends[0] / counted, ends[1] / counted) if ends else None,
            null=null / counted if null is not None else None,
            sentence=f"The loss is {loss:.2f} nats a token, {'worse' if loss >= counted else 'better'} than the {counted:.2f} of "
            "word frequencies alone.",
            advice="See that the text is of the kind that the model was trained on, and the tokenizer the model's own; a body "
            "trained without a head gets one from headscan recover.",
        )  # fmt: skip


# ---- HS202: the logits have the wrong scale.


@CONDITIONS.register("HS202")
class LogitScale(Condition):
    """How many times too sure, or too unsure, the model is."""

    title = "Logits of the wrong scale"
    question = "cause"
    meaning = "All logits times one factor would predict better: a scale was lost or added between states and head."
    source = "Guo et al. 2017, arXiv:1706.04599 (temperature)"
    unit = "factor to the best scale of the logits"
    threshold = 2.0
    todo = (
        "Compare the configuration with training's: tied or untied weights, a scale of the embedding or of the logits, "
        "the final norm. Where only the temperature is off, divide the logits by it."
    )
    limits = (
        "A factor below 2 is common: a model is a little too sure on a foreign text, and a small one may be far too sure. It is "
        "measured on the first 1,024 tokens."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """Either way: the value is the factor or its reciprocal, whichever is above 1."""
        scale = evidence.loss.number("best_scale") if evidence.loss is not None else None
        if evidence.loss is None or scale is None:
            return None
        ends = evidence.loss.interval("best_scale")
        factors = sorted(_factor(end) for end in ends) if ends and min(ends) > 0 else None
        through = ends is not None and ends[0] <= 1 <= ends[1]
        random = evidence.loss_of_null.number("best_scale") if evidence.loss_of_null is not None else None
        sure = (
            "The model is about as sure as it should be"
            if through
            else (f"The model is {'less' if scale > 1 else 'more'} sure than it should be")
        )
        return Seen(
            value=_factor(scale), site="output head",
            interval=(1.0 if through else factors[0], factors[1]) if factors else None,
            null=_factor(random) if random else None,
            sentence=f"{sure}: its loss is least with all logits multiplied by {scale:.2f}.",
            advice="See that the text is of the kind that the model was trained on; then compare the configuration with the "
            "training's: tied weights, a scale of embedding or logits, the final norm.",
        )  # fmt: skip


def _factor(scale: float) -> float:
    return math.exp(abs(math.log(scale)))


# ---- HS203: the weights lie on a coarse grid.


@CONDITIONS.register("HS203")
class CoarseWeights(Condition):
    """Different values among 64 neighbouring weights, in the coarsest matrix."""

    title = "Weights on a coarse grid"
    question = "cause"
    meaning = "The weights were rounded to at most 16 values a group: what these numbers show is the rounded model's."
    source = "definition; groups of 64 and 128: Dettmers and Zettlemoyer 2022, arXiv:2212.09720"
    unit = "different values in 64 weights"
    heading = "Weights"
    threshold = 16.0
    least = False
    todo = (
        "Say with every number that it is of the rounded model. headscan compare MODEL ORIGINAL tells site by site what "
        "rounding changed; headscan evaluate what it costs."
    )
    limits = (
        "It sees rounding with one scale for 64 neighbours or more. Finer groups, or codebooks of vectors, pass unseen; "
        "what rounding costs it does not say. Weights of equal values were never rounded and are passed over."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """Of models whose weights are at hand."""
        grid = evidence.grid
        if grid is None:
            return None
        return Seen(
            value=grid.coarsest_levels, site=grid.coarsest, null=64.0,
            null_of="weights never rounded",
            sentence=f"64 neighbouring weights of {grid.coarsest} hold {grid.coarsest_levels:.0f} different values in the "
            f"median, those of all matrices {grid.levels:.0f}.",
            advice="headscan compare MODEL ORIGINAL says, site by site, what rounding changed.",
        )  # fmt: skip


# ---- HS204: a checkpoint loses more than the one before it.


@CONDITIONS.register("HS204")
class CheckpointOrder(Condition):
    """Loss minus the least loss of the checkpoints before."""

    title = "Checkpoints out of order"
    question = "cause"
    meaning = (
        "A later checkpoint predicts worse than an earlier one: they are not in order, or training went wrong there."
    )
    source = "definition"
    unit = "nats a token above the best checkpoint before"
    threshold = 0.1
    brings = ("HS101", "HS102", "HS201", "HS202")
    todo = (
        "Sort checkpoints by their step. Where they are in order, look at the run between these two: learning rate, data, "
        "a restart without the optimiser's state."
    )
    limits = (
        "Losses are of one text: a run may get worse on it and better on others. Neighbours that differ by less than .1 "
        "nat are not told apart, and it has no interval."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """Of all but the first of a row of checkpoints."""
        loss = evidence.loss.number("loss") if evidence.loss is not None else None
        before = [(found, one.model) for one in earlier if one.loss is not None and (found := one.loss.number("loss"))]
        if loss is None or not before:
            return None
        least, name = min(before)
        return Seen(
            value=loss - least, site="output head",
            sentence=f"The loss of {evidence.model} is {loss:.2f} nats a token, that of {name} before it {least:.2f}.",
            advice="Sort the checkpoints by their step; where they are in order, look at the run between these two.",
        )  # fmt: skip


# ---- HS301: a state gives its prompt away.


@CONDITIONS.register("HS301")
class ReadableStates(Condition):
    """Share of a prompt's tokens that exact search reads from the states of a middle block."""

    title = "States that give the prompt away"
    question = "leak"
    meaning = "Whoever has the states of one layer has the text: hidden states are to be kept as the text itself is."
    source = "Morris et al. 2023, arXiv:2310.06816; exact search: docs/inversion.md"
    unit = "share of tokens read"
    threshold = 0.9
    known = True
    todo = (
        "Keep states as the text itself is kept: who may see the one may see the other. headscan privacy says how many "
        "bits a defence leaves, and what it costs the model."
    )
    limits = (
        "One block and a few prompts were tried, by an attacker who has the weights. That a prompt was not read is no "
        "proof that it cannot be."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """Where search was tried."""
        found = evidence.read
        if found is None:
            return None
        return Seen(
            value=found.recovered, site=found.site, interval=found.interval,
            null=evidence.bits.guessed if evidence.bits is not None else None, null_of="guessing without a state",
            sentence=f"Exact search reads {found.recovered:.0%} of {found.tokens} tokens of the text from the states of "
            f"{found.site}; its verdict: {found.verdict}.",
            advice=f"Treat stored or shared states as text. {_noise(evidence)}",
        )  # fmt: skip


def _noise(evidence: ModelEvidence) -> str:
    bits = evidence.bits
    if bits is None:
        return "headscan privacy says what a defence leaves in them, and costs."
    low, high = bits.told
    share = f"{low}% to {high}%" if low < high else f"{low}%"
    return (
        f"Noise of {bits.noise:g} of their spread leaves {share} of a token's {bits.prior_bits:.1f} bits in them "
        "(headscan privacy: other defences, and what they cost)."
    )


# ---- HS302: noise on the states does not hide the text.


@CONDITIONS.register("HS302")
class TextThroughNoise(Condition):
    """Share of a token's bits that states tell through noise, proved from below."""

    title = "Text that shows through noise"
    question = "leak"
    meaning = "Gaussian noise that costs the model dearly still leaves most of each token's information in its states."
    source = "docs/leaks.md; bounds: Kolchinsky and Tracey 2017, arXiv:1706.02419"
    unit = "share of a token's bits told, at least"
    threshold = 0.5
    known = True
    todo = (
        "Do not rely on noise that leaves the model usable: headscan privacy puts other defences (rounding, projection, "
        "permutation, rotation) beside it, each with the bits it leaves and the nats it costs."
    )
    limits = (
        "A lower bound, for this model's own expectation of the text as prior knowledge and for the likeliest candidates: "
        "more may be told, never less. One block and a few windows; the interval is wide."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """Where bits were counted."""
        bits = evidence.bits
        if bits is None:
            return None
        ends = bits.interval
        share = [min(1.0, max(0.0, end / bits.prior_bits)) for end in ends] if ends is not None else None
        return Seen(
            value=bits.lower / bits.prior_bits, site=bits.site, interval=(share[0], share[1]) if share else None,
            null=bits.guessed, null_of="tokens guessed without a state",
            sentence=f"Behind noise of {bits.noise:g} of their spread the states of {bits.site} still tell "
            f"{bits.told[0]}%{' or more' * (bits.told[0] < 100)} of a token's {bits.prior_bits:.1f} bits; the best attack names "
            f"{bits.named:.0%} of the tokens outright.",
            advice="headscan privacy puts other defences beside noise: what each leaves, and what it costs.",
        )  # fmt: skip


# ---- HS303: tokens know nothing of each other.


@CONDITIONS.register("HS303")
class DeafTokens(Condition):
    """How far an output moves when another token is replaced, over how far when its own is."""

    title = "Tokens that know nothing of each other"
    question = "leak"
    meaning = "Nothing flows between tokens: attention is cut off or broken, and each token is read for itself."
    source = "docs/flow.md"
    heading = "Flow"
    unit = "movement by another token over that by its own"
    threshold = 0.01
    least = False
    brings = ("HS201", "HS202")
    todo = (
        "Look at the attention: its mask, its output projection, a norm before it. headscan flow --cut attention,mlp shows which "
        "part carries what, site by site."
    )
    limits = (
        "It is a mean over places of a few short prompts at the last block. That something flows does not say that it is used: "
        "headscan attribute asks that of one prediction."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """Where it was measured."""
        flow = evidence.flow
        if flow is None:
            return None
        told = (
            f"; from one output {flow.told:.0%} of the other tokens can be told, each among {flow.candidates}"
            if flow.told is not None
            else ""
        )
        return Seen(
            value=flow.heard, site=flow.site, interval=flow.interval, null=flow.null,
            sentence=f"Replacing another token moves an output of {flow.site} {flow.heard:.2g} times as far as replacing "
            f"its own{told}.",
            advice="headscan flow --cut attention,mlp shows which part carries what between tokens.",
        )  # fmt: skip


# ---- HS401: what all tokens have in common at the output head's input can be taken away for nothing.


@CONDITIONS.register("HS401")
class RemovableDirection(Condition):
    """What a bias of the output head takes off the average cosine of its input."""

    title = "Common direction that a bias removes"
    question = "cure"
    meaning = (
        "Part of what all tokens have in common could be held by a bias of the output head: it can go without changing a "
        "prediction."
    )
    source = "docs/anatomy.md; Godey et al. 2024, arXiv:2401.12143"
    unit = "average cosine that goes away"
    threshold = LEANING
    known = True
    todo = "headscan.decone(model) returns the model with that bias, and proves that no logit changed."
    limits = (
        "What goes is what tokens have in common at the output head's input; inner blocks keep theirs. Whether vectors then "
        "search better is another question (HS402)."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """Where the head is linear."""
        if evidence.gauge is None:
            return None
        site, before, after = evidence.gauge
        null, there = evidence.gauge_of_null, "A" if before >= LEANING else "There is hardly one: a"
        return Seen(
            value=before - after, site=site, interval=evidence.gauge_interval, null=None if null is None else null[1] - null[2],
            sentence=f"{there} bias of the output head would take the average cosine at {site} from {before:.2f} to {after:z.2f} "
            "and change no logit.",
            advice="headscan.decone(model) returns that model.",
        )  # fmt: skip


# ---- HS402: a remedy makes vectors search better.


@CONDITIONS.register("HS402")
class RemediedSearch(Condition):
    """Gain in recall@1 of the best of the remedies tried, its interval above 0."""

    title = "Search that a remedy improves"
    question = "cure"
    meaning = (
        "A map of the finished vectors, fitted in one pass, lets more passages find the passage that follows them."
    )
    source = "docs/remedies.md; Mu and Viswanath 2018, arXiv:1702.01417"
    unit = "gain in recall@1"
    threshold = 0.02
    known = True
    todo = (
        "headscan remedy MODEL --pairs FILE fits all remedies, judges them on your own pairs and writes the best as a module of "
        "sentence-transformers, as ONNX or into the model's folder."
    )
    limits = (
        "Judged by consecutive passages of 16 tokens of one text, by the mean of the states that the head reads: search among "
        "your documents may come out otherwise. Whitening needs more vectors than a short checkup has."
    )

    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """Where remedies were tried."""
        cure = evidence.cure
        best = cure.best if cure is not None else None
        if cure is None or best is None:
            return None
        ends = best.interval("recall_at_1_gain")
        gain, name = best.number("recall_at_1_gain") or 0.0, best.text("remedy")
        return Seen(
            value=gain, site=cure.site, interval=ends,
            null=0.0, null_of="no remedy",
            sentence=f"Search at {cure.site}: {searched(cure)}.",
            advice=f"headscan remedy exports {name}; fit it on more of your own texts.",
        )  # fmt: skip

    def present(self, value: float, interval: Interval | None = None) -> bool:
        """Only a gain beyond chance."""
        return super().present(value) and (interval is None or interval[0] > 0)
