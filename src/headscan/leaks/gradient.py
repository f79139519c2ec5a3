"""The leaked gradient of one training step."""

from dataclasses import replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.leaks.gradient_span import (
    ANYWHERE,
    INFINITE,
    TOLERANCE,
    GradientTexts,
    GradientTokens,
    gradients_of,
    span_of,
    texts_in_gradient,
    tokens_in_gradient,
)
from headscan.leaks.registry import CHANNELS, Leak, LeakChannel
from headscan.leaks.result import GradientToken, LeakedGradient, LeakedText, LeakRow
from headscan.leaks.rows import share_interval
from headscan.leaks.settings import PrivacySettings
from headscan.model.lens import Lens
from headscan.run import BadInput, Run
from headscan.text import display


@CHANNELS.register("gradient")
class GradientChannel(LeakChannel):
    """The gradient of one training step on all documents as one batch: which tokens were in it.

    The texts are cut to the shortest, so that they are one batch; the loss is that of the next
    token. Source: the span check of Petrov et al., "DAGER", arXiv:2405.15586.

    What is certified: a token far from the gradient's span was in no text (but a text's last token
    has no gradient). What is a guess: that a token inside it was there. Vectors of which some are
    sums and differences of others fail it: with position embeddings, if u stands at positions 1 and
    6 and v at 6, then v seems to stand at 1, too. At full rank nothing is shown, and the result
    says so. Order and grouping into texts come from the gradient of block 1, whose inputs differ
    from prefix to prefix (`headscan.leaks.gradient_span`); mirages of the first stage fall there.
    """

    meaning: ClassVar[str] = "No bits are counted: a gradient without noise is read exactly."

    def attack(
        self, lens: Lens, texts: list[list[int]], _settings: PrivacySettings, run: Run
    ) -> Leak:
        batch = _batch(lens, texts)
        length = batch.shape[1]
        has_order = lens.depth > 1 and lens.traits.causal
        gradients = gradients_of(lens, batch, (0, 1) if has_order else (0,))
        shown = tokens_in_gradient(lens, gradients[0], length)
        leaked = _leaked_tokens(lens, batch, shown)
        if has_order:
            found = GradientTexts({}, complete=False)
            if shown.rank < shown.width:
                found = texts_in_gradient(lens, gradients[1], shown, length, progress=run.progress)
            leaked = _with_texts(lens, leaked, batch, gradients[1], found)
        interval = share_interval(leaked.recall, batch.numel())
        row = LeakRow(
            site="block.0",
            defence="none",
            noise=0.0,
            sigma=None,
            tokens=batch.numel(),
            prior_bits=None,
            bits_lower=None,
            bits_upper=None,
            attack="span",
            attack_accuracy=leaked.recall,
            attack_accuracy_interval=interval,
            attack_accuracy_upper=None,
            text_accuracy=leaked.recall,
            text_accuracy_interval=interval,
        )
        return Leak(rows=[row], gradient=leaked)


def _batch(lens: Lens, texts: list[list[int]]) -> Int[Tensor, "B T"]:
    """Return the texts as one batch, cut to the shortest."""
    if not lens.traits.predicts:
        raise BadInput(
            f"'{lens.name}' has no next-token head, so there is no training step whose gradient "
            "could leak."
        )
    if lens.traits.quantised:
        raise BadInput(
            "Quantised weights are not trained and have no gradient: load the model with --dtype "
            "float32."
        )
    length = min(map(len, texts))
    if length < 2:
        raise BadInput(
            "A training step needs texts of at least two tokens: one to predict from, one to "
            "predict."
        )
    if lens.context_length and length > lens.context_length:
        raise BadInput(
            f"The input has {length} tokens, but '{lens.name}' takes at most {lens.context_length}."
        )
    return torch.tensor([text[:length] for text in texts], device=lens.device)


def _leaked_tokens(lens: Lens, batch: Int[Tensor, "B T"], shown: GradientTokens) -> LeakedGradient:
    """Compare the tokens that a gradient shows with those of the batch.

    The last token of each text has no gradient and is left out.
    """
    length = batch.shape[1]
    has_positions = ANYWHERE not in shown.tokens
    used = batch[:, :-1]
    anywhere = set(used.flatten().tolist())
    tokens: list[GradientToken] = []
    for position, listed in shown.tokens.items():
        true_tokens = anywhere
        if has_positions:
            true_tokens = set(batch[:, position].tolist()) if position < length - 1 else set()
        for token, distance in listed.items():
            tokens.append(
                GradientToken(
                    position=position if has_positions else None,
                    token=token,
                    string=display(lens.tokenizer, token),
                    distance=distance,
                    in_batch=token in true_tokens,
                    elsewhere=token in anywhere,
                )
            )
    true_pairs: set[tuple[int | None, int]] = set()
    for row in used.tolist():
        for position, token in enumerate(row):
            true_pairs.add((position if has_positions else None, token))
    shown_pairs = {(token.position, token.token) for token in tokens if token.in_batch}
    precision = None
    precision_anywhere = None
    if tokens:
        precision = sum(token.in_batch for token in tokens) / len(tokens)
        precision_anywhere = sum(token.elsewhere for token in tokens) / len(tokens)
    return LeakedGradient(
        tokens=tokens,
        batch=batch.tolist(),
        batch_strings=[display(lens.tokenizer, row.tolist()) for row in batch],
        recall=len(shown_pairs & true_pairs) / len(true_pairs),
        precision=precision,
        precision_anywhere=precision_anywhere,
        rank=shown.rank,
        width=shown.width,
        with_positions=has_positions,
        tolerance=TOLERANCE,
        nearest_other=shown.nearest_other if shown.nearest_other < INFINITE else None,
        certified=_certified_tokens(shown.rank >= shown.width, has_positions),
    )


def _certified_tokens(has_full_rank: bool, has_positions: bool) -> str:
    """Return a sentence about what is certified of the tokens."""
    if has_full_rank:
        return (
            "Nothing is certified: the batch has as many tokens as the model has features, so "
            "every token lies in the gradient's span."
        )
    position = "in any text"
    mirage = ""
    if has_positions:
        position = "at that position of any text"
        mirage = ": where a token stands at two positions, those beside it show at both"
    return (
        f"Certified: a token that is not listed was not {position}, a text's last token apart, "
        f"which has no gradient. That a listed token was there is a guess{mirage}."
    )


def _with_texts(
    lens: Lens,
    leaked: LeakedGradient,
    batch: Int[Tensor, "B T"],
    gradient: Float[Tensor, "d m"],
    found: GradientTexts,
) -> LeakedGradient:
    """Add the texts that block 1's gradient shows."""
    true_texts = {tuple(row[:-1]) for row in batch.tolist()}
    texts = [
        LeakedText(
            tokens=list(tokens),
            string="".join(display(lens.tokenizer, tokens)),
            distance=distance,
            in_batch=tokens in true_texts,
        )
        for tokens, distance in found.beginnings.items()
    ]
    certified = (
        "Of order and grouping nothing is certified: block 1's gradient has full rank, or too "
        "much lies in its span."
    )
    if texts and found.complete:
        certified = (
            f"Certified of the order: no other texts than the {len(texts)} listed were in the "
            "batch, their last tokens apart."
        )
    return replace(
        leaked,
        texts=texts,
        texts_found=len(true_texts & found.beginnings.keys()) / len(true_texts),
        second_rank=span_of(gradient)[1],
        certified=f"{leaked.certified} {certified}",
    )
