"""The two hands of cross-entropy: how hard each token's output vector is pulled to hidden states, and pushed away."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.measures.measure import Field, ProbeWords
from headscan.measures.probe import Cost, Probe, ProbeData, ProbeSetup
from headscan.measures.spectrum import entropy_of
from headscan.measures.zipf import predict_table
from headscan.statistics import SiteBatch
from headscan.statistics.accumulator import Accumulator
from headscan.statistics.part_sums import PushPull
from headscan.statistics.threads import side_by_side
from headscan.statistics.uncertainty import Cells, jackknife
from headscan.text import display

NO_BLOCKS = "summed over the whole text: blocks would each take a table of the head's size"


def push_pull_bins(sums: PushPull) -> list[Cells]:
    """Pull and push by frequency of the token to predict: bins of a factor of ten in count, rare first.

    Keys: `from`, `to` (counts), `tokens` (types), and means over the bin's rows, per position of the text:
        pull, push: the norms of pull_v/n and push_v/n, in the units of the states;
        ratio: Σ push norm / Σ (pull norm + push norm), in [0, 1]: 1 for tokens that are pushed only, as those are that
            never come next; at a minimum of the loss pull and push are equal vectors and the ratio is 1/2;
        cosine: mean cosine between pull_v and push_v where both are: 1 when a token is pushed out of the very direction
            it is pulled to, so that only their difference moves it;
        net_to_state: mean cosine of pull_v − push_v to the mean hidden state: negative when rows are driven away from
            the direction that all states share.
    """
    n = max(1, sums.tokens)
    pull, push = sums.pull.cpu().numpy() / n, sums.push.cpu().numpy() / n
    counts = sums.counts.cpu().numpy()
    lengths = np.linalg.norm(pull, axis=1), np.linalg.norm(push, axis=1)
    products, net = (pull * push).sum(1), pull - push
    axis = sums.state_sum.cpu().numpy()
    axis_length = float(np.linalg.norm(axis))
    net_length = np.linalg.norm(net, axis=1)
    found: list[Cells] = []
    low = 0
    while low <= counts.max(initial=0):
        high = 1 if low == 0 else 10 * low
        chosen = (counts >= low) & (counts < high)
        both = chosen & (lengths[0] > 0) & (lengths[1] > 0)
        moved = chosen & (net_length > 0)
        if chosen.any():
            total = float(lengths[0][chosen].sum() + lengths[1][chosen].sum())
            found.append(
                {
                    "from": low, "to": high - 1, "tokens": int(chosen.sum()), "pull": float(lengths[0][chosen].mean()),
                    "push": float(lengths[1][chosen].mean()),
                    "ratio": float(lengths[1][chosen].sum()) / total if total else None,
                    "cosine": float((products[both] / lengths[0][both] / lengths[1][both]).mean())
                    if both.any()
                    else None,
                    "net_to_state": float((net[moved] @ axis / net_length[moved] / axis_length).mean())
                    if moved.any() and axis_length > 0
                    else None,
                }
            )  # fmt: skip
        low = high
    return found


class GradientProbe(Probe):
    """Push and pull."""

    words = ProbeWords(
        name="gradient", title="Push and pull", group="zipf",
        sentence="How hard does cross-entropy pull each output row to hidden states where its token comes next, and "
        "push it away elsewhere?",
        literature="Gao et al. 2019, arXiv:1907.12009; Yu et al. 2022 (AGG)",
        position="All positions that have a successor: that is where the loss is (--skip-first 1 leaves the first "
        "out).",
        docs="zipf.md", function="headscan.measures.gradient.push_pull_bins", expensive=True, order=12, fields={
            "from": Field("from count", "Least count as the next token.", range=(0, None), interval="an edge of the bin"),
            "to": Field("to count", "Largest count.", range=(0, None), interval="an edge of the bin"),
            "tokens": Field("types", "Rows in the bin.", range=(1, None), interval="a count"),
            "pull": Field("pull",
                "Mean norm of Σ(1 − p)h over the positions where the token comes next, per position of the text.",
                "‖pull_v‖/n", range=(0, None), interval=NO_BLOCKS),
            "push": Field("push", "Mean norm of Σ p·h over all other positions.", "‖push_v‖/n", range=(0, None),
                interval=NO_BLOCKS),
            "ratio": Field("push share", "Push over push and pull; ½ at a minimum, 1 for tokens that never come next.",
                range=(0, 1), undefined="no gradient at all", interval=NO_BLOCKS),
            "cosine": Field("push against pull", "Mean cosine between the two.", range=(-1, 1),
                undefined="no row is both pulled and pushed", interval=NO_BLOCKS),
            "net_to_state": Field("net to mean state", "Mean cosine of pull − push to the mean hidden state.", range=(-1, 1),
                undefined="nothing moves", interval=NO_BLOCKS),
        },
    )  # fmt: skip

    def reason(self, setup: ProbeSetup) -> str | None:
        return None if setup.lens.traits.linear_head else "its logits are no linear map of the last site"

    def cost(self, setup: ProbeSetup) -> Cost:
        vocabulary, width = setup.lens.vocabulary_size, setup.lens.width(setup.last)
        return Cost(4.0 * (setup.tokens or 10**6) * vocabulary * (width + 10), 24.0 * vocabulary * width)

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        head = setup.head
        vocabulary, width = head.weight.shape
        return {setup.last: PushPull(vocabulary, width, device=setup.device)}

    def update(self, setup: ProbeSetup, key: str, accumulator: Accumulator, batch: SiteBatch) -> None:
        head = setup.head
        assert isinstance(accumulator, PushPull)
        known = batch.next_ids >= 0
        accumulator.update(batch.rows[known], batch.next_ids[known], head.weight, head.bias)

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        sums = next(iter(data.own.values()))
        assert isinstance(sums, PushPull)
        return [{"site": "output embeddings", **row} for row in push_pull_bins(sums)]


class PredictionProbe(Probe):
    """The deck's table."""

    words = ProbeWords(
        name="prediction", title="To predict, and not to predict", group="zipf",
        sentence="How often is each token the one to predict, and how often one not to predict? Frequent tokens are "
        "pulled now and then, rare ones are pushed always.",
        literature="the cone-shaped heads talk, after Gao et al. 2019",
        position="The text's counts know no position.", docs="zipf.md",
        function="headscan.measures.zipf.predict_table", order=8, fields={
            "rank": Field("rank", "By frequency in the text.", range=(1, None), interval="a place in an order"),
            "count": Field("count", "Occurrences.", range=(0, None), unit="tokens", interval="a count"),
            "predict": Field("to predict", "Share of positions where it is the token to predict.", "c/N", range=(0, 1),
                percent=True),
            "not_predict": Field("not to predict", "Share of positions where it is one not to predict.", "1 − c/N",
                range=(0, 1), percent=True),
        },
    )  # fmt: skip

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        found = predict_table(data.counts)
        tokens = display(setup.lens.tokenizer, [int(row["id"]) for row in found]) if found else []
        sizes = np.array([part.sum() for part in data.count_parts], dtype=float)
        rows: list[Cells] = []
        for row in found:
            own = np.array([float(part[int(row["id"])]) for part in data.count_parts], dtype=float)
            rest = (own.sum() - own) / np.maximum(sizes.sum() - sizes, 1.0)
            interval = jackknife(row["predict"], rest.tolist(), sizes, bounds=(0.0, 1.0))
            other = None if interval is None else [1 - interval[1], 1 - interval[0]]
            rows.append({"site": tokens[len(rows)], **row, "predict_interval": interval, "not_predict_interval": other})
        return rows


