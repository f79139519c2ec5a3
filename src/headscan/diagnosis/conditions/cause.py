"""The conditions that cause bad predictions (HS2..): head, tokenizer, weights, blocks and text."""

import math

from headscan.diagnosis.evidence import ModelEvidence
from headscan.diagnosis.population import highest_loss
from headscan.diagnosis.registry import Seen, condition
from headscan.scanner.cautions import UNREAD, UNREAD_SAID

WRONG = 1.1
"""Permuted tables of four trained models had 1.4 to 3 times the loss of guessing among all tokens;
untrained ones have 1.
"""
COARSE = 16.0
"""At most so many distinct values among 64 weights are a sign of quantisation to 4 bits."""
HIGHER = 1.25
"""From this factor above the highest loss of healthy models of its size on a loss is a notice."""
LIKE_NORMAL = 2.5
"""Norms of the rows of six trained tables spread 4 to 20 times as far as those of normal rows,
after 20 steps of training 1.3.
"""


@condition(
    "HS201",
    "cause",
    "Predictions no better than counting",
    threshold=1.0,
    brings=("HS202",),
    source="definition",
    unit="loss over that of counting",
    lacks=("loss",),
    sentence="Loss at the best scale of the logits, over the loss of bigram counts from this text "
    "alone.",
    meaning="The model predicts no better than bigram counts from the same text: the head was not "
    "trained, or head, tokenizer, weights and text do not belong together.",
    todo="See that the tokenizer is the model's own and that the checkpoint has the head's "
    "weights (a warning of missing keys on loading). A body that was trained without a head "
    "gets one from headscan recover.",
    limits="On a foreign text a healthy model may come near the limit, or exceed it "
    "(docs/checkup.md: gpt-headless on wikitext-2). Bigram counts improve with the "
    "length of the text. It does not say whether head, body or tokenizer is at fault.",
)
def no_better_than_counting(evidence: ModelEvidence, _earlier: list[ModelEvidence]) -> Seen | None:
    """Return the loss over that of counting, of a model that predicts the next token."""
    row = evidence.loss
    ratio = evidence.best_over_counting
    if row is None or ratio is None:
        return None
    loss = row.number("loss") or 0.0
    best_loss = row.number("best_loss") or 0.0
    counting_loss = row.number("counting_loss") or 0.0

    # The interval of the loss is moved to the loss at the best scale.
    ends = row.interval("loss")
    interval_of_ratio = None
    if ends is not None:
        low = max(0.0, ends[0] - loss + best_loss)
        high = ends[1] - loss + best_loss
        interval_of_ratio = (low / counting_loss, high / counting_loss)
    null = evidence.loss_of_null
    null_loss = None if null is None else null.number("best_loss")

    scaled = ""
    if loss - best_loss >= 0.01:
        scaled = f" ({best_loss:.2f} at the best scale of its logits)"
    comparison = "worse" if ratio >= 1 else "better"
    return Seen(
        value=ratio,
        site="output head",
        null=None if null_loss is None else null_loss / counting_loss,
        interval=interval_of_ratio,
        sentence=f"The loss is {loss:.2f} nats a token{scaled}, {comparison} than the "
        f"{counting_loss:.2f} of bigram counts.",
    )


@condition(
    "HS202",
    "cause",
    "Logits of the wrong scale",
    threshold=2.0,
    unit="factor to the best scale of the logits",
    lacks=("loss",),
    silent="no factor between 1/16 and 16 minimises the loss",
    sentence="Factor by which the model is overconfident or underconfident.",
    meaning="All logits times one factor would predict better: a scale was lost or added between "
    "states and head.",
    source="Guo et al. 2017, arXiv:1706.04599 (temperature)",
    todo="Compare the configuration with training's: tied or untied weights, a scale of the "
    "embedding or of the logits, the final norm. Where only the temperature is off, divide "
    "the logits by it.",
    limits="A factor below 2 is common: a model is a little too sure on a foreign text, and a "
    "small one may be far too sure. It is measured on the first 1,024 tokens.",
)
def logit_scale(evidence: ModelEvidence, _earlier: list[ModelEvidence]) -> Seen | None:
    """Return the best factor of the logits or its reciprocal, whichever is above 1."""
    row = evidence.loss
    scale = None if row is None else row.number("best_scale")
    if row is None or scale is None:
        return None
    ends = row.interval("best_scale")
    includes_one = ends is not None and ends[0] <= 1 <= ends[1]
    interval_of_factor = None
    if ends is not None and min(ends) > 0:
        low, high = sorted(_factor(end) for end in ends)
        interval_of_factor = (1.0 if includes_one else low, high)
    null = evidence.loss_of_null
    null_scale = None if null is None else null.number("best_scale")

    if includes_one:
        confidence = "about as sure as it should be"
    elif scale > 1:
        confidence = "less sure than it should be"
    else:
        confidence = "more sure than it should be"
    return Seen(
        value=_factor(scale),
        site="output head",
        interval=interval_of_factor,
        null=_factor(null_scale) if null_scale else None,
        sentence=f"The model is {confidence}: its loss is least with all logits multiplied by "
        f"{scale:.2f}.",
    )


