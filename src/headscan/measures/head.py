"""The head: the number of directions that its table uses (Godey et al. 2024, arXiv:2404.07647), and
the loss of its predictions.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from headscan.measures.measure import Field, ProbeWords
from headscan.measures.probe import Probe, ProbeData, ProbeSetup
from headscan.measures.spectrum import entropy_of
from headscan.statistics.parallel import side_by_side
from headscan.statistics.tally import SiteBatch
from headscan.statistics.uncertainty import Cells, Floats, jackknife

WEIGHTS = "a property of the weights alone"


def head_spectrum(weight: Tensor) -> Cells:
    """Return the singular values of a head [V, d] and numbers of its rank.

    Keys: `singular_values` (largest first), `singular_entropy` log d − H(σ/Σσ) in nats (0: all
    directions alike; rises when a small model's head saturates), `effective_rank` of the energies,
    `stable_rank`, `top_ratio` σ₁/median σ, `half_error_rank` and `tenth_error_rank`: how many
    directions bring `w_error` to 0.5 and 0.1. Cost O(Vd² + d³).

    >>> round(head_spectrum(torch.eye(3))["singular_entropy"], 6)
    0.0
    """
    w = torch.as_tensor(weight).detach().double()
    eigenvalues = torch.linalg.eigvalsh(w.T @ w).flip(0).clamp(min=0)
    rounding = 4 * w.shape[1] * 2.2e-16 * eigenvalues[0]
    eigenvalues = torch.where(eigenvalues > rounding, eigenvalues, 0.0)
    values: Floats = eigenvalues.sqrt().cpu().numpy()
    if not values[0] > 0:
        return {"singular_values": values.tolist()} | dict.fromkeys(HeadProbe.words.fields)

    energies = values**2 / (values**2).sum()
    errors = w_error(values)
    median = float(np.median(values))
    return {
        "singular_values": values.tolist(),
        "singular_entropy": max(0.0, math.log(len(values)) - entropy_of(values / values.sum())),
        "effective_rank": math.exp(entropy_of(energies)),
        "stable_rank": float(1 / energies[0]),
        "top_ratio": float(values[0]) / median if median > 0 else None,
        "half_error_rank": int(np.argmax(errors <= 0.5)),
        "tenth_error_rank": int(np.argmax(errors <= 0.1)),
    }


def w_error(singular_values: npt.ArrayLike) -> Floats:
    """Return W-error(k) = ‖σ_{k+1:}‖₂/‖W‖_F for k = 0 ... d [d + 1].

    It is the part that the best matrix of rank k leaves out, from 1 to 0.

    >>> w_error([4.0, 3.0]).tolist()
    [1.0, 0.6, 0.0]
    """
    energies = np.asarray(singular_values, dtype=np.float64) ** 2
    residual = np.concatenate([np.cumsum(energies[::-1])[::-1], [0.0]])
    if not residual[0] > 0:
        return np.zeros(len(residual))
    shares: Floats = np.sqrt(residual / residual[0])
    return shares


class HeadProbe(Probe):
    """The spectrum of the head's table."""

    words = ProbeWords(
        name="head",
        title="The head's spectrum",
        group="head",
        sentence="How many directions does the output layer use? A rising singular entropy is how "
        "small models' heads saturate.",
        literature="Godey et al. 2024, arXiv:2404.07647",
        position="Weights know no position.",
        docs="head.md",
        function="headscan.measures.head.head_spectrum",
        order=13,
        fields={
            "singular_entropy": Field(
                "singular entropy",
                "Divergence of the singular values from uniform: 0 when all are equal.",
                "log d − H(σ/Σσ)",
                range=(0, None),
                unit="nats",
                undefined="the head is zero",
                interval=WEIGHTS,
            ),
            "effective_rank": Field(
                "effective rank",
                "exp of the entropy of the energies.",
                "exp H(σ²/Σσ²)",
                range=(1, None),
                unit="dimensions",
                undefined="the head is zero",
                interval=WEIGHTS,
            ),
            "stable_rank": Field(
                "stable rank",
                "Energy in units of the strongest direction.",
                "Σσ²/σ₁²",
                range=(1, None),
                unit="dimensions",
                undefined="the head is zero",
                interval=WEIGHTS,
            ),
            "top_ratio": Field(
                "top ratio",
                "First singular value over the median one.",
                "σ₁/median σ",
                range=(1, None),
                undefined="the median singular value is zero",
                interval=WEIGHTS,
            ),
            "half_error_rank": Field(
                "rank for W-error ½",
                "Directions that leave half of the norm out.",
                "W-error(k) ≤ 0.5",
                range=(0, None),
                unit="dimensions",
                undefined="the head is zero",
                interval=WEIGHTS,
            ),
            "tenth_error_rank": Field(
                "rank for W-error 0.1",
                "Directions that leave a tenth out.",
                "W-error(k) ≤ 0.1",
                range=(0, None),
                unit="dimensions",
                undefined="the head is zero",
                interval=WEIGHTS,
            ),
        },
    )

    def reason(self, setup: ProbeSetup) -> str | None:
        return None if setup.lens.output_embeddings is not None else NO_HEAD

    def rows(self, setup: ProbeSetup, _data: ProbeData) -> list[Cells]:
        output = setup.lens.output_embeddings
        if output is None:
            return []
        # Rows behind the last one that a token has were never trained.
        spectrum = head_spectrum(output[: setup.lens.token_rows])
        return [{"site": "output embeddings", **spectrum}]


NO_HEAD = "the model has no output layer"


SCALES = tuple(k / 2 for k in range(-8, 9))
"""Binary logarithms of the factors on the logits that are tried: 1/16 to 16 in steps of √2."""

CACHED = 2**18
"""The number of logits that are scaled at once: they stay in a processor's cache, which takes a
quarter of the time.
"""


def scaled_losses(
    logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"]
) -> Float[Tensor, "B S"]:
    """Return the summed cross-entropy [B, S] in nats of each window, with each of `SCALES`.

    The logits are multiplied by 2 to the power of the scale. Cost O(SBTV).

    >>> logits = torch.tensor([[[0.0, 1.0]]])
    >>> losses = scaled_losses(logits, torch.tensor([[1]]))
    >>> losses[0, len(SCALES) // 2].item()     # log(1 + 1/e)
    0.313...
    """
    flat = logits.flatten(0, 1)
    flat_targets = targets.flatten()
    at_once = CACHED if logits.device.type == "cpu" else 64 * CACHED
    rows = max(1, at_once // flat.shape[-1])

    def chunk_losses(start: int) -> Tensor:
        chunk = flat[start : start + rows]
        chunk_targets = flat_targets[start : start + rows]
        losses = [
            cross_entropy(chunk * 2.0**power, chunk_targets, reduction="none") for power in SCALES
        ]
        return torch.stack(losses, 1)

    size = 8.0 * rows * flat.shape[-1]
    starts = range(0, len(flat), rows)
    losses = torch.cat(list(side_by_side(chunk_losses, starts, size, logits.device)))
    return losses.double().reshape(*targets.shape, len(SCALES)).sum(1).cpu()


def best_scale(losses: npt.ArrayLike) -> float | None:
    """Return the factor on the logits with the least loss, from the losses at `SCALES` [S].

    It is the vertex of a parabola, in the factor's logarithm, through the least loss and its
    neighbours. None where the least is at an end, or a loss is not finite.

    >>> [round(best_scale([(x - least) ** 2 for x in SCALES]), 9) for least in (0.0, 1.0, -0.25)]
    [1.0, 2.0, 0.840896415]
    """
    values = np.asarray(losses, dtype=np.float64)
    if not np.isfinite(values).all():
        return None
    least = int(values.argmin())
    if least in (0, len(values) - 1):
        return None
    left, middle, right = values[least - 1 : least + 2]
    bend = left - 2 * middle + right
    shift = 0.0 if bend <= 0 else (left - right) / (2 * bend)
    return float(2.0 ** (SCALES[least] + shift * (SCALES[1] - SCALES[0])))


def counting_loss(ids: Int[Tensor, "N T"], vocabulary: int) -> float:
    """Return the mean loss, in nats, of a predictor that counts pairs of tokens while it reads.

    It begins with nothing and reads windows [N, T]. The probability of a token is its count after
    the token before it, less 0.75, and for the remainder its share of all tokens so far (absolute
    discounting, Ney et al. 1994), in which every token of the vocabulary begins with a tenth.
    Cost O(NT).

    >>> round(counting_loss(torch.zeros(1, 101, dtype=torch.long), 2), 3)
    0.002
    >>> round(counting_loss(torch.tensor([[0, 1]]), 2), 3)
    2.485
    """
    counts: dict[int, int] = {}
    pair_counts: dict[int, dict[int, int]] = {}
    total = 0
    loss = 0.0
    for row in ids.tolist():
        for position, token in enumerate(row):
            probability = (counts.get(token, 0) + 0.1) / (total + 0.1 * vocabulary)
            if position:
                followers = pair_counts.setdefault(row[position - 1], {})
                pairs = sum(followers.values())
                if pairs:
                    discounted = max(followers.get(token, 0) - 0.75, 0.0)
                    remainder = 0.75 * len(followers)
                    probability = (discounted + remainder * probability) / pairs
                loss -= math.log(probability)
                followers[token] = followers.get(token, 0) + 1
            counts[token] = counts.get(token, 0) + 1
            total += 1
    return loss / max(1, ids.numel() - len(ids))


class LossProbe(Probe):
    """The loss of the model's predictions, and that of simpler predictors of the same text."""

    words = ProbeWords(
        name="loss",
        title="The loss",
        group="head",
        sentence="How well does the model predict the next token? On the first 8,192 tokens, "
        "compared with the entropy of the text's tokens, which counting alone "
        "reaches.",
        literature="Godey et al. 2024, arXiv:2404.07647 (saturation of small models)",
        position="All positions that have a successor (--skip-first 1 leaves the first out).",
        docs="head.md",
        order=14,
        fields={
            "loss": Field(
                "loss",
                "Mean cross-entropy of the next token; it rises late where a small model "
                "saturates.",
                "−mean log p(next)",
                range=(0, None),
                unit="nats a token",
            ),
            "unigram_entropy": Field(
                "unigram entropy",
                (
                    "Entropy of the text's tokens: the loss of a model that knows token "
                    "frequencies only."
                ),
                "−Σ p log p",
                range=(0, None),
                unit="nats a token",
                interval="of this text's own counts",
            ),
            "counting_loss": Field(
                "loss of counting",
                "Loss of bigram counts that are learned from the same tokens while they are "
                "read (docs/measures.md).",
                "−mean log p(next | token, all read so far)",
                range=(0, None),
                unit="nats a token",
                interval="of this text's own counts",
            ),
            "best_loss": Field(
                "loss at the best scale",
                "Loss with all logits multiplied by the best of the factors tried: its gain "
                "on the first 1,024 tokens is subtracted from the loss.",
                "minₛ −mean log softmax(s·z)[next]",
                range=(0, None),
                unit="nats a token",
                interval="that of the loss, moved",
            ),
            "best_scale": Field(
                "best scale",
                "The factor on all logits that minimises the loss: 1 for calibrated logits, "
                "less for an overconfident model (Guo et al. 2017, arXiv:1706.04599). On the "
                "first 1,024 of these tokens.",
                "argminₛ −mean log softmax(s·z)[next]",
                range=(2.0 ** SCALES[0], 2.0 ** SCALES[-1]),
                undefined="it lies beyond the scales that are tried",
            ),
            "predicted": Field(
                "predicted", "Tokens predicted.", range=(1, None), unit="tokens", interval="a count"
            ),
        },
    )
    TOKENS = 8192
    SCALED = 1024
    seen: Sequence[tuple[Tensor, Tensor]] = ()
    """The ids and states of the first windows at the site that a linear head reads.

    With them, no second pass of the model is needed.
    """

    def reason(self, setup: ProbeSetup) -> str | None:
        if "head" not in setup.lens.sites or setup.lens.width("head") < setup.lens.vocabulary_size:
            return "it gives no logits over its vocabulary"
        return None if setup.lens.traits.causal else "its logits see the tokens that follow"

    def passing(self, setup: ProbeSetup) -> tuple[str, ...]:
        self.seen = []
        head = setup.lens.traits.linear_head
        return () if head is None else (head.site,)

    def see(self, _setup: ProbeSetup, batch: SiteBatch) -> None:
        enough = sum(ids.numel() for ids, _ in self.seen) >= self.TOKENS
        other_length = any(ids.shape[1] != batch.ids.shape[1] for ids, _ in self.seen)
        if not enough and not other_length:
            self.seen = [*self.seen, (batch.ids.cpu(), batch.states.clone())]

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        ids = data.windows[: max(1, self.TOKENS // setup.context)]
        if ids.shape[-1] < 2:
            return []

        sums, by_scale = self._losses(setup, ids)
        length = ids.shape[1] - 1 - setup.skip_first
        loss = float(sums.mean()) / length
        total_by_scale = by_scale.sum(0)
        gained = total_by_scale[len(SCALES) // 2] - total_by_scale.min()
        scale = best_scale(total_by_scale)
        return [
            {
                "site": "head",
                "loss": loss,
                "loss_interval": _loss_interval(loss, sums, length),
                "unigram_entropy": entropy_of(data.counts / max(1, data.counts.sum())),
                "counting_loss": counting_loss(ids, setup.lens.vocabulary_size),
                "best_loss": max(0.0, loss - float(gained) / (len(by_scale) * length)),
                "best_scale": scale,
                "best_scale_interval": self._scale_interval(scale, by_scale),
                "predicted": len(sums) * length,
            }
        ]

    def _losses(self, setup: ProbeSetup, ids: Tensor) -> tuple[Floats, Floats]:
        """Return the summed loss of each window of ids [w, T] [w], and those of the first windows
        at all scales [n, S].
        """
        losses: list[Tensor] = []
        scaled: list[Tensor] = []

        def add(logits: Tensor, targets: Tensor) -> None:
            """Add the losses of a batch of windows."""
            scores = logits[:, -1 - targets.shape[1] : -1].float()
            token_losses = cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="none")
            losses.append(token_losses.double().reshape(targets.shape).sum(1).cpu())
            if len(scaled) * targets.numel() < self.SCALED:
                scaled.append(scaled_losses(scores, targets))

        seen_ids = ids[:0]
        states = ids[:0]
        if self.seen:
            seen_ids = torch.cat([batch_ids for batch_ids, _ in self.seen])
            states = torch.cat([batch_states for _, batch_states in self.seen])
        known = torch.equal(seen_ids[: len(ids)], ids[:, setup.skip_first :])
        logits_of_window = setup.context * setup.lens.vocabulary_size
        step = max(1, min(2048 // setup.context, 2**25 // logits_of_window))
        for begin in range(0, len(ids), step):
            part = ids[begin : begin + step].to(setup.lens.device)
            targets = part[:, setup.skip_first + 1 :]
            if known:
                logits = setup.head.logits(states[begin : begin + step])
            else:
                logits = setup.lens.run(part, sites="head")["head"]
            add(logits, targets)
        return torch.cat(losses).numpy(), torch.cat(scaled).numpy()

    def _scale_interval(self, scale: float | None, by_scale: Floats) -> list[float] | None:
        """Return the interval of the best scale, with up to 8 groups of windows left
        out in turn.
        """
        if scale is None:
            return None
        groups = np.array_split(by_scale, min(8, len(by_scale)))
        left_out = [best_scale(by_scale.sum(0) - group.sum(0)) for group in groups]
        sizes = [len(group) for group in groups]
        return jackknife(scale, left_out, sizes, bounds=self.fields["best_scale"].range)


def _loss_interval(loss: float, sums: Floats, length: int) -> list[float] | None:
    """Return the interval of the mean loss, with up to 8 groups of windows left out in turn.

    `sums` [w] are the windows' summed losses, over `length` tokens each.
    """
    groups = np.array_split(sums, min(8, len(sums)))
    left_out = []
    for group in groups:
        tokens = length * max(1, len(sums) - len(group))
        left_out.append(float(sums.sum() - group.sum()) / tokens)
    return jackknife(loss, left_out, [len(group) for group in groups], bounds=(0.0, None))
