"""Statements of later papers on trained models: the rank of the head, and its gradient."""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from headscan.measures.kept_gradient import GradientThroughHead
from headscan.run import BadInput
from headscan_lab.ledger.measurement import Measurement, exactly, mean_of
from headscan_lab.ledger.models import lens_of, prompts
from headscan_lab.ledger.statement import Observation, enter_experiment

FITTED = 24  # windows that a head of low rank is fitted to
JUDGED = 12  # windows that it is judged on
LENGTH = 64
SHARES = (0.25, 0.33)  # ranks, as shares of the width: 1,000 of a Llama's 4,096 is a quarter


@cache
def before_head(kind: str, seed: int, count: int, text: str) -> tuple[Tensor, Tensor]:
    """Return the states [n, d] at the head's input, and the tokens [n] that follow."""
    lens = lens_of(kind)
    if lens.output_embeddings is None or "head" not in lens.sites:
        raise BadInput(f"{lens.name} has no head.")
    site = lens.default_sites[-1]
    ids = prompts(kind, seed, count, LENGTH, text=text)
    with torch.no_grad():
        states = lens.run(ids, sites=site)[site]
    return states[:, :-1].flatten(0, 1), ids[:, 1:].flatten()


def require_wide_head(kind: str) -> Tensor:
    """Return the head's weight; raise BadInput where it has fewer than eight rows a dimension."""
    lens = lens_of(kind)
    weight = lens.output_embeddings
    assert weight is not None
    if weight.shape[0] < 8 * weight.shape[1]:
        raise BadInput(
            f"The head of {lens.name} has {weight.shape[0] / weight.shape[1]:.1f} rows a "
            "dimension; the papers' models have eight or more."
        )
    return weight


@cache
def _basis(kind: str, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the root L of the second moment of states, its inverse, and the logits' directions.

    The best directions of the logits, last, are eigenvectors of L (WᵀW) L, on states of both texts
    that are not judged. W has the rows less their mean, which no probability depends on.
    """
    weight = lens_of(kind).output_embeddings
    assert weight is not None
    parts = [before_head(kind, seed + 1, FITTED, text)[0] for text in ("stories", "reference")]
    states = torch.cat(parts).double()
    ridge = 1e-6 * states.square().mean() * torch.eye(states.shape[1])
    values, vectors = torch.linalg.eigh(states.T @ states / len(states) + ridge)
    root = vectors * values**0.5 @ vectors.T
    gram = torch.zeros(()).double()
    mean_row = weight.detach().mean(0)
    for part in weight.detach().split(8_192):
        centred = part - mean_row
        gram = gram + (centred.T @ centred).double()
    directions = torch.linalg.eigh(root @ gram @ root).eigenvectors
    return root, vectors * values**-0.5 @ vectors.T, directions


def _loss_of_rank(kind: str, seed: int, rank: int, text: str) -> list[float]:
    """Return the loss of the best head of a rank less that of the whole, by window."""
    root, inverse, directions = _basis(kind, seed)
    weight = lens_of(kind).output_embeddings
    assert weight is not None
    best = directions[:, -rank:]
    states, targets = before_head(kind, seed, JUDGED, text)
    cut = (states.double() @ inverse @ best @ best.T @ root).to(states.dtype)
    losses = []
    for low_rank, whole, follows in zip(
        cut.chunk(JUDGED), states.chunk(JUDGED), targets.chunk(JUDGED), strict=True
    ):
        difference = F.cross_entropy((low_rank @ weight.T).float(), follows)
        difference = difference - F.cross_entropy((whole @ weight.T).float(), follows)
        losses.append(float(difference.detach()))
    return losses


def _predicts(kind: str, seed: int, text: str) -> bool:
    """Return whether a model predicts a text better than the counts of its tokens do.

    Of a text that it does not, a head of fewer dimensions only flattens the noise.
    """
    weight = lens_of(kind).output_embeddings
    assert weight is not None
    states, follows = before_head(kind, seed, JUDGED, text)
    loss = F.cross_entropy((states @ weight.T).float(), follows)
    shares = follows.bincount().double() / len(follows)
    shares = shares[shares > 0]
    return float(loss) < float(-(shares * shares.log()).sum())


def _low_rank_head(kind: str, seed: int) -> Observation:
    width = before_head(kind, seed, JUDGED, "stories")[0].shape[1]
    require_wide_head(kind)
    texts = [text for text in ("stories", "reference") if _predicts(kind, seed, text)]
    if not texts:
        raise BadInput(f"{lens_of(kind).name} predicts neither text better than token counts do.")
    values = []
    controls = []
    for share in SHARES:
        rank = int(share * width)
        for text in texts:
            losses = _loss_of_rank(kind, seed, rank, text)
            name = f"rank {rank} of {width}, unseen {text}"
            values.append(_nats(name, losses))
    for share in (0.5, 0.75):
        rank = int(share * width)
        losses = _loss_of_rank(kind, seed, rank, texts[-1])
        controls.append(_nats(f"rank {rank}, unseen {texts[-1]}", losses))
    return Observation(values=values, controls=controls)


def _nats(name: str, losses: list[float]) -> Measurement:
    return mean_of(
        name, losses, unit="nats a token", tokens=len(losses) * LENGTH, prompts=len(losses)
    )


def _rank_of_the_head(seed: int) -> Measurement:
    losses = _loss_of_rank("gpt-vanilla", seed, 128, "stories")
    return _nats("gpt-vanilla, rank 128 of 128", losses)


enter_experiment("L1", _low_rank_head, _rank_of_the_head)


def _lost_gradient(kind: str, seed: int) -> Observation:
    states, follows = before_head(kind, seed, JUDGED, "stories")
    weight = require_wide_head(kind)
    gradient = GradientThroughHead(weight, best=False)
    values = []
    halves = {"first half": slice(None, None, 2), "second half": slice(1, None, 2)}
    for name, half in halves.items():
        gradient.restart()
        gradient.update(states[half], follows[half])
        kept = gradient.result()
        values.append(_lost(f"share lost, {name} of the tokens", kept.kept_norm or 0.0))
    random = _lost("a random subspace of as many dimensions", kept.kept_norm_random)
    return Observation(
        values=values,
        controls=[random],
        note="not peculiar",
        why="A random subspace of as many dimensions loses as much.",
    )


def _lost(name: str, kept: float) -> Measurement:
    return exactly(name, float((1 - kept**2) ** 0.5), unit="share")


def _square_head(seed: int) -> Measurement:
    """Return what is lost by a head with as many rows as dimensions: nothing."""
    generator = torch.Generator().manual_seed(seed)
    gradient = GradientThroughHead(torch.randn(64, 64, generator=generator), best=False)
    states = torch.randn(200, 64, generator=generator)
    gradient.update(states, torch.randint(64, (200,), generator=generator))
    return _lost("64 tokens in 64 dimensions", gradient.result().kept_norm or 0.0)


enter_experiment("L2", _lost_gradient, _square_head)
