"""The leaked gradient of one training step."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from headscan.leaks.order import GradientText, texts_in_gradient
from headscan.leaks.release import RELEASES, Auditing, Leak, Release
from headscan.leaks.result import GradientToken, LeakedGradient, LeakedText, LeakRow
from headscan.leaks.rows import share_interval
from headscan.leaks.span import GradientTokens, gradients_of, span_of, tokens_in_gradient
from headscan.model.lens import Lens
from headscan.run import BadInput, Run
from headscan.text import display

__all__ = ["GradientRelease"]


@RELEASES.register("gradient")
class GradientRelease(Release):
    """The gradient of one training step on all documents as one batch: which tokens were in it.

    The texts are cut to the shortest, so that they are one batch; the loss is that of the next token. Source: the span
    check of Petrov et al., "DAGER", arXiv:2405.15586.

    What is certified: a token far from the gradient's span was in no text (but a text's last token has no gradient). What
    is a guess: that a token inside it was there. Vectors of which some are sums and differences of others fail it: with
    position embeddings, if u stands at positions 1 and 6 and v at 6, then v seems to stand at 1, too. At full rank
    nothing is shown, and the result says so. Order and grouping into texts come from the gradient of block 1, whose inputs
    differ from prefix to prefix (`headscan.leaks.order`); mirages of the first stage fall there.
    """

    name: ClassVar[str] = "gradient"
    uses: ClassVar[tuple[str, ...]] = ("tolerance",)
    meaning: ClassVar[str] = "No bits are counted: a gradient without noise is read, not guessed at."

    def attack(self, lens: Lens, texts: list[list[int]], settings: Auditing, run: Run) -> Leak:
        """Read the tokens off; the one row's accuracy is the recall."""
        rows = _batch(lens, texts)
        two = lens.depth > 1 and lens.traits.causal
        gradients = gradients_of(lens, rows, (0, 1) if two else (0,))
        shown = tokens_in_gradient(lens, gradients[0], rows.shape[1], tolerance=settings.tolerance)
        found = _compared(lens, rows, shown, settings.tolerance)
        if two:
            found = _ordered(lens, rows, gradients[1], shown, found, run)
        inside = share_interval(found.recall, rows.numel())
        row = LeakRow(
            site="block.0", defence="none", noise=0.0, sigma=None, tokens=rows.numel(), prior_bits=None, bits_lower=None,
            bits_upper=None, attack="span", attack_accuracy=found.recall, attack_accuracy_interval=inside,
            attack_accuracy_upper=None, text_accuracy=found.recall, text_accuracy_interval=inside,
        )  # fmt: skip
        return Leak(rows=[row], gradient=found)


def _batch(lens: Lens, texts: list[list[int]]) -> Tensor:
    if not lens.traits.predicts:
        raise BadInput(f"'{lens.name}' has no next-token head, so there is no training step whose gradient could leak.")
    if lens.traits.quantised:
        raise BadInput("Quantised weights are not trained and have no gradient: load the model without --quantize.")
    length = min(map(len, texts))
    if length < 2:
        raise BadInput("A training step needs texts of at least two tokens: one to predict from, one to predict.")
    if lens.context_length and length > lens.context_length:
        raise BadInput(f"The input has {length} tokens, but '{lens.name}' takes at most {lens.context_length}.")
    return torch.tensor([text[:length] for text in texts], device=lens.device)


def _compared(lens: Lens, rows: Tensor, shown: GradientTokens, tolerance: float) -> LeakedGradient:
    """The tokens shown beside those that were there."""
    length, used = rows.shape[1], rows[:, :-1]
    anywhere = set(used.flatten().tolist())
    tokens: list[GradientToken] = []
    for place, found in shown.tokens.items():
        there = set((used if place < 0 else rows[:, place]).flatten().tolist())
        for token, distance in zip(found, shown.residuals[place], strict=True):
            tokens.append(
                GradientToken(
                    position=None if place < 0 else place, token=token, string=display(lens.tokenizer, token),
                    distance=distance, in_batch=token in there and place != length - 1, elsewhere=token in anywhere,
                )
            )  # fmt: skip
    with_positions = -1 not in shown.tokens
    seen = {(one.position, one.token) for one in tokens if one.in_batch}
    wanted = {
        (place if with_positions else None, int(token)) for row in used for place, token in enumerate(row.tolist())
    }
    return LeakedGradient(
        tokens=tokens,
        batch=rows.tolist(),
        batch_strings=[display(lens.tokenizer, row.tolist()) for row in rows],
        recall=len(seen & wanted) / len(wanted),
        precision=sum(one.in_batch for one in tokens) / len(tokens) if tokens else None,
        precision_anywhere=sum(one.elsewhere for one in tokens) / len(tokens) if tokens else None,
        rank=shown.rank, width=shown.width, with_positions=with_positions, tolerance=tolerance,
        nearest_other=shown.nearest_other if shown.nearest_other < float("inf") else None,
        certified=_sentence(shown.rank >= shown.width, with_positions),
    )  # fmt: skip


def _sentence(full: bool, with_positions: bool) -> str:
    if full:
        return (
            "Nothing is certified: the batch has as many tokens as the model has features, so every token lies in the "
            "gradient's span."
        )
    mirage = ": where a token stands at two positions, those beside it show at both" if with_positions else ""
    where = "at that position of any text" if with_positions else "in any text"
    return (
        f"Certified: a token that is not listed was not {where}, a text's last token apart, which has no gradient. That a "
        f"listed token was there is a guess{mirage}."
    )


def _ordered(
    lens: Lens, rows: Tensor, gradient: Tensor, shown: GradientTokens, found: LeakedGradient, run: Run
) -> LeakedGradient:
    """With the texts that the second stage puts in order."""
    rank, length = span_of(gradient)[1], rows.shape[1]
    some, whole = list[GradientText](), False
    if shown.rank < shown.width:
        some, whole = texts_in_gradient(lens, gradient, shown, length, tolerance=found.tolerance, progress=run.progress)
    batch = {tuple(row[:-1]) for row in rows.tolist()}
    texts = [
        LeakedText(
            tokens=one.tokens, string="".join(display(lens.tokenizer, one.tokens)), distance=one.distance,
            in_batch=tuple(one.tokens) in batch,
        )
        for one in some
    ]  # fmt: skip
    told = (
        f"Certified of the order: no other texts than the {len(texts)} listed were in the batch, their last tokens apart."
        if texts and whole
        else "Of order and grouping nothing is certified: block 1's gradient has full rank, or too much lies in its span."
    )
    return replace(
        found, texts=texts, texts_found=len(batch & {tuple(one.tokens) for one in texts}) / len(batch), second_rank=rank,
        certified=f"{found.certified} {told}",
    )  # fmt: skip
