"""The leaked gradient of one training step."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscan.leaks.audit import share_interval
from headscan.leaks.result import GradientToken, LeakedGradient, LeakedText, LeakRow
from headscan.leaks.run import CHANNELS, Leak, LeakChannel
from headscan.model.lens import Lens
from headscan.model.recording import Stop, evaluating
from headscan.run import BadInput, Given, Progress, Run
from headscan.text import display

# ---- Which tokens a training step's gradient shows: those whose input vectors lie in its span.

TOLERANCE = 1e-3  # relative distance from the gradient's span up to which a vector counts as inside


@dataclass(frozen=True)
class GradientTokens:
    """Which tokens a gradient shows."""

    # the tokens of each position whose input vector lies in the gradient's span, with their
    # distances from it; position -1 if the model adds no positions before its first attention: then
    # only membership is seen
    tokens: dict[int, dict[int, float]]
    rank: int  # of the gradient
    width: int  # of the inputs. At rank = width everything is in the span and nothing is shown
    nearest_other: float  # the smallest residual of a token that was not taken: the margin


def _reading_map(lens: Lens, number: int = 0) -> nn.Module:
    """The linear map of a block whose gradient shows most: the last of those that get the same
    input as the first.

    Queries, keys and values share theirs. The values come last, and only in their gradient does the
    first token of a row appear: attending to itself alone, its query and key have no influence.
    """
    seen: list[tuple[nn.Module, Tensor]] = []
    with contextlib.ExitStack() as hooks:
        for module in lens.stacks[0].blocks[number].modules():
            weight = getattr(module, "weight", None)
            if (
                isinstance(weight, Tensor)
                and weight.ndim == 2
                and not isinstance(module, nn.Embedding)
            ):
                hook = module.register_forward_pre_hook(
                    lambda module, args: seen.append((module, args[0]))
                )
                hooks.callback(hook.remove)
        lens.run(torch.zeros(1, 1, dtype=torch.int64), sites=f"block.{number}")
    if not seen:
        raise BadInput(
            f"Block {number} of '{lens.name}' has no linear map whose gradient could be read."
        )
    return [module for module, given in seen if given is seen[0][1]][-1]


def gradients_of(
    lens: Lens, input_ids: Int[Tensor, "B T"], blocks: Sequence[int] = (0,)
) -> list[Float[Tensor, "d m"]]:
    """The gradients of one step's next-token loss by each block's value (or joint) projection,
    inputs first [d, m].
    """
    modules: list[Any] = [_reading_map(lens, number) for number in blocks]
    weights = [module.weight for module in modules]
    before = [weight.requires_grad for weight in weights]
    for weight in weights:
        weight.requires_grad_(True)
    try:
        with evaluating(lens.model), torch.enable_grad():
            logits = lens.model(input_ids=input_ids).logits[:, :-1].float()
            loss = F.cross_entropy(logits.flatten(0, 1), input_ids[:, 1:].flatten())
            found = torch.autograd.grad(loss, weights)
    finally:
        for weight, wanted in zip(weights, before, strict=True):
            weight.requires_grad_(wanted)
    return [
        one if type(module).__name__ == "Conv1D" else one.T
        for module, one in zip(modules, found, strict=True)
    ]


def span_of(gradient: Float[Tensor, "d m"]) -> tuple[Float[Tensor, "d r"], int]:
    """An orthonormal basis of a gradient's columns, float64, and its rank r."""
    basis, values, _ = torch.linalg.svd(gradient.double(), full_matrices=False)
    rank = int((values > 1e-6 * values[0]).sum())
    return basis[:, :rank], rank


def distances(vectors: Float[Tensor, "N d"], basis: Float[Tensor, "d r"]) -> Float[Tensor, " N"]:
    """Relative distances of vectors from the span of an orthonormal basis, 0 (inside) to 1."""
    away = (vectors - (vectors @ basis) @ basis.T).norm(dim=1)
    return torch.as_tensor(away / vectors.norm(dim=1).clamp_min(1e-30))


