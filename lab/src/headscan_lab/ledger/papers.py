"""Five later papers: each has one figure, drawn for every model on which its claims are tried.

Their claims stand in data/later.tsv.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from headscan.run import BadInput
from headscan_lab.ledger.experiments.later import drift_by_site, kept_by_head, loss_by_rank, margins
from headscan_lab.ledger.experiments.massive import read_blocks
from headscan_lab.ledger.figures import Curve, RedrawnFigure
from headscan_lab.ledger.measurement import repeat_seeds
from headscan_lab.ledger.proxies import lens_of

RANKS = (16, 32, 64, 128, 256, 512, 1024)
BITS = (0, 8, 4)  # 0: as computed


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A later paper.

    Attributes:
        figure: the title of its figure.
        published: what the figure shows in the paper.
        across, up: the axes.
        curves: makes a model's curves from its name, its kind and a master seed.
    """

    title: str
    figure: str
    published: str
    across: str
    up: str
    curves: Callable[[str, str, int], list[Curve]]


def _mean_curve(name: str, rows: Sequence[Sequence[float]]) -> Curve:
    """Return the mean of several rows of numbers as a curve over their indices."""
    values = np.mean(rows, 0)
    return Curve(name, [float(index) for index in range(len(values))], values.tolist())


def _massive_curves(name: str, kind: str, seed: int) -> list[Curve]:
    unchanged = read_blocks(kind, seed, "nothing")
    shortened = read_blocks(kind, seed, "sink")
    log_norms = [np.log10(reading.norm).tolist() for reading in unchanged]
    curves = [
        _mean_curve(f"{name}: matrix entropy", [reading.entropy for reading in unchanged]),
        _mean_curve(f"{name}: first token's norm over the median, log10", log_norms),
        _mean_curve(
            f"{name}: matrix entropy, first token held to the others' norm",
            [reading.entropy for reading in shortened],
        ),
    ]
    if unchanged[0].sinks:
        sinks = [reading.sinks for reading in unchanged]
        curves.append(_mean_curve(f"{name}: share of heads at the first token", sinks))
    return curves


def _drift_curves(name: str, kind: str, seed: int) -> list[Curve]:
    rows = []
    for repeat_seed in repeat_seeds(seed):
        rows.append([drift.average_cosine for drift in drift_by_site(kind, repeat_seed)])
    return [_mean_curve(f"{name}: average cosine", rows)]


def _kept_curves(name: str, kind: str, seed: int) -> list[Curve]:
    if "head" not in lens_of(kind).sites:
        return []
    shares = [kept_by_head(kind, repeat_seed) for repeat_seed in repeat_seeds(seed)]
    means = {
        "the head": np.mean([share.kept for share in shares]),
        "a random subspace": np.mean([share.random for share in shares]),
        "random signs": np.mean([share.leverage for share in shares]),
    }
    return [Curve(name, list(means), [float(mean) for mean in means.values()])]


def _rank_curves(name: str, kind: str, seed: int) -> list[Curve]:
    table = lens_of(kind).output_embeddings
    if table is None or "head" not in lens_of(kind).sites:
        return []
    ranks = [rank for rank in RANKS if rank < table.shape[1]]
    first_seed = repeat_seeds(seed)[0]
    losses = [loss_by_rank(kind, first_seed, rank) for rank in ranks]
    return [Curve(name, [float(rank) for rank in ranks], losses)]


def _margin_curves(name: str, kind: str, seed: int) -> list[Curve]:
    first_seed = repeat_seeds(seed)[0]
    blocks = lens_of(kind).match("block.*")
    numbers = [float(index) for index in range(len(blocks))]
    curves = []
    for bits in BITS:
        distances = [margins(kind, first_seed, bits, block).distance for block in blocks]
        curves.append(Curve(f"{name}: {bits or 'all'} bits", numbers, distances))
    return curves


PAPERS: dict[str, Paper] = {
    "2404.07647": Paper(
        title="Godey, de la Clergerie, Sagot: Why do small language models underperform?",
        figure="Loss of a head of low rank",
        published="The loss rises below a rank of some 1,000, whatever the model.",
        across="rank of the head",
        up="loss less that of the whole head (nats a token)",
        curves=_rank_curves,
    ),
    "2401.12143": Paper(
        title="Godey, de la Clergerie, Sagot: Anisotropy is inherent to self-attention",
        figure="Average cosine by layer",
        published="It rises over the layers, also where there are no words.",
        across="site",
        up="average cosine",
        curves=_drift_curves,
    ),
    "2603.10145": Paper(
        title="Godey, Artzi: the gradient bottleneck of the head",
        figure="Share of the gradient's norm that is handed on",
        published="95 to 99 % of the norm is lost: .14 to .31 of it is handed on.",
        across="by",
        up="share of the norm",
        curves=_kept_curves,
    ),
    "2510.06477": Paper(
        title="Queipo-de-Llano et al.: Attention sinks and compression valleys",
        figure="Compression, norms and sinks by block",
        published="Where the first token's norm leaps, entropy falls and heads attend to it.",
        across="block",
        up="share, or log10",
        curves=_massive_curves,
    ),
    "2511.14808": Paper(
        title="von Strauss: Transformer injectivity and geometric robustness",
        figure="Smallest distance of two prompts",
        published="Above 0 as computed and in 8 bits; smaller, at times 0, in 4.",
        across="block",
        up="distance a token",
        curves=_margin_curves,
    ),
}


def paper_of(name: str) -> Paper:
    """Return the paper of an arXiv number; raise BadInput where the ledger lacks its claims."""
    if name not in PAPERS:
        raise BadInput(f"No claims of arXiv:{name} are tried here; there are: {', '.join(PAPERS)}.")
    return PAPERS[name]


def paper_figure(name: str, kinds: list[str], seed: int) -> RedrawnFigure:
    """Return the paper's figure over models: names of proxies, or models as any verb takes them."""
    paper = paper_of(name)
    curves = []
    for kind in kinds:
        curves += paper.curves(lens_of(kind).name, kind, seed)
    return RedrawnFigure(
        id=f"later-{name}",
        document="later",
        place=f"arXiv:{name}",
        title=f"{paper.figure} ({paper.title})",
        published=paper.published,
        across=paper.across,
        up=paper.up,
        curves=curves,
    )