def _factor(scale: float) -> float:
    """Return a scale or its reciprocal, whichever is above 1."""
    return math.exp(abs(math.log(scale)))


@condition(
    "HS203",
    "cause",
    "Weights on a coarse grid",
    threshold=COARSE,
    least=False,
    unit="different values in 64 weights",
    of_text=False,
    heading="Weights",
    sentence="Different values among 64 neighbouring weights, in the coarsest matrix.",
    meaning="The weights were rounded to at most 16 values a group, so these numbers describe the "
    "quantised model.",
    source="definition; groups of 64 and 128: Dettmers and Zettlemoyer 2022, arXiv:2212.09720",
    todo="State with these numbers that the model is quantised. headscan compare ORIGINAL MODEL "
    "--damage measures the cost of quantisation, block by block.",
    limits="It sees rounding with one scale for 32 neighbours or more. Finer groups, or codebooks "
    "of vectors, are not detected, and the cost of rounding is not measured. Matrices of "
    "equal values are skipped.",
)
def coarse_weights(evidence: ModelEvidence, _earlier: list[ModelEvidence]) -> Seen | None:
    """Return the number of different values in the coarsest matrix, of a model with weights."""
    grid = evidence.grid
    if grid is None:
        return None
    sign = "A sign" if grid.coarsest_levels <= COARSE else "No sign"
    return Seen(
        value=grid.coarsest_levels,
        site=grid.coarsest,
        null=64.0,
        null_of="weights never rounded",
        sentence=f"{sign} of quantisation: {grid.coarsest_levels:.0f} distinct values per 64 "
        f"weights of {grid.coarsest} (median; all matrices: {grid.levels:.0f}).",
    )


