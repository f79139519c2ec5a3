"""What the Trainer trains: a body with an objective; by what its weights move: an optimiser is a
class, here or in a plug-in.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from headscan.model.traits import embedding_table
from headscan.run import BadInput, Registry, Settings
from headscan.training.heads import Unembedding, body_of, final_norm_of, head_of
from headscan.training.losses import floor_of, gather_rows, in_batch_accuracy, log_unigram
from headscan.training.objective import (
    LossInputs,
    Objective,
    objective_of,
    parse_regularisers,
    penalty_of,
)


class Learner(nn.Module):
    """A body (and, for cross-entropy, its head) with an objective; its forward pass returns the
    loss and its monitors.

    The loss is computed inside the forward pass, where DDP and FSDP have the parameters at hand.

    model: a transformers model; without a head for headless objectives. objective: a name or an
        `Objective`.
    regulariser: terms added to the loss, as "cosine:0.1". masked: labels name hidden tokens in
    place; otherwise position i predicts label i + 1. counts: the training text's token counts [V],
    for objectives that start at its unigram. Raises BadInput where model, objective and counts do
    not fit together.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> ids = torch.arange(1, 13).view(2, 6)
    >>> learner = Learner(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=2)).eval(), "ce")
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
        self.extra = self.objective.parameters(
            embedding_table(model).shape[1], model.config.vocab_size, counts
        )

    def forward(
        self,
        input_ids: Int[Tensor, "batch time"],
        labels: Int[Tensor, "batch time"],
        attention_mask: Int[Tensor, "batch time"] | None = None,
        pool: Int[Tensor, " pool"] | None = None,
        share: Float[Tensor, ""] | None = None,
    ) -> dict[str, Tensor]:
        """{"loss", "targets", "floor", "accuracy", "penalty"}, scalars; all but the loss are
        detached.

        pool: all target ids to compare against (default: this batch's). share: the *sum* of losses
        is multiplied by it, in place of 1/K: micro-batches with one pool then add up to the loss of
        one large batch. floor and accuracy are of the contrastive pool (in-batch accuracy); penalty
        is what the regulariser adds to the mean loss.
        """
        extra = {} if attention_mask is None else {"attention_mask": attention_mask}
        states, block = self._states(input_ids, extra)
        if not self.masked:
            states = states[:, :-1]
            labels = labels[:, 1:]
            block = None if block is None else block[:, :-1]
        rows, targets = gather_rows(states, labels)
        inputs = LossInputs(
            self.model,
            self.extra,
            states,
            labels,
            rows,
            targets,
            pool,
            "mean" if share is None else "sum",
            head=self.objective.head(self.model, self.extra),
            block=None if block is None else gather_rows(block, labels)[0],
        )
        loss = self.objective.loss(inputs)
        loss = loss if share is None else loss * share
        count = torch.tensor(float(len(targets)), device=rows.device)
        answer = {"loss": loss, "targets": count}
        if self.penalties:
            penalty = penalty_of(self.penalties, inputs)
            # With a share, micro-batches weigh by their targets: their penalties add up to the
            # mean, as their losses do.
            answer["loss"] = loss + (penalty if share is None else penalty * count * share)
            answer["penalty"] = penalty.detach()
        if self.objective.contrastive:
            with torch.no_grad():
                answer["floor"] = floor_of(targets, pool).to(rows.device, torch.float32)
                answer["accuracy"] = in_batch_accuracy(
                    rows[:512], inputs.embeddings, targets[:512], pool=pool
                )
        return answer

    def readout(self, counts: Int[Tensor, " vocabulary"] | None = None) -> Unembedding | None:
        """What turns last states into the logits of a language model: the head, or of a headless
        one its table and the log unigram of `counts`. None where there is no such thing, or there
        are no counts.
        """
        found = self.objective.head(self.model, self.extra)
        if found is not None or counts is None:
            return found
        reading = self.objective.reading()
        rows = embedding_table(self.model)
        return Unembedding(
            nn.Identity(),
            rows / reading.temperature,
            log_unigram(counts, 0.5).float().to(rows.device),
        )

    def settle(self) -> list[str]:
        """Put what the objective holds (a bias of the head) into the model that is kept; what a
        reader must know of it.
        """
        note = self.objective.settle(self.model, self.extra)
        if not self.objective.headless:
            self.extra = None
        return [note] if note else []

    def _states(self, ids: Tensor, extra: dict[str, Tensor]) -> tuple[Tensor, Tensor | None]:
        """The body's last states [B, T, d] and, where a penalty may ask for them, those before its
        final norm.
        """
        body = body_of(self.model)
        seen = []
        norm = final_norm_of(body) if self.penalties else None
        hook = (
            None
            if norm is None
            else norm.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
        )
        try:
            states: Tensor = body(ids, **extra).last_hidden_state
        finally:
            if hook is not None:
                hook.remove()
        return states, seen[-1] if seen else None


Groups = list[dict[str, Any]]  # as torch.optim takes them


@dataclass(frozen=True, kw_only=True)
class Optimiser(Settings, ABC):
    """How gradients become steps; its `Option` fields are its parameters, on the command line too.

    >>> optimiser_of("adamw")
    AdamW()
    """

    @property
    def name(self) -> str:
        return OPTIMISERS.name_of(self)

    @abstractmethod
    def make(
        self,
        learner: Learner,
        *,
        rate: float,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        decay: float = 0.0,
    ) -> torch.optim.Optimizer:
        """torch's optimizer of the learner's parameters, at a peak rate; `decay` is of matrices
        alone.
        """


def groups_of(
    learner: Learner, *, rate: float, decay: float, apart: list[nn.Parameter] | None = None
) -> Groups:
    """The learner's parameters: matrices, which decay; vectors, which do not; the objective's own,
    at its `own_rate`.

    apart: matrices that make a group of their own, the first one, with `apart` true.
    """
    lonely = {id(one) for one in apart or ()}
    own_rate = learner.objective.own_rate
    own = (
        set()
        if learner.extra is None or own_rate is None
        else {id(one) for one in learner.extra.parameters()}
    )
    free = [one for one in learner.parameters() if one.requires_grad]
    rest = [one for one in free if id(one) not in lonely | own]
    groups: Groups = [
        {
            "params": [one for one in free if id(one) in lonely],
            "weight_decay": decay,
            "apart": True,
        },
        {"params": [one for one in rest if one.ndim > 1], "weight_decay": decay},
        {"params": [one for one in rest if one.ndim <= 1], "weight_decay": 0.0},
        {"params": [one for one in free if id(one) in own], "weight_decay": 0.0, "lr": own_rate},
    ]
    return [{"lr": rate, "apart": False} | group for group in groups if group["params"]]


OPTIMISERS: Registry[type[Optimiser]] = Registry("optimiser", "headscan.training.learner")
"""All optimisers by name; `registry.build(name, parameters)` makes one."""


def optimiser_of(given: str | Optimiser) -> Optimiser:
    """The optimiser of a name, with its default parameters; one that is made already is returned."""
    return given if isinstance(given, Optimiser) else cast(Optimiser, OPTIMISERS.build(given))


@OPTIMISERS.register("adamw")
class AdamW(Optimiser):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019), as torch has it."""

    def make(
        self,
        learner: Learner,
        *,
        rate: float,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        decay: float = 0.0,
    ) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            groups_of(learner, rate=rate, decay=decay), lr=rate, betas=betas, eps=epsilon
        )
