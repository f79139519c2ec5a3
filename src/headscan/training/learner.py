"""The module that the Trainer trains: a body with an objective, whose forward pass is the loss."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from headscan.model.recording import Kwargs, before_call
from headscan.model.traits import embedding_table
from headscan.run import BadInput
from headscan.training.heads import Unembedding, body_of, final_norm_of, head_of
from headscan.training.losses import floor_of, gather_rows, in_batch_accuracy, log_unigram
from headscan.training.objective import (
    LossInputs,
    Objective,
    objective_of,
    parse_regularisers,
    penalty_of,
)

ACCURACY_ROWS = 512
"""Rows of a batch on which the in-batch accuracy is measured."""


class Learner(nn.Module):
    """A body (and, for cross-entropy, its head) with an objective; its forward pass returns the
    loss and what is watched.

    The loss is computed inside the forward pass, where DDP and FSDP have the parameters at hand.

    Args:
        model: a transformers model; without a head for headless objectives.
        objective: a name or an `Objective`.
        regulariser: terms added to the loss, as "cosine:0.1".
        masked: labels name the hidden tokens; otherwise position i predicts label i + 1.
        counts: the training text's token counts [V], for objectives that start at its unigram.

    Raises:
        BadInput: where model, objective and counts do not fit together.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> ids = torch.arange(1, 13).view(2, 6)
    >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=2)).eval()
    >>> learner = Learner(model, "ce")
    >>> int(learner(ids, ids)["targets"])
    10
    """

    def __init__(
        self,
        model: PreTrainedModel,
        objective: Objective | str = "cwt",
        *,
        regulariser: str | None = None,
        masked: bool = False,
        counts: Int[Tensor, " vocabulary"] | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.config = model.config
        self.masked = masked
        self.objective = objective_of(objective)
        self.penalties = parse_regularisers(regulariser)
        if not self.objective.headless:
            head_of(model)
        if self.objective.needs_counts and counts is None:
            raise BadInput(
                f"The objective {self.objective.name!r} starts at the text's unigram: give its "
                "token counts."
            )
        # Parameters that belong to the objective and not to the model.
        width = embedding_table(model).shape[1]
        self.extra = self.objective.parameters(width, model.config.vocab_size, counts)

    def forward(
        self,
        input_ids: Int[Tensor, "batch time"],
        labels: Int[Tensor, "batch time"],
        attention_mask: Int[Tensor, "batch time"] | None = None,
        pool: Int[Tensor, " pool"] | None = None,
        share: Float[Tensor, ""] | None = None,
    ) -> dict[str, Tensor]:
        """Return {"loss", "targets", "floor", "accuracy", "penalty"}, scalars; all but the loss are
        detached.

        Args:
            pool: all target ids to compare with; default: those of this batch.
            share: factor of the *sum* of the losses, in place of 1/K. Micro-batches with one pool
                then add up to the loss of one large batch.

        floor and accuracy are of the contrastive pool (in-batch accuracy); penalty is what the
        regulariser adds to the mean loss.
        """
        inputs = self._loss_inputs(input_ids, labels, attention_mask, pool, share)
        targets = inputs.targets
        count = torch.tensor(float(len(targets)), device=inputs.rows.device)
        loss = self.objective.loss(inputs)
        if share is not None:
            loss = loss * share

        outputs = {"loss": loss, "targets": count}
        if self.penalties:
            penalty = penalty_of(self.penalties, inputs)
            # With a share, micro-batches weigh by their targets: their penalties add up to the
            # mean, as their losses do.
            added = penalty if share is None else penalty * count * share
            outputs["loss"] = loss + added
            outputs["penalty"] = penalty.detach()
        if self.objective.contrastive:
            with torch.no_grad():
                outputs["floor"] = floor_of(targets, pool).to(inputs.rows.device, torch.float32)
                outputs["accuracy"] = in_batch_accuracy(
                    inputs.rows[:ACCURACY_ROWS],
                    inputs.embeddings,
                    targets[:ACCURACY_ROWS],
                    pool=pool,
                )
        return outputs

    def _loss_inputs(
        self,
        input_ids: Tensor,
        labels: Tensor,
        attention_mask: Tensor | None,
        pool: Tensor | None,
        share: Tensor | None,
    ) -> LossInputs:
        """Run the body and return what the loss and the penalties read."""
        masks = {} if attention_mask is None else {"attention_mask": attention_mask}
        states, block_states = self._states(input_ids, masks)
        if not self.masked:
            states = states[:, :-1]
            labels = labels[:, 1:]
            if block_states is not None:
                block_states = block_states[:, :-1]
        rows, targets = gather_rows(states, labels)
        block_rows = None
        if block_states is not None:
            block_rows, _ = gather_rows(block_states, labels)
        return LossInputs(
            self.model,
            self.extra,
            states,
            labels,
            rows,
            targets,
            pool,
            "mean" if share is None else "sum",
            head=self.objective.head(self.model, self.extra),
            block=block_rows,
        )

    def _states(self, input_ids: Tensor, masks: dict[str, Tensor]) -> tuple[Tensor, Tensor | None]:
        """Return the body's last states [B, T, d] and, where a penalty may read them, those before
        its final norm.
        """
        body = body_of(self.model)
        norm = final_norm_of(body) if self.penalties else None
        if norm is None:
            return body(input_ids, **masks).last_hidden_state, None

        norm_inputs: list[Tensor] = []

        def record(_module: nn.Module, args: tuple[Any, ...], _kwargs: Kwargs) -> None:
            norm_inputs.append(args[0])

        with before_call(norm, record):
            states: Tensor = body(input_ids, **masks).last_hidden_state
        return states, norm_inputs[-1] if norm_inputs else None

    def readout(self, counts: Int[Tensor, " vocabulary"] | None = None) -> Unembedding | None:
        """Return what turns last states into the logits of a language model.

        It is the head or, of a headless model, its embedding table and the log unigram of `counts`;
        None where there is neither head nor counts.
        """
        head = self.objective.head(self.model, self.extra)
        if head is not None or counts is None:
            return head
        temperature = self.objective.reading().temperature
        rows = embedding_table(self.model)
        bias = log_unigram(counts, 0.5).float().to(rows.device)
        return Unembedding(nn.Identity(), rows / temperature, bias)

    def settle(self) -> list[str]:
        """Put the objective's own parameters (a bias of the head) into the model, and return notes
        for a reader of the model.
        """
        note = self.objective.settle(self.model, self.extra)
        if not self.objective.headless:
            self.extra = None
        return [note] if note else []