@torch.no_grad()
def inputs_of(lens: Lens, rows: Int[Tensor, "B T"], number: int = 0) -> Float[Tensor, "B T d"]:
    """What the linear map of a block, whose gradient is read, is given for token rows."""
    place: dict[str, Tensor] = {}

    def read(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        place["x"] = args[0]
        raise Stop

    module = lens.once(("reading map", number), lambda: _reading_map(lens, number))
    with contextlib.ExitStack() as hooks, evaluating(lens.model), contextlib.suppress(Stop):
        hooks.callback(module.register_forward_pre_hook(read).remove)
        lens.model(input_ids=rows)
    return place["x"].reshape(*rows.shape, -1)


@torch.no_grad()
def tokens_in_gradient(lens: Lens, gradient: Float[Tensor, "d m"], length: int) -> GradientTokens:
    """Which tokens were in the batch whose gradient is given: the span check.

    The gradient of a linear map x -> x W is X^T D: its columns lie in the span of the inputs X, one
    row a token of the batch. As long as the batch has fewer tokens than the width, a token is in it
    only if its input vector lies in that span. Source: Petrov et al., "DAGER: Exact Gradient
    Inversion for Large Language Models", arXiv:2405.15586.

    What is certified: a token whose vector is farther than `TOLERANCE` from the span was not among
    the inputs, apart from tokens whose loss gradient vanishes (the last of a row never has one of
    its own). A token inside the span was in the batch unless its vector is by accident a
    combination of others.
    """
    basis, rank = span_of(gradient)
    every = torch.arange(lens.vocabulary_size, device=lens.device).split(512)
    vectors = torch.cat(
        [inputs_of(lens, tokens[:, None].repeat(1, length)) for tokens in every]
    ).double()
    positions = (
        range(length)
        if not torch.allclose(vectors[:, 0], vectors[:, -1], rtol=1e-4, atol=1e-6)
        else [-1]
    )
    found = dict[int, dict[int, float]]()
    other = float("inf")
    for position in positions:
        distance = distances(vectors[:, position], basis)
        inside = (distance <= TOLERANCE).nonzero()[:, 0]
        found[position] = dict(zip(inside.tolist(), distance[inside].tolist(), strict=True))
        other = min([other, *distance[distance > TOLERANCE].tolist()])
    return GradientTokens(found, rank, gradient.shape[0], other)


# ---- The texts of a training step's batch, token after token: the second stage of reading a gradient.

BATCH = 512


@torch.no_grad()
def texts_in_gradient(
    lens: Lens,
    gradient: Float[Tensor, "d m"],
    shown: GradientTokens,
    length: int,
    *,
    most: int = 4096,
    progress: Progress | None = None,
) -> tuple[dict[tuple[int, ...], float], bool]:
    """Put the tokens that a gradient shows into texts: every beginning of which all inputs of block
    1 lie in its span.

    The input of block 1 at a position depends, in a causal model, on the tokens up to it and on
    their order. So a beginning of a text was in the batch only if the vector that it gives lies in
    the span of block 1's gradient. Beginnings grow by one token at a time, each of those that the
    first stage listed there, and are given up where they leave the span. Source: the second stage
    of Petrov et al., "DAGER", arXiv:2405.15586.

    Returns the beginnings of all but the last tokens, each with the largest distance of any of its
    inputs from the span, and whether every beginning in the span was followed (at each position the
    `most` nearest are).

    What is certified: a text of which some beginning is not listed was not in the batch (where no
    position had more than `most` beginnings). That a listed one was there is a guess, as sure as
    the gap of distances is wide: where a batch has the same tokens in several orders and block 0 is
    nearly linear, sums of its inputs make up others. How often a text was in the batch is not told.
    At full rank nothing is shown.

    Cost: at each position, the beginnings times the tokens listed, runs of one block on the whole
        beginning.
    """
    basis, rank = span_of(gradient)
    if rank >= len(gradient):
        return {}, False
    found = {tuple[int, ...](): 0.0}
    whole = True
    for place in range(length - 1):
        listed = torch.tensor(
            [*shown.tokens[-1 if -1 in shown.tokens else place]], dtype=torch.int64
        )
        if not len(listed):
            return {}, whole
        starts = torch.tensor([*found], dtype=torch.int64).reshape(len(found), place)
        rows = torch.cat(
            [starts.repeat_interleave(len(listed), 0), listed.repeat(len(found))[:, None]], 1
        )
        last = [
            inputs_of(lens, some.to(lens.device), 1)[:, -1].double() for some in rows.split(BATCH)
        ]
        away = torch.cat([distances(some, basis).cpu() for some in last])
        inside = (away <= TOLERANCE).nonzero()[:, 0]
        whole = whole and len(inside) <= most
        inside = inside[away[inside].argsort(stable=True)][:most]
        grown = [tuple(row) for row in rows[inside].tolist()]
        pairs = zip(grown, away[inside].tolist(), strict=True)
        found = {tokens: max(found[tokens[:-1]], value) for tokens, value in pairs}
        if progress:
            progress("order of tokens", place + 1, length - 1, "positions")
    return found, whole


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
    from prefix to prefix (`headscan.leaks.gradient`); mirages of the first stage fall there.
    """

    meaning: ClassVar[str] = (
        "No bits are counted: a gradient without noise is read, not guessed at."
    )

    def attack(self, lens: Lens, texts: list[list[int]], asked: Given, run: Run) -> Leak:
        rows = _batch(lens, texts)
        two = lens.depth > 1 and lens.traits.causal
        gradients = gradients_of(lens, rows, (0, 1) if two else (0,))
        shown = tokens_in_gradient(lens, gradients[0], rows.shape[1])
        found = _compared(lens, rows, shown)
        if two:
            found = _ordered(lens, rows, gradients[1], shown, found, run)
        inside = share_interval(found.recall, rows.numel())
        row = LeakRow(
            site="block.0",
            defence="none",
            noise=0.0,
            sigma=None,
            tokens=rows.numel(),
            prior_bits=None,
            bits_lower=None,
            bits_upper=None,
            attack="span",
            attack_accuracy=found.recall,
            attack_accuracy_interval=inside,
            attack_accuracy_upper=None,
            text_accuracy=found.recall,
            text_accuracy_interval=inside,
        )
        return Leak(rows=[row], gradient=found)


def _batch(lens: Lens, texts: list[list[int]]) -> Tensor:
    if not lens.traits.predicts:
        raise BadInput(
            f"'{lens.name}' has no next-token head, so there is no training step whose gradient "
            "could leak."
        )
    if lens.traits.quantised:
        raise BadInput(
            "Quantised weights are not trained and have no gradient: load the model without "
            "--quantize."
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


def _compared(lens: Lens, rows: Tensor, shown: GradientTokens) -> LeakedGradient:
    length = rows.shape[1]
    used = rows[:, :-1]
    anywhere = set(used.flatten().tolist())
    tokens: list[GradientToken] = []
    for place, found in shown.tokens.items():
        there = set((used if place < 0 else rows[:, place]).flatten().tolist())
        for token, distance in found.items():
            tokens += [
                GradientToken(
                    position=None if place < 0 else place,
                    token=token,
                    string=display(lens.tokenizer, token),
                    distance=distance,
                    in_batch=token in there and place != length - 1,
                    elsewhere=token in anywhere,
                )
            ]
    with_positions = -1 not in shown.tokens
    seen = {(one.position, one.token) for one in tokens if one.in_batch}
    places = range(length - 1) if with_positions else [None] * (length - 1)
    wanted = {pair for row in used.tolist() for pair in zip(places, row, strict=True)}
    return LeakedGradient(
        tokens=tokens,
        batch=rows.tolist(),
        batch_strings=[display(lens.tokenizer, row.tolist()) for row in rows],
        recall=len(seen & wanted) / len(wanted),
        precision=sum(one.in_batch for one in tokens) / len(tokens) if tokens else None,
        precision_anywhere=sum(one.elsewhere for one in tokens) / len(tokens) if tokens else None,
        rank=shown.rank,
        width=shown.width,
        with_positions=with_positions,
        tolerance=TOLERANCE,
        nearest_other=shown.nearest_other if shown.nearest_other < float("inf") else None,
        certified=_sentence(shown.rank >= shown.width, with_positions),
    )


def _sentence(full: bool, with_positions: bool) -> str:
    if full:
        return (
            "Nothing is certified: the batch has as many tokens as the model has features, so "
            "every token lies in the gradient's span."
        )
    mirage = (
        ": where a token stands at two positions, those beside it show at both"
        if with_positions
        else ""
    )
    where = "at that position of any text" if with_positions else "in any text"
    return (
        f"Certified: a token that is not listed was not {where}, a text's last token apart, which "
        f"has no gradient. That a listed token was there is a guess{mirage}."
    )


def _ordered(
    lens: Lens,
    rows: Tensor,
    gradient: Tensor,
    shown: GradientTokens,
    found: LeakedGradient,
    run: Run,
) -> LeakedGradient:
    some = dict[tuple[int, ...], float]()
    whole = False
    if shown.rank < shown.width:
        some, whole = texts_in_gradient(lens, gradient, shown, rows.shape[1], progress=run.progress)
    batch = {tuple(row[:-1]) for row in rows.tolist()}
    texts = list[LeakedText]()
    for tokens, distance in some.items():
        string = "".join(display(lens.tokenizer, tokens))
        texts.append(
            LeakedText(
                tokens=list(tokens), string=string, distance=distance, in_batch=tokens in batch
            )
        )
    told = (
        f"Certified of the order: no other texts than the {len(texts)} listed were in the batch, "
        "their last tokens apart."
        if texts and whole
        else "Of order and grouping nothing is certified: block 1's gradient has full rank, or "
        "too much lies in its span."
    )
    return replace(
        found,
        texts=texts,
        texts_found=len(batch & some.keys()) / len(batch),
        second_rank=span_of(gradient)[1],
        certified=f"{found.certified} {told}",
    )