SCALES = tuple(k / 2 for k in range(-8, 9))
"""Binary logarithms of the factors that are tried: from 1/16 to 16 in steps of √2."""

CACHED = 2**18
"""Logits that are scaled at once: as many as stay in a processor's cache, which takes a quarter of the time."""


def scaled_losses(logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"]) -> Float[Tensor, "B S"]:
    """Summed cross-entropy [B, S] in nats of each window with its logits times each of `SCALES`. O(SBTV).

    >>> scaled_losses(torch.tensor([[[0.0, 1.0]]]), torch.tensor([[1]]))[0, len(SCALES) // 2].item()     # log(1 + 1/e)
    0.313...
    """
    flat, wanted = logits.flatten(0, 1), targets.flatten()
    rows = max(1, (CACHED if logits.device.type == "cpu" else 64 * CACHED) // flat.shape[-1])

    def lose(place: int) -> Tensor:
        some, own = flat[place : place + rows], wanted[place : place + rows]
        each = [torch.nn.functional.cross_entropy(some * 2.0**power, own, reduction="none") for power in SCALES]
        return torch.stack(each, 1)

    found = list(side_by_side(lose, range(0, len(flat), rows), 8.0 * rows * flat.shape[-1]))
    lost = torch.cat(found)
    return lost.double().reshape(*targets.shape, len(SCALES)).sum(1).cpu()


def best_scale(losses: npt.ArrayLike) -> float | None:
    """The factor at the least of the losses at `SCALES` [S], by a parabola in its logarithm through the least three.

    None where the least is at an end, or not finite.

    >>> [round(best_scale([(power - least) ** 2 for power in SCALES]), 9) for least in (0.0, 1.0, -0.25)]
    [1.0, 2.0, 0.840896415]
    """
    found = np.asarray(losses, dtype=np.float64)
    if not np.isfinite(found).all():
        return None
    least = int(found.argmin())
    if least in (0, len(found) - 1):
        return None
    before, here, after = found[least - 1 : least + 2]
    bend = before - 2 * here + after
    shift = 0.0 if bend <= 0 else (before - after) / (2 * bend)
    return float(2.0 ** (SCALES[least] + shift * (SCALES[1] - SCALES[0])))


class LossProbe(Probe):
    """How well does the model predict?"""

    words = ProbeWords(
        name="loss", title="The loss", group="head",
        sentence="How well does the model predict the next token? On the first 8,192 tokens; beside it the entropy "
        "of the text's tokens, which counting alone reaches.",
        literature="Godey et al. 2024, arXiv:2404.07647 (saturation of small models)",
        position="All positions that have a successor (--skip-first 1 leaves the first out).", docs="head.md",
        order=14, fields={
            "loss": Field("loss", "Mean cross-entropy of the next token; it rises late where a small model saturates.",
                "−mean log p(next)", range=(0, None), unit="nats a token"),
            "unigram_entropy": Field("unigram entropy",
                "Of the text's tokens: what a model that knows frequencies only would lose.", "−Σ p log p", range=(0, None),
                unit="nats a token", interval="of this text's own counts"),
            "best_scale": Field("best scale",
                "The factor on all logits with which the loss would be least: 1 where the model is as sure as it may be, less "
                "where it is too sure (Guo et al. 2017, arXiv:1706.04599). On the first 1,024 of these tokens.",
                "argminₛ −mean log softmax(s·z)[next]", range=(2.0**SCALES[0], 2.0**SCALES[-1]),
                undefined="it lies beyond the scales that are tried"),
            "predicted": Field("predicted", "Tokens predicted.", range=(1, None), unit="tokens", interval="a count"),
        },
    )  # fmt: skip
    TOKENS = 8192
    SCALED = 1024

    def reason(self, setup: ProbeSetup) -> str | None:
        if "head" not in setup.lens.sites or setup.lens.width("head") < setup.lens.vocabulary_size:
            return "it gives no logits over its vocabulary"
        return None if setup.lens.traits.causal else "its logits see the tokens that follow"

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        ids = data.windows[: max(1, self.TOKENS // setup.context)]
        if ids.shape[-1] < 2:
            return []
        lost: list[Tensor] = []
        scaled: list[Tensor] = []
        step = max(1, min(2048 // setup.context, 2**25 // (setup.context * setup.lens.vocabulary_size)))
        for part in ids.split(step):
            targets = part[:, setup.skip_first + 1 :].to(setup.lens.device)

            def take(site: str, logits: Tensor, targets: Tensor = targets) -> None:
                scores = logits[:, setup.skip_first : -1].float()
                each = torch.nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="none")
                lost.append(each.double().reshape(targets.shape).sum(1).cpu())
                if len(scaled) * targets.numel() < self.SCALED:
                    scaled.append(scaled_losses(scores, targets))

            setup.lens.run(part.to(setup.lens.device), sites="head", each=take)
        sums, length = torch.cat(lost).numpy(), ids.shape[1] - 1 - setup.skip_first
        loss = float(sums.mean()) / length
        parts = np.array_split(sums, min(8, len(sums)))
        left = [float(sums.sum() - part.sum()) / (length * max(1, len(sums) - len(part))) for part in parts]
        interval = jackknife(loss, left, [len(part) for part in parts], bounds=(0.0, None))
        unigram = entropy_of(data.counts / max(1, data.counts.sum()))
        by_scale = torch.cat(scaled).numpy()
        scale, groups = best_scale(by_scale.sum(0)), np.array_split(by_scale, min(8, len(by_scale)))
        others = [best_scale(by_scale.sum(0) - group.sum(0)) for group in groups]
        sizes, bounds = [len(group) for group in groups], self.fields["best_scale"].range
        return [
            {
                "site": "head", "loss": loss, "loss_interval": interval, "unigram_entropy": unigram,
                "best_scale": scale,
                "best_scale_interval": None if scale is None else jackknife(scale, others, sizes, bounds=bounds),
                "predicted": len(sums) * length,
            }
        ]  # fmt: skip