@condition(
    "HS204",
    "cause",
    "Checkpoints out of order",
    threshold=0.1,
    unit="nats a token above the best checkpoint before",
    brings=("HS101", "HS102", "HS201", "HS202", "HS207", "HS220"),
    source="definition",
    silent="the sources are not the checkpoints of one run (--checkpoints)",
    sentence="Loss minus the least loss of the checkpoints before.",
    meaning="A later checkpoint predicts worse than an earlier one: they are not in order, or "
    "training went wrong there.",
    todo="Sort checkpoints by their step. Where they are in order, look at the run between these "
    "two: learning rate, data, a restart without the optimiser's state.",
    limits="Losses are of one text: a run may get worse on it and better on others. Differences "
    "below 0.1 nat are ignored, and the number has no interval.",
)
def checkpoint_order(evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
    """Return how far the loss is above the least loss of the checkpoints before this one."""
    loss = None if evidence.loss is None else evidence.loss.number("loss")
    earlier_losses = []
    for checkpoint in earlier:
        earlier_loss = None if checkpoint.loss is None else checkpoint.loss.number("loss")
        if earlier_loss:
            earlier_losses.append((earlier_loss, checkpoint.model))
    if loss is None or not earlier_losses:
        return None
    least_loss, name = min(earlier_losses)
    return Seen(
        value=loss - least_loss,
        site="output head",
        sentence=f"The loss of {evidence.model} is {loss:.2f} nats a token, that of {name} before "
        f"it {least_loss:.2f}.",
    )


@condition(
    "HS209",
    "cause",
    "Runs that differ",
    threshold=1e-3,
    of_text=False,
    brings=("HS201", "HS202", "HS207", "HS219", "HS303"),
    unit="difference of two runs, relative to the states",
    source="definition; Srivastava et al. 2014 (dropout)",
    silent="it has no blocks, or the text is short",
    sentence="How far the last block's states differ between two runs of the same tokens, "
    "over their norm.",
    meaning="The model draws random numbers as it reads: dropout, or another noise of training, "
    "was left on. No number of it can be repeated.",
    todo="Switch the model to evaluation: model.eval(). Look for dropout that is called without "
    "its training flag, and for noise in a router or a quantiser.",
    limits="Kernels that add in a varying order differ by rounding, far below the limit. A model "
    "that samples by design has it: --ignore HS209.",
)
def differing_runs(evidence: ModelEvidence, _earlier: list[ModelEvidence]) -> Seen | None:
    """Return how far two runs of the same tokens differ."""
    if evidence.repeat is None:
        return None
    sentence = "Two runs of the same tokens give the same states."
    if evidence.repeat > 0:
        sentence = (
            f"Two runs of the same tokens differ by {evidence.repeat:.2g} of the states' norm at "
            "the last block."
        )
    return Seen(value=evidence.repeat, sentence=sentence)


@condition(
    "HS218",
    "cause",
    "Tokens with equal rows",
    threshold=0.01,
    of_text=False,
    brings=("HS101", "HS201", "HS202", "HS206", "HS207", "HS219"),
    unit="share of the text's distinct tokens",
    source="definition",
    silent="the model has no table of tokens",
    sentence="Share of the distinct tokens of the text's beginning whose row of the token table "
    "equals that of another of them.",
    meaning="The model cannot tell these tokens apart: rows were copied, tied or never loaded.",
    todo="Compare the token table with that of the checkpoint: were rows written twice, or filled "
    "with a default?",
    limits="Rows that are equal to the last bit, of tokens that occur in the first 4,096 tokens of "
    "the text. Unused rows, which are equal in many models, do not count.",
)
def equal_rows(evidence: ModelEvidence, _earlier: list[ModelEvidence]) -> Seen | None:
    """Return the share of the text's distinct tokens that share their row with another."""
    rows = evidence.equal_rows
    if rows is None:
        return None
    examples = f", such as {rows.examples[0]} and {rows.examples[1]}" if rows.examples else ""
    return Seen(
        value=rows.share,
        site="input embeddings",
        sentence=f"{rows.equal:,} of {rows.tokens:,} distinct tokens have the row of another"
        f"{examples}.",
    )


@condition(
    "HS219",
    "cause",
    "Embeddings of the wrong scale",
    threshold=0.1,
    brings=("HS101", "HS103", "HS201", "HS202", "HS207"),
    unit="nats a token that another scale of the embeddings saves",
    source="definition",
    lacks=("scale", "loss"),
    sentence="Fall of the loss at the best of five factors (a quarter to four) of the input "
    "embeddings.",
    meaning="The model predicts better when its input embeddings are multiplied: a scale between "
    "the table and the first block was lost or applied twice.",
    todo="Compare the configuration with training's: a scale of the embeddings (the square root of "
    "the width, an embedding multiplier), tied weights, the norm after the table.",
    limits="Five factors, on the first 512 tokens of the text. A change of scale that costs less "
    "than 0.1 nat is not named.",
)
def embedding_scale(evidence: ModelEvidence, _earlier: list[ModelEvidence]) -> Seen | None:
    """Return how much the loss falls at the best factor of the input embeddings."""
    scale = evidence.scale
    if scale is None:
        return None
    factor, fall = scale.best
    sentence = "No other scale of the input embeddings predicts better."
    if fall > 0:
        sentence = (
            f"With the input embeddings times {factor:g} the loss falls by {fall:.2f} nats a "
            f"token, on {scale.tokens:,} tokens."
        )
    return Seen(value=fall, site="input embeddings", interval=scale.interval, sentence=sentence)


@condition(
    "HS220",
    "cause",
    "Loss above healthy models of its size",
    threshold=HIGHER,
    known=True,
    unit="times the highest of healthy models",
    source="the reference population (docs/generated/population.md)",
    lacks=("loss",),
    silent="fewer than two healthy reference models of about its size read this text",
    sentence="Loss over that of counting pairs of tokens (HS201), over the highest of the healthy "
    "reference models with a quarter to four times as many parameters on the same text.",
    meaning="It predicts worse than healthy models of its size on this text. Something costs it, "
    "or it was not trained on such a text.",
    todo="Look at the other conditions first. Compare with the checkpoint before, or with the "
    "original: headscan compare ORIGINAL MODEL --damage.",
    limits="The reference models that read `stories` are few and small. A model of another kind of "
    "text loses more on it without a fault, so it is a notice.",
)
def above_healthy_loss(evidence: ModelEvidence, _earlier: list[ModelEvidence]) -> Seen | None:
    """Return the loss over that of counting, over the highest of healthy models of its size."""
    ratio = evidence.best_over_counting
    highest = highest_loss(evidence)
    if ratio is None or highest is None:
        return None
    healthy, count = highest
    return Seen(
        value=ratio / healthy,
        site="output head",
        sentence=f"The loss is {ratio:.2f} times that of bigram counts; the highest of "
        f"{count} healthy models of about its size on this text is {healthy:.2f} times.",
    )


@condition(
    "HS205",
    "cause",
    "Text of unknown tokens",
    threshold=UNREAD_SAID,
    alarm=UNREAD,
    unit="share of the text's tokens",
    alone=True,
    of_text=False,
    source="definition",
    silent="its tokenizer has no unknown token",
    sentence="Share of the text's tokens that are the tokenizer's unknown token.",
    meaning="The tokenizer does not cover this text, so its states are those of a placeholder. No "
    "other condition is checked.",
    todo="Give a text in a script and a language that the model's tokenizer has.",
    limits="Byte-level tokenizers cover every text; HS201 shows whether the model was trained on "
    "such text.",
)
def unknown_tokens(evidence: ModelEvidence, _earlier: list[ModelEvidence]) -> Seen | None:
    """Return the share of unknown tokens among those that were scanned."""
    text = evidence.text
    if text is None or text.unknown is None:
        return None
    return Seen(
        value=text.unknown_share,
        sentence=f"{text.unknown_share:.0%} of {text.tokens or 0:,} tokens are unknown.",
    )


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
    silent="it has no table of 64 different rows",
    sentence="Similarity of the embeddings of neighbouring token ids, above that of random pairs, "
    "in standard errors.",
    meaning="Tokenizers number tokens by frequency or by alphabet, so trained embeddings of "
    "neighbouring ids are similar. Here they are not: the rows were permuted, or never trained.",
    todo="Compare the tokenizer's vocabulary, id by id, with the one that the model was trained "
    "with.",
    limits="Only the table is examined; a vocabulary that was numbered at random also fails. It is "
    "a notice where the model predicts well, or where the table looks untrained: a loss below "
    "1.1 times that of guessing, or rows of nearly equal norm. A permuted tokenizer beside an "
    "intact table is found by HS201.",
)
def vocabulary_out_of_order(evidence: ModelEvidence, _earlier: list[ModelEvidence]) -> Seen | None:
    """Return how much more alike neighbouring rows of the table of tokens are than others."""
    order = evidence.order
    if order is None:
        return None
    untrained = _sign_of_no_training(evidence)
    if order <= 4:
        comparison = "not more similar"
        addition = untrained
    else:
        comparison = "more similar"
        addition = ""
    return Seen(
        value=order,
        site="input embeddings",
        null=0.0,
        null_of="permuted rows",
        notice=bool(untrained),
        sentence=f"Embeddings of neighbouring token ids are {comparison} than random pairs "
        f"({order:.1f} SE).{addition}",
    )


