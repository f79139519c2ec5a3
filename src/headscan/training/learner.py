"""What the Trainer trains: a body, an objective, and nothing that a checkpoint of the body would not need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headscan.errors import BadInput
from headscan.training.heads import body_of, head_of
from headscan.training.losses import (
    AdaptiveSoftmax,
    ce_loss,
    cwt_loss,
    floor_of,
    full_ce_loss,
    gather_rows,
    in_batch_accuracy,
    log_unigram,
    sample_noise,
    sampled_softmax_loss,
)
from headscan.training.regulariser import parse_regulariser, penalty_of

__all__ = ["HEADLESS", "OBJECTIVES", "Learner", "Objective"]

# What each objective is; those in HEADLESS train a body without a head.
OBJECTIVES = {
    "ce": "cross-entropy on the positions that carry loss",
    "ce-full": "cross-entropy, every position projected",
    "ce-chunked": "cross-entropy in chunks, logits computed twice",
    "ce-fused": "torch's fused linear cross-entropy",
    "cwt": "contrastive weight tying over unique tokens",
    "cwt-dense": "contrastive weight tying, K x K",
    "cwt-chunked": "contrastive weight tying over unique tokens, in chunks",
    "cwt-fused": "contrastive weight tying through torch's fused kernel",
    "ce+cwt": "the sum of both",
    "nce": "contrastive, against a table of its own (no weight tying)",
    "sampled": "sampled softmax, noise from the unigram distribution",
    "adaptive": "adaptive softmax",
}
HEADLESS = ("cwt", "cwt-dense", "cwt-chunked", "cwt-fused", "nce", "adaptive")


@dataclass(frozen=True)
class Objective:
    """An objective by name, with its options.

    temperature, normalize: of the contrastive forms. extra_negatives: tokens drawn from the unigram distribution and
    added to the pool (contrastive), or the noise (sampled). regulariser: terms added to the loss, as "cosine:0.1" (see
    `headscan.training.regulariser`).
    """

    name: str = "cwt"
    temperature: float = 1.0
    normalize: bool = False
    extra_negatives: int = 0
    regulariser: str | None = None

    def __post_init__(self) -> None:
        parse_regulariser(self.regulariser)
        if self.name not in OBJECTIVES:
            raise BadInput(f"There is no objective {self.name!r}; there are {', '.join(OBJECTIVES)}.")
        if self.extra_negatives < 0:
            raise BadInput("There cannot be fewer than 0 extra negatives.")

    @property
    def headless(self) -> bool:
        """Whether the model is trained without a prediction head."""
        return self.name in HEADLESS

    @property
    def contrastive(self) -> bool:
        """Whether the loss compares against a pool of tokens."""
        return self.name.startswith("cwt") or self.name in ("nce", "ce+cwt")


class Learner(nn.Module):
    """A body (and, for cross-entropy, its head) with an objective; its forward pass returns the loss and its monitors.

    The loss is computed inside the forward pass, where DDP and FSDP have the parameters at hand.

    model: a transformers model; without a head for headless objectives. masked: labels name hidden tokens in place;
    otherwise position i predicts label i + 1. counts: the training text's token counts [V], for objectives that draw.
    """

    def __init__(
        self, model: Any, objective: Objective | str = "cwt", *, masked: bool = False, counts: Tensor | None = None
    ):
        super().__init__()
        self.objective = Objective(objective) if isinstance(objective, str) else objective
        self.model, self.config, self.masked = model, model.config, masked
        self.penalties = parse_regulariser(self.objective.regulariser)
        self.extra: nn.Module | None = None  # parameters that belong to the objective and not to the model
        name, size = self.objective.name, model.config.vocab_size
        width = model.get_input_embeddings().weight.shape[1]
        if not self.objective.headless:
            head_of(model)
        drawing = name == "sampled" or self.objective.extra_negatives > 0
        if (drawing or name == "adaptive") and counts is None:
            raise BadInput(f"The objective {name!r} draws by frequency and needs the text's token counts.")
        if name == "nce":
            self.extra = nn.Embedding(size, width)
            self.extra.weight.data.normal_(std=0.02)
        elif name == "adaptive":
            assert counts is not None
            self.extra = AdaptiveSoftmax(width, counts)
        law = log_unigram(counts, 0.5).float() if drawing and counts is not None else torch.zeros(0)
        self.register_buffer("log_noise", law, persistent=False)

    log_noise: Tensor

    def forward(
        self,
        input_ids: Tensor,
        labels: Tensor,
        attention_mask: Tensor | None = None,
        pool: Tensor | None = None,
        share: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """{"loss", "targets", "floor", "accuracy", "penalty"}: input_ids and labels int [B, T].

        pool int [P]: all target ids to compare against (default: this batch's). share: the *sum* of losses is
        multiplied by it, in place of 1/K: micro-batches with one pool then add up to the loss of one large batch.
        floor and accuracy are of the contrastive pool (in-batch accuracy); penalty is what the regulariser adds to the
        mean loss; detached.
        """
        extra = {} if attention_mask is None else {"attention_mask": attention_mask}
        states = body_of(self.model)(input_ids, **extra).last_hidden_state
        if not self.masked:
            states, labels = states[:, :-1], labels[:, 1:]
        rows, targets = gather_rows(states, labels)
        loss = self._loss(states, labels, rows, targets, pool, share)
        count = torch.tensor(float(len(targets)), device=rows.device)
        answer = {"loss": loss, "targets": count}
        if self.penalties:
            penalty = penalty_of(self.penalties, self.model, rows)
            # With a share, micro-batches weigh by their targets: their penalties add up to the mean, as their losses do.
            answer["loss"] = loss + (penalty if share is None else penalty * count * share)
            answer["penalty"] = penalty.detach()
        if self.objective.contrastive:
            with torch.no_grad():
                answer["floor"] = floor_of(targets, pool).to(rows.device, torch.float32)
                answer["accuracy"] = in_batch_accuracy(rows[:512], self._table(), targets[:512], pool=pool)
        return answer

    def _table(self) -> Tensor:
        if self.objective.name == "nce":
            assert isinstance(self.extra, nn.Embedding)
            return self.extra.weight
        return self.model.get_input_embeddings().weight

    def _loss(self, states, labels, rows, targets, pool, share) -> Tensor:
        name = self.objective.name
        if name == "ce-full" and share is None:
            head = head_of(self.model)
            return full_ce_loss(head.transform(states), head.rows, labels, bias=head.bias)
        reduction = "mean" if share is None else "sum"
        if name == "adaptive":
            assert self.extra is not None
            loss = self.extra(rows, targets) * (1 if share is None else len(targets))
        elif name == "ce+cwt":
            loss = self._ce(rows, targets, "full", reduction) + self._cwt(rows, targets, "unique", pool, reduction)
        elif name == "sampled":
            head = head_of(self.model)
            noise = sample_noise(self.log_noise, self.objective.extra_negatives or 1024)
            loss = sampled_softmax_loss(
                head.transform(rows), head.rows, targets, noise, self.log_noise, bias=head.bias, reduction=reduction
            )
        elif self.objective.contrastive:
            form = name.partition("-")[2] or "unique"
            loss = self._cwt(rows, targets, form, pool, reduction)
        else:
            loss = self._ce(rows, targets, {"ce-chunked": "chunked", "ce-fused": "fused"}.get(name, "full"), reduction)
        return loss if share is None else loss * share

    def _ce(self, rows: Tensor, targets: Tensor, form: str, reduction: str) -> Tensor:
        head = head_of(self.model)
        return ce_loss(head.transform(rows), head.rows, targets, form, bias=head.bias, reduction=reduction)

    def _cwt(self, rows: Tensor, targets: Tensor, form: str, pool: Tensor | None, reduction: str) -> Tensor:
        if self.objective.extra_negatives:
            drawn = sample_noise(self.log_noise, self.objective.extra_negatives)
            pool = torch.cat([targets if pool is None else pool, drawn])
        return cwt_loss(
            rows,
            self._table(),
            targets,
            form,
            pool=pool,
            temperature=self.objective.temperature,
            normalize=self.objective.normalize,
            # The table also feeds the model: its rows' gradient joins a dense one, and needs no second [V, d].
            sparse=name_is_tied(self.objective.name) and not self._sharded(),
            reduction=reduction,
        )

    def _sharded(self) -> bool:
        weight = self.model.get_input_embeddings().weight
        return type(weight) not in (nn.Parameter, Tensor)


def name_is_tied(name: str) -> bool:
    """Whether the objective's table is the input embedding, which gets a dense gradient anyway."""
    return name != "nce"
