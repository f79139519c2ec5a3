"""The conditions of a checkup, one declaration each: code, number, threshold, words, and the
function that looks for it.
"""

import math

from headscan.diagnosis import lookahead as lookahead  # its condition, HS208
from headscan.diagnosis.evidence import ModelEvidence, interval, value
from headscan.diagnosis.registry import Seen, condition
from headscan.run import Row
from headscan.scanner.cautions import UNREAD
from headscan.scanner.findings import LEANING


@condition(
    "HS101",
    "shape",
    "Narrow cone",
    threshold=0.5,
    alarm=0.7,
    unit="average cosine",
    brings=("HS201", "HS207", "HS401"),
    unless="HS201",
    sentence="Average cosine of the last block's tokens, without sinks.",
    meaning="Two tokens of the last block point much the same way on average, so cosines between "
    "them say little.",
    source="Ethayarajh 2019, arXiv:1909.00512; Godey et al. 2024, arXiv:2401.12143",
    todo="Compare vectors only after centring (headscan remedy measures which map helps search). "
    "Of a model with a linear head headscan.decone moves the common direction into a bias, "
    "and no logit changes. In training: a head with a bias, or none (docs/training.md).",
    limits="A cone is no defect by itself: a healthy model may predict well inside one. It says "
    "that raw cosines are uninformative, not that the states are. Sinks are left out, and "
    "one site, the last block, decides.",
)
def narrow_cone(evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
    """The last block, the biased input of its head beside it."""
    last = evidence.blocks[-1]
    site = last.text("site")
    cosine = value(last, "average_cosine")
    if cosine is None:
        return None
    advice = "Centre vectors before they are compared."
    if (gauge := evidence.gauge) is not None and gauge[1] >= LEANING:
        head, cosine_before, cosine_after = gauge
        advice = (
            "headscan.decone(model) moves the common direction into a bias of the output head: at "
        )
        advice += (
            f"{head} the average cosine goes from {cosine_before:.2f} to {cosine_after:z.2f}, and no logit "
            "changes."
        )
    return Seen(
        value=cosine,
        site=site,
        interval=interval(last, "average_cosine"),
        null=value(evidence.null(site), "average_cosine"),
        sentence=f"Two tokens have a cosine of {cosine:.2f} on average at {site}.",
        advice=f"{advice}{_search(evidence)}",
    )


@condition(
    "HS102",
    "shape",
    "Rogue coordinates",
    threshold=0.5,
    known=True,
    brings=("HS101", "HS201", "HS202", "HS401"),
    unit="average cosine that outlying coordinates make",
    sentence="Average cosine that outlying coordinates make alone, at the site where that is "
    "largest.",
    meaning="A few coordinates decide how alike two tokens look; distances and probes mostly see "
    "these few.",
    source="Timkey and van Schijndel 2021, arXiv:2109.04404",
    todo="Standardise coordinates, or leave these out, before vectors are compared or rounded; "
    "give them a scale of their own in 8 bits. Where a checkpoint has them and the one "
    "before has not, look at the norms' weights and biases there.",
    limits="Many large models have such coordinates at early blocks and work with them. The "
    "number is of cosines, not of the loss: headscan compare with a model without them "
    "shows whether the model needs them. A coordinate is outlying that makes a tenth of "
    "the average cosine or more. The number has no interval.",
)
def rogue_coordinates(evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen:
    """Of all sites."""
    row = max(evidence.sites, key=_rogue_cosine, default=Row())
    if not (rogue := _rogue_cosine(row)):
        return Seen(
            value=0.0, sentence="No coordinate makes a tenth of a site's average cosine.", advice=""
        )
    listed = row.get("rogue_coordinates")
    null = evidence.null(row.text("site"))
    coordinates = listed if isinstance(listed, list) else []
    few = f"coordinate{'s' * (len(coordinates) != 1)} {', '.join(map(str, coordinates))}"
    left = row.number("average_cosine_without_rogue")
    effect = f": the average cosine is then {left:.2f}" if left is not None else ""
    return Seen(
        value=rogue,
        site=row.text("site"),
        null=_rogue_cosine(null) if null is not None else None,
        sentence=f"Two tokens have a cosine of {value(row, 'average_cosine') or 0.0:.2f} on "
        f"average at {row['site']}; {few} "
        f"{'alone adds' if len(coordinates) == 1 else 'add'} {rogue:.2f} to it.",
        advice=f"Standardise coordinates, or set {few} aside, before vectors are "
        f"compared{effect}. Where predictions are bad, too, look at the weights and biases "
        f"that write it.{_search(evidence)}",
    )


def _rogue_cosine(row: Row) -> float:
    return max(0.0, (row.number("rogue_share") or 0.0) * (value(row, "average_cosine") or 0.0))


@condition(
    "HS103",
    "shape",
    "Collapsed layer",
    threshold=3.0,
    least=False,
    unit="directions in use (participation ratio)",
    brings=("HS101", "HS102", "HS201", "HS202", "HS207", "HS401"),
    unless="HS201",
    sentence="Participation ratio of the block where it is least, without sinks: it is centred, "
    "so a cone alone does not lower it.",
    meaning="All tokens of a layer differ along a handful of directions only: little of the text "
    "passes it.",
    source="dimensional collapse: Jing et al. 2022, arXiv:2110.09348",
    todo="Look at that block's weights and at its learning rate; compare with an earlier "
    "checkpoint (headscan compare). In a run, headscan.training.Monitor warns, keeps a "
    "checkpoint or stops.",
    limits="The participation ratio counts directions by variance: a few of large variance hide "
    "many small ones that still carry the text (see HS301). On very few tokens, or a "
    "monotonous text, it is low of itself.",
)
def collapsed_layer(evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
    """The flattest block."""
    ratios = [
        (ratio, row)
        for row in evidence.blocks
        if (ratio := value(row, "participation_ratio")) is not None
    ]
    if not ratios:
        return None
    ratio, row = min(ratios, key=lambda pair: pair[0])
    return Seen(
        value=ratio,
        site=row.text("site"),
        interval=interval(row, "participation_ratio"),
        null=value(evidence.null(row.text("site")), "participation_ratio"),
        sentence=f"The tokens of {row['site']} differ along about {ratio:.1f} of "
        f"{row.number('width'):.0f} directions.",
    )


@condition(
    "HS104",
    "shape",
    "Sink tokens",
    threshold=0.5,
    known=True,
    unit="share of the energy",
    sentence="Share of a site's energy that its sink tokens carry, where it is largest.",
    meaning="A few tokens, mostly the first of a window, are so long that averages over all "
    "tokens speak of them alone.",
    source="Xiao et al. 2023, arXiv:2309.17453; Sun et al. 2024, arXiv:2402.17762",
    todo="Read the columns without sinks; leave the first token out of means; give sinks a scale "
    "of their own where activations are rounded.",
    limits="Sinks are how attention rests, in most trained transformers; they harm only who "
    "averages or rounds over them.",
)
def sink_tokens(evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
    """The site whose energy they carry most of."""
    rows = [row for row in evidence.sites if row.number("sink_energy") is not None]
    if not rows:
        return None
    row = max(rows, key=lambda row: row.number("sink_energy") or 0.0)
    energy = row.number("sink_energy") or 0.0
    null = evidence.null(row.text("site"))
    return Seen(
        value=energy,
        site=row.text("site"),
        null=null.number("sink_energy") if null is not None else None,
        sentence=f"{row.number('sinks') or 0:.0f} of {row.number('tokens') or 0:.0f} tokens carry "
        f"{energy:.0%} of the energy at {row['site']}.",
    )


@condition(
    "HS201",
    "cause",
    "Predictions no better than counting",
    threshold=1.0,
    brings=("HS202",),
    source="definition",
    unit="loss over that of counting",
    lacks=("no loss",),
    sentence="Loss at the best scale of the logits, over that of a counter of pairs of tokens "
    "which learns from this text alone.",
    meaning="The predictions know no more than counting the same text tells: the head was not "
    "trained, or head, tokenizer, weights and text do not belong together.",
    todo="See that the tokenizer is the model's own and that the checkpoint has the head's "
    "weights (a warning of missing keys on loading). A body that was trained without a head "
    "gets one from headscan recover.",
    limits="On a foreign text a healthy model may come near, or beyond (docs/checkup.md: "
    "gpt-headless on wikitext-2). The longer the text the better the counter. It does not "
    "say whether head, body or tokenizer is at fault.",
)
def no_better_than_counting(evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
    """Of models that predict a next token."""
    row = evidence.loss
    null = evidence.loss_of_null
    if row is None or (excess := evidence.best_over_counting) is None:
        return None
    loss, best, counted = (
        row.number(name) or 0.0 for name in ("loss", "best_loss", "counting_loss")
    )
    ends = row.interval("loss")
    random = null.number("best_loss") if null is not None else None
    scaled = f" ({best:.2f} at the best scale of its logits)" if loss - best >= 0.01 else ""
    return Seen(
        value=excess,
        site="output head",
        null=random / counted if random is not None else None,
        interval=(max(0.0, ends[0] - loss + best) / counted, (ends[1] - loss + best) / counted)
        if ends
        else None,
        sentence=f"The loss is {loss:.2f} nats a token{scaled}, "
        f"{'worse' if excess >= 1 else 'better'} than the {counted:.2f} of counting pairs "
        "of tokens.",
    )


@condition(
    "HS202",
    "cause",
    "Logits of the wrong scale",
    threshold=2.0,
    unit="factor to the best scale of the logits",
    lacks=("no loss",),
    silent="no factor from a 16th to 16 suits its logits",
    sentence="How many times too sure, or too unsure, the model is.",
    meaning="All logits times one factor would predict better: a scale was lost or added between "
    "states and head.",
    source="Guo et al. 2017, arXiv:1706.04599 (temperature)",
    todo="Compare the configuration with training's: tied or untied weights, a scale of the "
    "embedding or of the logits, the final norm. Where only the temperature is off, divide "
    "the logits by it.",
    limits="A factor below 2 is common: a model is a little too sure on a foreign text, and a "
    "small one may be far too sure. It is measured on the first 1,024 tokens.",
)
def logit_scale(evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
    """Either way: the value is the factor or its reciprocal, whichever is above 1."""
    scale = evidence.loss.number("best_scale") if evidence.loss is not None else None
    if evidence.loss is None or scale is None:
        return None
    ends = evidence.loss.interval("best_scale")
    factors = sorted(map(_factor, ends)) if ends and min(ends) > 0 else None
    right = ends is not None and ends[0] <= 1 <= ends[1]
    random = (
        evidence.loss_of_null.number("best_scale") if evidence.loss_of_null is not None else None
    )
    sure = (
        "about as sure as it should be"
        if right
        else f"{'less' if scale > 1 else 'more'} sure than it should be"
    )
    return Seen(
        value=_factor(scale),
        site="output head",
        interval=(1.0 if right else factors[0], factors[1]) if factors else None,
        null=_factor(random) if random else None,
        sentence=f"The model is {sure}: its loss is least with all logits multiplied by "
        f"{scale:.2f}.",
    )


def _factor(scale: float) -> float:
    return math.exp(abs(math.log(scale)))


@condition(
    "HS203",
    "cause",
    "Weights on a coarse grid",
    threshold=16.0,
    least=False,
    unit="different values in 64 weights",
    of_text=False,
    heading="Weights",
    sentence="Different values among 64 neighbouring weights, in the coarsest matrix.",
    meaning="The weights were rounded to at most 16 values a group: what these numbers show is "
    "the rounded model's.",
    source="definition; groups of 64 and 128: Dettmers and Zettlemoyer 2022, arXiv:2212.09720",
    todo="Say with every number that it is of the rounded model. headscan compare ORIGINAL MODEL "
    "--damage tells block by block what rounding costs.",
    limits="It sees rounding with one scale for 32 neighbours or more. Finer groups, or codebooks "
    "of vectors, pass unseen; what rounding costs it does not say. Weights of equal values "
    "were never rounded and are passed over.",
)
def coarse_weights(evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
    """Of models whose weights are at hand."""
    if (grid := evidence.grid) is None:
        return None
    return Seen(
        value=grid.coarsest_levels,
        site=grid.coarsest,
        null=64.0,
        null_of="weights never rounded",
        sentence=f"64 neighbouring weights of {grid.coarsest} hold {grid.coarsest_levels:.0f} "
        f"different values in the median, those of all matrices {grid.levels:.0f}.",
    )


@condition(
    "HS204",
    "cause",
    "Checkpoints out of order",
    threshold=0.1,
    unit="nats a token above the best checkpoint before",
    brings=("HS101", "HS102", "HS201", "HS202", "HS207"),
    source="definition",
    sentence="Loss minus the least loss of the checkpoints before.",
    meaning="A later checkpoint predicts worse than an earlier one: they are not in order, or "
    "training went wrong there.",
    todo="Sort checkpoints by their step. Where they are in order, look at the run between these "
    "two: learning rate, data, a restart without the optimiser's state.",
    limits="Losses are of one text: a run may get worse on it and better on others. Neighbours "
    "that differ by less than .1 nat are not told apart, and it has no interval.",
)
def checkpoint_order(evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
    """Of all but the first of a row of checkpoints."""
    loss = evidence.loss.number("loss") if evidence.loss is not None else None
    losses = [
        (point.loss.number("loss"), point.model) for point in earlier if point.loss is not None
    ]
    before = [(past, model) for past, model in losses if past]
    if loss is None or not before:
        return None
    least, name = min(before)
    return Seen(
        value=loss - least,
        site="output head",
        sentence=f"The loss of {evidence.model} is {loss:.2f} nats a token, that of {name} before "
        f"it {least:.2f}.",
    )


@condition(
    "HS205",
    "cause",
    "Text of unknown tokens",
    threshold=UNREAD,
    unit="share of the text's tokens",
    alone=True,
    of_text=False,
    source="definition",
    sentence="Share of the text's tokens that are the tokenizer's unknown token.",
    meaning="The model did not read this text: its states are of a placeholder, and no other "
    "condition is looked for.",
    todo="Give a text in a script and a language that the model's tokenizer has.",
    limits="Tokenizers of bytes know every text: of one that the model was not trained on, HS201 "
    "tells.",
)
def unknown_tokens(evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
    """Of the tokens that were scanned."""
    text = evidence.text
    if text is None or text.unknown is None:
        return None
    return Seen(
        value=text.unknown_share,
        sentence=f"{text.unknown_share:.0%} of {text.tokens or 0:,} tokens are unknown.",
    )


WRONG = 1.1
"""Permuted tables of four trained models had 1.4 to 3 times the loss of guessing among all tokens;
untrained ones have 1.
"""
LIKE_NORMAL = 2.5
"""Norms of the rows of six trained tables spread 4 to 20 times as far as those of normal rows,
after 20 steps of training 1.3.
"""


@condition(
    "HS206",
    "cause",
    "Vocabulary out of order",
    threshold=4.0,
    least=False,
    unit="standard errors above chance",
    of_text=False,
    brings=("HS101", "HS102", "HS103", "HS201", "HS202", "HS207"),
    unless="HS201",
    source="definition",
    sentence="How much more alike tokens of neighbouring ids are than others, in the table that "
    "the model reads them from.",
    meaning="Tokenizers number tokens by frequency or by alphabet, so that trained neighbours are "
    "alike: here they are not. The rows were permuted, or never trained.",
    todo="Compare the tokenizer's vocabulary, id by id, with the one that the model was trained "
    "with.",
    limits="Of the table alone; a vocabulary that was numbered at random has it, too. It is a "
    "notice where the model predicts well, and where its loss is below 1.1 times that of "
    "guessing among all tokens, or without a loss the norms of the rows are about equal, "
    "as those of a table hardly trained are. A tokenizer that was permuted beside an "
    "intact table is not seen here (HS201 tells).",
)
def vocabulary_out_of_order(evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
    """Of models with a table of tokens."""
    if evidence.order is None:
        return None
    comparison = "no more alike" if evidence.order <= 4 else "more alike"
    loss = evidence.loss.number("loss") if evidence.loss is not None else None
    chance = math.log(evidence.record.vocabulary or 1) if evidence.record is not None else 0.0
    # Rows of another vocabulary make a trained model sure of wrong tokens: its loss is far above
    # that of guessing.
    if untrained := loss is not None and loss < WRONG * chance:
        suffix = (
            f" A loss of {loss:.2f} nats is not that of permuted rows: they have hardly been "
            "trained."
        )
    elif untrained := loss is None and evidence.norms is not None and evidence.norms < LIKE_NORMAL:
        suffix = (
            f" Its rows' norms spread {evidence.norms:.1f} times as far as those of normal rows: "
            "they have hardly been trained."
        )
    else:
        suffix = ""
    return Seen(
        value=evidence.order,
        site="input embeddings",
        null=0.0,
        null_of="permuted rows",
        notice=untrained,
        sentence=f"Tokens of neighbouring ids are {comparison} than others, by {evidence.order:.1f} "
        "standard errors." + suffix * (evidence.order <= 4),
    )


@condition(
    "HS207",
    "cause",
    "A block that does not help",
    threshold=0.1,
    least=False,
    unit="nats a token lost without the block, times the number of blocks",
    lacks=("No block", "no loss"),
    silent="it predicts no better than counting, with or without any block",
    brings=("HS201", "HS202"),
    source="definition; layers that can go: Men et al. 2024, arXiv:2403.03853",
    sentence="Rise of the loss where a block's input stands in for its output, of the block where "
    "it is least, times the number of blocks: the more there are, the less each does.",
    meaning="The model predicts no worse without this block: its weights are not those that "
    "training left there, or it was put in the wrong place.",
    todo="Compare the block's weights with the checkpoint's: was it loaded, in its place, and "
    "with its own norm? Leave it out only where the loss on your own texts says so, too.",
    limits="Of one text's beginning, a block at a time. A very deep model may have a block that "
    "it can do without. Where a model predicts no better than counting, and no better "
    "without the block, nothing is said of it unless it changes nothing at all.",
)
def unhelpful_block(evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
    """The block whose removal costs least."""
    counted = evidence.loss.number("counting_loss") if evidence.loss is not None else None
    over = evidence.best_over_counting
    if not evidence.removed or counted is None or over is None:
        return None
    row = min(evidence.removed, key=lambda row: row.change)
    blocks = len(evidence.removed)
    if over >= 1 and row.loss + row.change >= counted and row.interval != (0.0, 0.0):
        return None
    does = (
        f"rises by {row.change:.2g} nats a token"
        if row.change > 0
        else f"falls by {-row.change:.2g} nats a token"
    )
    return Seen(
        value=row.change * blocks,
        site=row.site,
        interval=(row.interval[0] * blocks, row.interval[1] * blocks),
        sentence=f"Without {row.site} the loss {does if row.change else 'stays the same'}, on "
        f"{row.tokens:,} tokens.",
    )


@condition(
    "HS301",
    "leak",
    "States that give the prompt away",
    threshold=0.9,
    known=True,
    unit="share of tokens read",
    lacks=("inverted",),
    sentence="Share of a prompt's tokens that exact search reads from the states of a middle "
    "block.",
    meaning="Anyone who has the states of one layer can recover the text: states need the text's "
    "protection.",
    source="Morris et al. 2023, arXiv:2310.06816; exact search: docs/inversion.md",
    todo="Protect states as the text itself is protected. headscan privacy says how many bits a "
    "defence leaves, and what it costs the model.",
    limits="One block and a few prompts were tried, by an attacker who has the weights. That a "
    "prompt was not read is no proof that it cannot be.",
)
def readable_states(evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
    """Where search was tried."""
    read = evidence.read
    bits = evidence.bits
    if read is None:
        return None
    noise = "headscan privacy says what a defence leaves in them, and costs."
    if bits is not None:
        low, high = bits.told
        share = f"{low}% to {high}%" if low < high else f"{low}%"
        noise = (
            f"Noise of {bits.noise:g} of their spread leaves {share} of a token's "
            f"{bits.prior_bits:.1f} bits in them "
        )
        noise += "(headscan privacy: other defences, and what they cost)."
    return Seen(
        value=read.recovered,
        site=read.site,
        interval=read.interval,
        null=bits.guessed if bits is not None else None,
        null_of="guessing without a state",
        sentence=f"Exact search reads {read.recovered:.0%} of {read.tokens} tokens of the text "
        f"from the states of {read.site}; its verdict: {read.verdict}.",
        advice=f"Treat stored or shared states as text. {noise}",
    )


@condition(
    "HS302",
    "leak",
    "Text that shows through noise",
    threshold=0.5,
    known=True,
    unit="least share of a token's bits that leaks",
    sentence="Lower bound on the share of a token's bits that noisy states reveal.",
    meaning="Gaussian noise that costs the model dearly still leaves most of each token's "
    "information in its states.",
    lacks=("bits", "inverted"),
    source="docs/leaks.md; bounds: Kolchinsky and Tracey 2017, arXiv:1706.02419",
    todo="Do not rely on noise that leaves the model usable: headscan privacy puts other defences "
    "(rounding, projection, permutation, rotation) beside it, each with the bits it leaves "
    "and the nats it costs.",
    limits="A lower bound, for this model's own expectation of the text as prior knowledge and "
    "for the likeliest candidates: more may leak, never less. One block and a few windows; "
    "the interval is wide.",
)
def text_through_noise(evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
    """Where bits were counted."""
    if (bits := evidence.bits) is None:
        return None
    low, high = (min(1.0, max(0.0, end / bits.prior_bits)) for end in bits.interval or (0.0, 0.0))
    return Seen(
        value=bits.lower / bits.prior_bits,
        site=bits.site,
        interval=(low, high) if bits.interval is not None else None,
        null=bits.guessed,
        null_of="tokens guessed without a state",
        sentence=f"With noise of {bits.noise:g} of their spread the states of {bits.site} still "
        f"reveal {bits.told[0]}%{' or more' * (bits.told[0] < 100)} of a token's "
        f"{bits.prior_bits:.1f} bits; the best attack names {bits.named:.0%} of the "
        "tokens outright.",
    )


@condition(
    "HS303",
    "leak",
    "Tokens that know nothing of each other",
    threshold=0.01,
    least=False,
    heading="Flow",
    unit="movement by another token over that by its own",
    brings=("HS201", "HS202", "HS207"),
    source="docs/flow.md",
    lacks=("between tokens",),
    sentence="How far an output moves when another token is replaced, over how far when its own "
    "is.",
    meaning="Nothing flows between tokens: attention is cut off or broken, and each token is read "
    "for itself.",
    todo="Look at the attention: its mask, its output projection, a norm before it. headscan flow "
    "--cut attention,mlp shows which part carries what, site by site.",
    limits="It is a mean over places of a few short prompts at the last block. That something "
    "flows does not say that it is used: headscan attribute asks that of one prediction.",
)
def unconnected_tokens(evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
    """Where it was measured."""
    if (flow := evidence.flow) is None:
        return None
    return Seen(
        value=flow.heard,
        site=flow.site,
        interval=flow.interval,
        null=flow.null,
        sentence=f"Replacing another token moves an output of {flow.site} {flow.heard:.2g} times "
        "as far as replacing its own.",
    )


@condition(
    "HS401",
    "cure",
    "Common direction that a bias removes",
    threshold=LEANING,
    known=True,
    unit="average cosine that goes away",
    silent="it has no linear output head",
    sentence="What a bias of the output head takes off the average cosine of its input.",
    meaning="Part of what all tokens have in common could be held by a bias of the output head: "
    "it can go without changing a prediction.",
    source="docs/anatomy.md; Godey et al. 2024, arXiv:2401.12143",
    todo="headscan.decone(model) returns the model with that bias, and proves that no logit "
    "changed.",
    limits="What goes is what tokens have in common at the output head's input; inner blocks keep "
    "theirs. Whether vectors then search better is another question (HS402).",
)
def removable_direction(evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
    """Where the head is linear."""
    if (gauge := evidence.gauge) is None:
        return None
    site, cosine_before, cosine_after = gauge
    null = evidence.gauge_of_null
    beginning = "A" if cosine_before >= LEANING else "There is hardly one: a"
    return Seen(
        value=cosine_before - cosine_after,
        site=site,
        interval=evidence.gauge_interval,
        null=None if null is None else null[1] - null[2],
        sentence=f"{beginning} bias of the output head would take the average cosine at {site} from "
        f"{cosine_before:.2f} to {cosine_after:z.2f} and change no logit.",
    )


@condition(
    "HS402",
    "cure",
    "Search that a remedy improves",
    threshold=0.02,
    known=True,
    beyond_chance=True,
    unit="gain in recall@1",
    lacks=("remedy",),
    sentence="Gain in recall@1 of the best of the remedies tried, its interval above 0.",
    meaning="A map of the finished vectors, fitted in one pass, lets more passages find the "
    "passage that follows them.",
    source="docs/remedies.md; Mu and Viswanath 2018, arXiv:1702.01417",
    todo="headscan remedy MODEL --pairs FILE fits all remedies, judges them on your own pairs and "
    "writes the best as a module of sentence-transformers, as ONNX or into the model's "
    "folder.",
    limits="Judged by consecutive passages of 16 tokens of one text, by the mean of the states "
    "that the head reads: search among your documents may come out otherwise. Whitening "
    "needs more vectors than a short checkup has.",
)
def remedied_search(evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
    """Where remedies were tried."""
    cure = evidence.cure
    if cure is None or cure.best is None:
        return None
    return Seen(
        value=cure.best.number("recall_at_1_gain") or 0.0,
        site=cure.site,
        interval=cure.best.interval("recall_at_1_gain"),
        null=0.0,
        null_of="no remedy",
        sentence=f"Search at {cure.site}: {cure.sentence}.",
        advice=f"headscan remedy exports {cure.best.text('remedy')}; fit it on more of your own "
        "texts.",
    )


def _search(evidence: ModelEvidence) -> str:
    if evidence.cure is None or evidence.cure.best is None:
        return " headscan remedy measures which map helps search."
    return f" For search: {evidence.cure.sentence}."
