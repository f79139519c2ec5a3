"""The common direction: the logits of the mean state, against how frequent each token is."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from headscan.measures.cone import average_cosine
from headscan.measures.measure import Field, ProbeWords
from headscan.measures.probe import Probe, ProbeData, ProbeSetup
from headscan.model.norms import Norm
from headscan.statistics import Accumulator, Blocks, Cloud, SiteBatch
from headscan.statistics.counts import COUNT_BLOCKS
from headscan.statistics.tally import BlockedTally
from headscan.statistics.uncertainty import Cells, Floats, jackknife, number
from headscan.text import display


def weighted_correlation(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Return Pearson's r of each row of x [k, n] with y [n], or with its own row of y [k, n].

    The weights have the same shape as y; r is NaN where either is constant. In [−1, 1].

    >>> x = np.array([[1.0, 2.0, 9.0]])
    >>> y = np.array([2.0, 4.0, 0.0])
    >>> float(weighted_correlation(x, y, np.array([1.0, 1.0, 0.0]))[0])
    1.0
    """
    w = weights / weights.sum(-1, keepdims=True)
    x = x - (w * x).sum(-1, keepdims=True)
    y = y - (w * y).sum(-1, keepdims=True)
    variance_x = (w * x * x).sum(-1)
    variance_y = (w * y * y).sum(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        r: Floats = (w * x * y).sum(-1) / np.sqrt(variance_x * variance_y)
    return r


def correlations(logits: Floats, counts: npt.NDArray[np.int64]) -> Floats:
    """Return the r of logits [k, n] with the log frequency of the tokens [n] or [k, n].

    Each token is weighted by its frequency.

    >>> float(correlations(np.log(np.array([[8.0, 4.0, 1.0]])), np.array([8, 4, 1]))[0])
    1.0
    """
    frequency = np.log(np.where(counts > 0, counts, 1).astype(np.float64))
    return weighted_correlation(logits, frequency, counts.astype(np.float64))


def permuted(
    logits: Floats, counts: npt.NDArray[np.int64], generator: np.random.Generator, draws: int
) -> Floats:
    """Return the null [draws]: the weighted r of the logits [n], permuted over the tokens.

    >>> null = permuted(np.arange(50.0), np.arange(1, 51), np.random.default_rng(0), 200)
    >>> bool(abs(null.mean()) < 0.1 < null.std() < 0.3)
    True
    """
    return correlations(generator.permuted(np.tile(logits, (draws, 1)), axis=1), counts)


DRAWS = 400  # permutations, and random states, of the nulls
SPOKEN = 6  # tokens that are named


class StateTally(BlockedTally):
    """The sum of the states and the number of tokens, in the same blocks as the counts
    of tokens.
    """

    def __init__(self, width: int, device: torch.device | str = "cpu"):
        super().__init__(width, device)
        self.blocks = Blocks(COUNT_BLOCKS, self._zero)

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        return {"total": (width,), "tokens": ()}

    def measure(self, batch: SiteBatch) -> dict[str, Tensor]:
        return {
            "total": batch.rows.sum(1),
            "tokens": torch.full((len(batch.rows),), float(batch.rows.shape[1])),
        }


class CommonDirectionProbe(Probe):
    """The tokens that the mean state raises, and the share of the cone that a bias
    could replace.
    """

    words = ProbeWords(
        name="common_direction",
        title="What the common direction says",
        group="anatomy",
        sentence="Does the mean state at the head's input encode token frequency, and could "
        "a bias of the head hold it?",
        literature="Bihani and Rayz 2021; Kobayashi et al. 2023, arXiv:2305.18294 (frequency in "
        "the head); gauge: headscan",
        position="All positions, as the head reads them.",
        docs="anatomy.md",
        function="headscan.measures.common_direction.correlations",
        sample=2000,
        order=2,
        picture="layers",
        fields={
            "correlation": Field(
                "r with log frequency",
                "Correlation of the mean state's logits with the log frequency of the tokens in "
                "the text, weighted by it.",
                "corr_p(W·mean + b, log p)",
                range=(-1, 1),
                undefined="fewer than two tokens occur, or their logits are all alike",
            ),
            "permuted": Field(
                "null: permuted",
                f"|r| that one in twenty of {DRAWS} deals of the logits to the tokens exceeds.",
                range=(0, 1),
                undefined="there is no r",
                interval="a quantile of a null",
            ),
            "permuted_p": Field(
                "p, permuted",
                "Share of deals with as large an |r|.",
                "(1 + #)/(B + 1)",
                range=(0, 1),
                undefined="there is no r",
                interval="a probability",
            ),
            "random": Field(
                "null: random states",
                "|r| that one in twenty random directions exceeds in place of the mean.",
                range=(0, 1),
                undefined="there is no r",
                interval="a quantile of a null",
            ),
            "random_p": Field(
                "p, random states",
                "Share of random directions with as large an |r|.",
                "(1 + #)/(B + 1)",
                range=(0, 1),
                undefined="there is no r",
                interval="a probability",
            ),
            "cosine": Field(
                "cosine at the head",
                "Average cosine of what the head reads, on the sample.",
                range=(-1, 1),
                undefined="fewer than two vectors that are not zero",
            ),
            "cosine_after": Field(
                "without the mean",
                "The same without the mean, which a bias W·mean makes up for: no logit changes "
                "(`headscan.decone`).",
                range=(-1, 1),
                undefined="fewer than two vectors that are not zero",
            ),
            "gauge": Field(
                "gauge",
                "Share of the cone at the head that a bias takes away.",
                "1 − after/before",
                undefined="there is no cone: the cosine is below 0.01",
                interval="that of the cosines",
            ),
            "stream_gauge": Field(
                "gauge on the stream",
                "Share of the cone at the last block along the vector of ones, which layer norms "
                "do not see; 0 for others.",
                "(Σm)²/(d·|m|²)",
                range=(0, 1),
                undefined="there is no cone",
                interval="small where it matters",
            ),
            "says": Field(
                "it says", "The tokens whose logits the mean raises most.", interval="words"
            ),
        },
    )

    def reason(self, setup: ProbeSetup) -> str | None:
        head = setup.lens.traits.linear_head
        if head is None:
            return "its head is no linear map of the states at a site"
        return None if head.site == setup.last else f"its head reads {head.site}"

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        return {setup.last: StateTally(setup.lens.width(setup.last), setup.device)}

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        tally = data.own[setup.last]
        assert isinstance(tally, StateTally)
        total = tally.total()
        mean = total["total"].cpu() / total["tokens"].cpu()
        row: Cells = {"site": setup.last} | dict.fromkeys(self.fields)
        row |= _frequency_cells(setup, data, tally, mean)
        row["says"] = _raised_tokens(setup, mean)
        row["stream_gauge"] = _along_ones(setup, data)
        if setup.last in data.sample:
            row |= _gauge(data.sample[setup.last].double().numpy(), mean.numpy(), data.blocks)
        return [row]


def _frequency_cells(setup: ProbeSetup, data: ProbeData, tally: StateTally, mean: Tensor) -> Cells:
    """Return the correlation of the mean state's logits with log frequency, and its nulls."""
    counts = np.asarray(data.counts, dtype=np.int64)
    token_ids = np.flatnonzero(counts)
    if len(token_ids) < 2:
        return {}

    head = setup.head
    indices = torch.from_numpy(token_ids).to(head.weight.device)
    weight = head.weight[indices].double().cpu().numpy()
    bias = 0.0 if head.bias is None else head.bias[indices].double().cpu().numpy()
    cells = _against_nulls(weight, bias, mean.numpy(), counts[token_ids], setup.seed)
    parts = tally.parts()
    if len(parts) < 3 or len(data.count_parts) != len(parts):
        return cells

    total = tally.total()
    means_without = torch.stack(
        [(total["total"] - part["total"]) / (total["tokens"] - part["tokens"]) for part in parts]
    )
    counts_without = np.stack([(counts - part)[token_ids] for part in data.count_parts])
    values = correlations(means_without.cpu().numpy() @ weight.T + bias, counts_without)
    left_out = [float(value) if np.isfinite(value) else None for value in values]
    sizes = [float(part["tokens"]) for part in parts]
    correlation = number(cells.get("correlation"))
    cells["correlation_interval"] = jackknife(correlation, left_out, sizes, bounds=(-1.0, 1.0))
    return cells


def _against_nulls(
    weight: Floats, bias: Floats | float, mean: Floats, counts: npt.NDArray[np.int64], seed: int
) -> Cells:
    """Return the correlation, with a quantile and a p-value of each null.

    The nulls are the same logits permuted, and the logits of random states as long as the mean.
    """
    generator = np.random.default_rng(seed)
    logits = weight @ mean + bias
    correlation = float(correlations(logits[None], counts)[0])
    if not np.isfinite(correlation):
        return {}

    cells: Cells = {"correlation": correlation}
    directions = generator.standard_normal((DRAWS, len(mean)))
    directions *= np.linalg.norm(mean) / np.linalg.norm(directions, axis=1, keepdims=True)
    nulls = {
        "permuted": permuted(logits, counts, generator, DRAWS),
        "random": correlations(directions @ weight.T + bias, counts),
    }
    for name, null in nulls.items():
        sizes = np.abs(null[np.isfinite(null)])
        as_large = (sizes >= abs(correlation)).sum()
        cells[name] = float(np.quantile(sizes, 0.95)) if len(sizes) else None
        cells[f"{name}_p"] = float((1 + as_large) / (1 + len(sizes)))
    return cells


def _raised_tokens(setup: ProbeSetup, mean: Tensor) -> str:
    """Return the tokens whose logits the mean state raises most, largest first."""
    head = setup.head
    logits = head.logits(mean.to(head.weight)).float()
    ids = logits.topk(min(SPOKEN, len(head.weight))).indices.tolist()
    return " ".join(repr(token) for token in display(setup.lens.tokenizer, ids))


def _gauge(states: Floats, mean: Floats, blocks: npt.NDArray[np.int64]) -> Cells:
    """Return the average cosine of states [n, d] with and without the mean, and the gauge."""
    blocks = blocks[: len(states)]
    numbers, counts = np.unique(blocks, return_counts=True)
    sizes = [float(count) for count in counts]
    cells: Cells = {}
    cosines: dict[str, float | None] = {}
    for name, rows in (("cosine", states), ("cosine_after", states - mean)):
        cosines[name] = average_cosine(Cloud.of_rows(rows))
        cells[name] = cosines[name]
        cells[f"{name}_interval"] = None
        if len(numbers) > 2:
            left_out = [average_cosine(Cloud.of_rows(rows[blocks != block])) for block in numbers]
            cells[f"{name}_interval"] = jackknife(
                cosines[name], left_out, sizes, bounds=(-1.0, 1.0)
            )
    cosine = cosines["cosine"]
    cosine_after = cosines["cosine_after"]
    if cosine is not None and cosine_after is not None and cosine >= 0.01:
        cells["gauge"] = 1 - cosine_after / cosine
    return cells


def _along_ones(setup: ProbeSetup, data: ProbeData) -> float | None:
    """Return the share of the cone at the last block along the vector of ones.

    It is 0 for a model whose final norm does not centre, and None where there is no cone.
    """
    cloud = data.clouds.get(setup.deepest)
    if cloud is None:
        return None
    square = float(cloud.unit_sum @ cloud.unit_sum)
    if not square > 0:
        return None
    if not _centred_stream(setup):
        return 0.0
    return float(cloud.unit_sum.sum() ** 2 / (cloud.width * square))


def _centred_stream(setup: ProbeSetup) -> bool:
    """Return whether all that reads the deepest site's stream subtracts the mean first."""
    stack = next((stack for stack in setup.lens.stacks if setup.deepest in stack.taps), None)
    if stack is None or not all(stack.plain):
        return False
    tap = stack.taps.get(f"{stack.prefix}final_norm")
    if tap is None or not isinstance(tap.module, nn.Module):
        return False
    norm = Norm.of(tap.module, tap.width)
    return norm is not None and norm.centred