def _sign_of_no_training(evidence: ModelEvidence) -> str:
    """Return a sentence that says why the table was hardly trained; empty where nothing says so.

    Rows of another vocabulary make a trained model sure of wrong tokens: its loss is far above
    that of guessing. Without a loss, the norms of the rows tell the two apart.
    """
    loss = None if evidence.loss is None else evidence.loss.number("loss")
    if loss is not None:
        vocabulary = 1 if evidence.record is None else evidence.record.vocabulary or 1
        if loss < WRONG * math.log(vocabulary):
            return f" At a loss of {loss:.2f} nats the table is probably untrained, not permuted."
    elif evidence.norms is not None and evidence.norms < LIKE_NORMAL:
        return (
            f" The norms of its rows vary only {evidence.norms:.1f} times as much as random rows: "
            "the table is probably untrained."
        )
    return ""


@condition(
    "HS207",
    "cause",
    "A block that does not help",
    threshold=0.1,
    least=False,
    unit="nats a token lost without the block, times the number of blocks",
    lacks=("blocks", "loss"),
    silent="it predicts no better than counting, with or without any block",
    brings=("HS201", "HS202"),
    source="definition; layers that can go: Men et al. 2024, arXiv:2403.03853",
    sentence="Smallest rise of the loss when one block is skipped, times the number of blocks.",
    meaning="The model predicts no worse without this block: its weights are not the trained ones, "
    "or the block is in the wrong place.",
    todo="Compare the block's weights with the checkpoint's: was it loaded, in its place, and "
    "with its own norm? Leave it out only where the loss on your own texts says so, too.",
    limits="Measured on the beginning of one text, one block at a time. A very deep model may have "
    "a redundant block. Where a model predicts no better than bigram counts, only a block that "
    "changes nothing at all is reported.",
)
def unhelpful_block(evidence: ModelEvidence, _earlier: list[ModelEvidence]) -> Seen | None:
    """Return the rise of the loss without the block whose removal costs least, times the number of
    blocks.
    """
    counting_loss = None if evidence.loss is None else evidence.loss.number("counting_loss")
    ratio = evidence.best_over_counting
    if not evidence.removed or counting_loss is None or ratio is None:
        return None
    block = min(evidence.removed, key=lambda removal: removal.change)
    blocks = len(evidence.removed)
    useless_without = block.loss + block.change >= counting_loss
    changes_nothing = block.interval == (0.0, 0.0)
    if ratio >= 1 and useless_without and not changes_nothing:
        return None

    if block.change > 0:
        effect = f"rises by {block.change:.2g} nats a token"
    elif block.change:
        effect = f"falls by {-block.change:.2g} nats a token"
    else:
        effect = "stays the same"
    return Seen(
        value=block.change * blocks,
        site=block.site,
        interval=(block.interval[0] * blocks, block.interval[1] * blocks),
        sentence=f"Without {block.site} the loss {effect}, on {block.tokens:,} tokens.",
    )
