"""Five later papers: their claims stand in data/later.tsv, and each has one figure, drawn for every model that is tried."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from headscan.run import BadInput
from headscan_lab.ledger.experiments.later import drift_by_site, kept_by_head, loss_by_rank, margins
from headscan_lab.ledger.experiments.massive import by_block
from headscan_lab.ledger.figures import Curve, RedrawnFigure
from headscan_lab.ledger.measurement import own_seeds
from headscan_lab.ledger.stand_ins import lens_of


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A later paper: its title, what its figure shows, and the function that makes a model's curves under a master seed."""

    title: str
    figure: str
    published: str
    across: str
    up: str
    curves: Callable[[str, str, int], list[Curve]]


def _mean(name: str, rows: list[list[float]]) -> Curve:
    values = np.mean(rows, 0)
    return Curve(name, [float(place) for place in range(len(values))], values.tolist())


def _massive(name: str, kind: str, seed: int) -> list[Curve]:
    rows = by_block(kind, seed, "nothing")
    found = [
        _mean(f"{name}: matrix entropy", [one.entropy for one in rows]),
        _mean(f"{name}: first token's norm over the median, log10", [np.log10(one.norm).tolist() for one in rows]),
        _mean(f"{name}: matrix entropy, first token held to the others' norm", [
            one.entropy for one in by_block(kind, seed, "sink")
        ]),
    ]  # fmt: skip
    return found + ([_mean(f"{name}: share of heads at the first token", [one.sinks for one in rows])] if rows[0].sinks else [])


def _drift(name: str, kind: str, seed: int) -> list[Curve]:
    rows = [drift_by_site(kind, own) for own in own_seeds(seed)]
    return [_mean(f"{name}: average cosine", [[cosine for _, cosine in one] for one in rows])]


def _kept(name: str, kind: str, seed: int) -> list[Curve]:
    if "head" not in lens_of(kind).sites:
        return []
    rows = [kept_by_head(kind, own) for own in own_seeds(seed)]
    words = {"kept": "the head", "random": "a random subspace", "leverage": "random signs"}
    return [Curve(name, list(words.values()), [float(np.mean([one[key] for one in rows])) for key in words])]


def _ranks(name: str, kind: str, seed: int) -> list[Curve]:
    table = lens_of(kind).output_embeddings
    if table is None or "head" not in lens_of(kind).sites:
        return []
    ranks = [rank for rank in (16, 32, 64, 128, 256, 512, 1024) if rank < table.shape[1]]
    first = own_seeds(seed)[0]
    return [Curve(name, [float(rank) for rank in ranks], [loss_by_rank(kind, first, rank) for rank in ranks])]


def _margins(name: str, kind: str, seed: int) -> list[Curve]:
    first, blocks = own_seeds(seed)[0], lens_of(kind).match("block.*")
    return [
        Curve(f"{name}: {bits or 'all'} bits", [float(place) for place in range(len(blocks))], [
            margins(kind, first, bits, block)[1] for block in blocks
        ]) for bits in (0, 8, 4)
    ]  # fmt: skip


PAPERS: dict[str, Paper] = {
    "2404.07647": Paper(
        title="Godey, de la Clergerie, Sagot: Why do small language models underperform?", figure="Loss of a head of low rank",
        published="The loss rises below a rank of some 1,000, whatever the model.", across="rank of the head",
        up="loss less that of the whole head (nats a token)", curves=_ranks,
    ),
    "2401.12143": Paper(
        title="Godey, de la Clergerie, Sagot: Anisotropy is inherent to self-attention", figure="Average cosine by layer",
        published="It rises over the layers, also where there are no words.", across="site", up="average cosine", curves=_drift,
    ),
    "2603.10145": Paper(
        title="Godey, Artzi: the gradient bottleneck of the head", figure="Share of the gradient's norm that is handed on",
        published="95 to 99 % of the norm is lost: .14 to .31 of it is handed on.",
        across="by", up="share of the norm", curves=_kept,
    ),
    "2510.06477": Paper(
        title="Queipo-de-Llano et al.: Attention sinks and compression valleys", figure="Compression, norms and sinks by block",
        published="Where the first token's norm leaps, entropy falls and heads attend to it.",
        across="block", up="share, or log10", curves=_massive,
    ),
    "2511.14808": Paper(
        title="von Strauss: Transformer injectivity and geometric robustness", figure="Smallest distance of two prompts",
        published="Above 0 as computed and in 8 bits; smaller, at times 0, in 4.",
        across="block", up="distance a token", curves=_margins,
    ),
}  # fmt: skip


def paper_of(name: str) -> Paper:
    """The paper of that arXiv number; BadInput where its claims are not among those that are tried."""
    if name not in PAPERS:
        raise BadInput(f"No claims of arXiv:{name} are tried here; there are: {', '.join(PAPERS)}.")
    return PAPERS[name]


def paper_figure(name: str, kinds: list[str], seed: int) -> RedrawnFigure:
    """The paper's figure over models: names of stand-ins, or models as any verb takes them."""
    paper = paper_of(name)
    curves = [curve for kind in kinds for curve in paper.curves(lens_of(kind).name, kind, seed)]
    return RedrawnFigure(
        id=f"later-{name}", document="later", place=f"arXiv:{name}", title=f"{paper.figure} ({paper.title})",
        published=paper.published, across=paper.across, up=paper.up, curves=curves,
    )  # fmt: skip
