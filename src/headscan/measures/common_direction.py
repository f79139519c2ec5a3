"""What the common direction says: the logits of the mean state, against how frequent each token is."""

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
    """Pearson's r of each row of x [k, n] with y [n], or with its own row of y [k, n], under
    weights of the same shape as y; NaN where either is constant. In [−1, 1].

    >>> float(weighted_correlation(np.array([[1.0, 2.0, 9.0]]), np.array([2.0, 4.0, 0.0]), np.array([1.0, 1.0, 0.0]))[0])
    1.0
    """
    w = weights / weights.sum(-1, keepdims=True)
    x = x - (w * x).sum(-1, keepdims=True)
    y = y - (w * y).sum(-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        r: Floats = (w * x * y).sum(-1) / np.sqrt((w * x * x).sum(-1) * (w * y * y).sum(-1))
    return r


def correlations(logits: Floats, counts: npt.NDArray[np.int64]) -> Floats:
    """r of logits [k, n] with the log frequency of the tokens [n] or [k, n], each token weighted by
    its frequency.

    >>> float(correlations(np.log(np.array([[8.0, 4.0, 1.0]])), np.array([8, 4, 1]))[0])
    1.0
    """
    frequency = np.log(np.where(counts > 0, counts, 1).astype(np.float64))
    return weighted_correlation(logits, frequency, counts.astype(np.float64))


def permuted(
    logits: Floats, counts: npt.NDArray[np.int64], generator: np.random.Generator, draws: int
) -> Floats:
    """The null: the weighted r of the same logits [n], dealt out to other tokens at random [draws].

    >>> null = permuted(np.arange(50.0), np.arange(1, 51), np.random.default_rng(0), 200)
    >>> bool(abs(null.mean()) < 0.1 < null.std() < 0.3)
    True
    """
    return correlations(generator.permuted(np.tile(logits, (draws, 1)), axis=1), counts)


DRAWS = 400
SPOKEN = 6  # tokens that are named


class StateTally(BlockedTally):
    """Σx and the number of tokens, in the same blocks as the counts of tokens."""

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
    """What the common direction says, and how much of it is gauge."""

    words = ProbeWords(
        name="common_direction",
        title="What the common direction says",
        group="anatomy",
        sentence="Does the mean of what the head reads say how frequent each token is, and is it "
        "more than a bias could say?",
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
                "once the mean is away",
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
        if (head := setup.lens.traits.linear_head) is None:
            return "its head is no linear map of the states at a site"
        return None if head.site == setup.last else f"its head reads {head.site}"

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        return {setup.last: StateTally(setup.lens.width(setup.last), setup.device)}

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        tally = data.own[setup.last]
        head = setup.head
        assert isinstance(tally, StateTally)
        total = tally.total()
        parts = tally.parts()
        mean = total["total"].cpu() / total["tokens"].cpu()
        row: Cells = {"site": setup.last} | dict.fromkeys(self.fields)
        counts = np.asarray(data.counts, dtype=np.int64)
        token_ids = np.flatnonzero(counts)
        if len(token_ids) > 1:
            indices = torch.from_numpy(token_ids).to(head.weight.device)
            weight = head.weight[indices].double().cpu().numpy()
            bias = 0.0 if head.bias is None else head.bias[indices].double().cpu().numpy()
            row |= _said(weight, bias, mean.numpy(), counts[token_ids], setup.seed)
            means_without = [
                (total["total"] - part["total"]) / (total["tokens"] - part["tokens"])
                for part in parts
            ]
            if len(parts) > 2 and len(data.count_parts) == len(parts):
                left = np.stack([(counts - part)[token_ids] for part in data.count_parts])
                values = correlations(
                    torch.stack(means_without).cpu().numpy() @ weight.T + bias, left
                )
                clean = [float(value) if np.isfinite(value) else None for value in values]
                sizes = [float(part["tokens"]) for part in parts]
                row["correlation_interval"] = jackknife(
                    number(row["correlation"]), clean, sizes, bounds=(-1.0, 1.0)
                )
        ids = (
            head.logits(mean.to(head.weight))
            .float()
            .topk(min(SPOKEN, len(head.weight)))
            .indices.tolist()
        )
        row["says"] = " ".join(repr(token) for token in display(setup.lens.tokenizer, ids))
        row["stream_gauge"] = _along_ones(setup, data)
        if setup.last in data.sample:
            row |= _gauge(data.sample[setup.last].double().numpy(), mean.numpy(), data.blocks)
        return [row]


def _said(
    weight: Floats, bias: Floats | float, mean: Floats, counts: npt.NDArray[np.int64], seed: int
) -> Cells:
    generator = np.random.default_rng(seed)
    logits = weight @ mean + bias
    weighted = float(correlations(logits[None], counts)[0])
    if not np.isfinite(weighted):
        return {}
    cells: Cells = {"correlation": weighted}
    directions = generator.standard_normal((DRAWS, len(mean)))
    directions *= np.linalg.norm(mean) / np.linalg.norm(directions, axis=1, keepdims=True)
    nulls = {
        "permuted": permuted(logits, counts, generator, DRAWS),
        "random": correlations(directions @ weight.T + bias, counts),
    }
    for name, null in nulls.items():
        null = np.abs(null[np.isfinite(null)])
        cells[name] = float(np.quantile(null, 0.95)) if len(null) else None
        cells[f"{name}_p"] = float((1 + (null >= abs(weighted)).sum()) / (1 + len(null)))
    return cells


def _gauge(states: Floats, mean: Floats, blocks: npt.NDArray[np.int64]) -> Cells:
    cells: Cells = {}
    blocks = blocks[: len(states)]
    numbers = np.unique(blocks)
    for name, rows in (("cosine", states), ("cosine_after", states - mean)):
        cells[name] = value = average_cosine(Cloud.of_rows(rows))
        left_out = (
            [average_cosine(Cloud.of_rows(rows[blocks != block])) for block in numbers]
            if len(numbers) > 2
            else []
        )
        sizes = [float((blocks == block).sum()) for block in numbers]
        cells[f"{name}_interval"] = (
            jackknife(value, left_out, sizes, bounds=(-1.0, 1.0)) if left_out else None
        )
    cosine = cells["cosine"]
    cosine_after = cells["cosine_after"]
    if isinstance(cosine, float) and isinstance(cosine_after, float) and cosine >= 0.01:
        cells["gauge"] = 1 - cosine_after / cosine
    return cells


def _along_ones(setup: ProbeSetup, data: ProbeData) -> float | None:
    cloud = data.clouds.get(setup.deepest)
    square = 0.0 if cloud is None else float(cloud.unit_sum @ cloud.unit_sum)
    if cloud is None or not square > 0:
        return None
    stack = next(
        (candidate for candidate in setup.lens.stacks if setup.deepest in candidate.taps), None
    )
    tap = None if stack is None else stack.taps.get(f"{stack.prefix}final_norm")
    norm = (
        None
        if tap is None or not isinstance(tap.module, nn.Module)
        else Norm.of(tap.module, tap.width)
    )
    if stack is None or norm is None or not norm.centred or not all(stack.plain):
        return 0.0
    return float(cloud.unit_sum.sum() ** 2 / (cloud.width * square))
