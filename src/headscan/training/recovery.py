"""Head recovery: from a body that was trained without a head to next-token probabilities.

The contrastive optimum is z_v = log p(v | context) - log p(v) + const(context): negatives come with
their own frequency, so the model learns what the context *adds* to it. What is missing is the log
of the unigram probability:

    softmax(o . e_v + log p(v))

is a language model, without any training. A method of recovery is one class, here or in a plug-in.
"""

import copy
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from headscan.model.traits import embedding_table
from headscan.run import BadInput, Progress, Registry, Settings, no_progress
from headscan.run.settings import Option
from headscan.training.heads import body_of, divide_last_norm, fold_bias, head_of
from headscan.training.losses import ce_loss, log_unigram
from headscan.training.records import CurvePoint

CURVE_POINTS = 20
"""Points of the curve of a head that is trained."""


@dataclass(frozen=True, kw_only=True)
class HeadRecovery(Settings):
    """A method that gives a headless body a head; its `Option` fields are its parameters.

    Attributes:
        tied: the head's rows are the input's own.
        biased: the log of the unigram probability is added, where counts are given.
        needs_counts: the method cannot do without counts.
    """

    tied: ClassVar[bool] = False
    biased: ClassVar[bool] = True
    needs_counts: ClassVar[bool] = False

    @property
    def budget(self) -> tuple[int, int]:
        """Steps of the training of the head, and windows a step."""
        return 0, 0

    def prepare(self, whole: PreTrainedModel) -> None:
        """Choose what of the model with its new head is to be trained."""

    def train(
        self,
        _whole: PreTrainedModel,
        _rows: npt.NDArray[np.integer],
        *,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> list[CurvePoint]:
        """Train the model on windows [n, T] and return the curve; most methods need no training."""
        return []


RECOVERIES: Registry[type[HeadRecovery]] = Registry("head recovery", "headscan.training.recovery")
"""All methods by name; `registry.build("NAME:KEY=VALUE")` makes one."""


def recovery_of(recovery: str | HeadRecovery) -> HeadRecovery:
    """Return the method of a name, with its default parameters, or the method itself."""
    if isinstance(recovery, HeadRecovery):
        return recovery
    return cast(HeadRecovery, RECOVERIES.build(recovery))


def recover_head(
    model: PreTrainedModel,
    recovery: str | HeadRecovery = "bias",
    *,
    counts: Int[Tensor, " vocabulary"] | None = None,
    temperature: float = 1.0,
    copied: bool = True,
) -> PreTrainedModel:
    """Return a causal language model with a head, from a headless body (both of transformers).

    The body is copied, unless `copied` is False and nothing but a head is missing: then it is the
    new model's own.

    recovery: "tied": the input rows as they are. "bias": these and the log of the unigram
    probability, no training. "probe": a head of its own, started at "bias" (where counts are given;
    else at the rows), the body frozen. "finetune": the same start, everything trainable (the
    published one starts at the rows). Both are to be trained. counts: token counts of the training
    text, for "bias". temperature: the one of the contrastive loss: the scores are h . e / T.

    The bias is folded into the head's rows where the body ends in a LayerNorm (see `fold_bias`):
    the model then has no parameter that transformers do not know, and
    `AutoModelForCausalLM.from_pretrained` loads it anywhere. Elsewhere (RMSNorm) `lm_head.bias` is
    a parameter that only a model built here has. Raises BadInput where counts are missing or do not
    fit.
    """
    method = recovery_of(recovery)
    if method.needs_counts and counts is None:
        raise BadInput("The unigram bias needs the token counts of the training text.")
    if not temperature > 0:
        raise BadInput(f"temperature must be above 0, not {temperature}.")
    body = body_of(model)
    config = copy.deepcopy(model.config)
    config.tie_word_embeddings = method.tied
    whole = None if copied or method.tied else _around(body, config)
    if whole is None:
        whole = AutoModelForCausalLM.from_config(config, dtype=body.dtype).to(body.device)
        body_of(whole).load_state_dict(body.state_dict())
    whole.eval()

    if method.tied:
        whole.tie_weights()
        if temperature != 1:
            # Tied rows are the input's too: only the state that meets them can be divided.
            divide_last_norm(body_of(whole), temperature)
        return whole

    table = embedding_table(body).detach()
    head = whole.get_output_embeddings()
    assert head is not None
    assert isinstance(head.weight, Tensor)
    head.weight.data.copy_(table / temperature)
    if counts is not None and method.biased:
        if len(counts) != len(table):
            raise BadInput(
                f"There are counts of {len(counts)} tokens but the model has {len(table)}."
            )
        fold_bias(whole, log_unigram(counts, 0.5))
    method.prepare(whole)
    return whole


def _around(body: PreTrainedModel, config: Any) -> PreTrainedModel | None:
    """Return a causal language model whose body is this very one, with a head of zeros; None where
    more than a head is missing.
    """
    with torch.device("meta"):
        whole: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=body.dtype)
    head = whole.get_output_embeddings()
    prefix = whole.base_model_prefix
    if head is None or type(getattr(whole, prefix, None)) is not type(body):
        return None
    setattr(whole, prefix, body)
    head.to_empty(device=body.device)
    for parameter in head.parameters():
        parameter.data.zero_()
    tensors = [*whole.parameters(), *whole.buffers()]
    if any(tensor.device.type == "meta" for tensor in tensors):
        return None
    return whole


@RECOVERIES.register("bias")
class UnigramBias(HeadRecovery):
    """The input rows and the log of the unigram probability, without training."""

    needs_counts: ClassVar[bool] = True


@RECOVERIES.register("tied")
class Tied(HeadRecovery):
    """The input rows as they are."""

    tied: ClassVar[bool] = True
    biased: ClassVar[bool] = False


def fit_head(
    model: PreTrainedModel,
    rows: npt.NDArray[np.integer],
    *,
    steps: int = 300,
    batch: int = 16,
    rate: float = 1e-4,
    seed: int = 0,
    warmup: float = 0.1,
    progress: Progress | None = None,
) -> list[CurvePoint]:
    """Train what is trainable of a causal model by cross-entropy on windows int [n, T]; return the
    curve.

    AdamW, linear warm-up, then constant, as published. Deterministic in the seed.

    Raises:
        BadInput: for a loss that is not finite.
    """
    report = progress or no_progress
    generator = torch.Generator().manual_seed(seed)
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=rate, weight_decay=0.01)
    windows = torch.from_numpy(rows)
    steps_a_point = max(1, steps // CURVE_POINTS)
    tokens_a_step = batch * rows.shape[1]
    total = 0.0
    curve: list[CurvePoint] = []
    model.train()
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, step / max(1.0, warmup * steps))
        drawn = torch.randint(len(windows), (batch,), generator=generator)
        loss = _next_token_loss(model, windows[drawn].long().to(model.device))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trainable, 1.0)
        optimizer.step()

        value = float(loss.detach())
        total += value
        if not total < float("inf"):
            raise BadInput(
                f"The loss is not finite at step {step}: lower the learning rate (now {rate})."
            )
        stage = f"training the head · loss {value:.3f}"
        report(stage, step * tokens_a_step, steps * tokens_a_step, "tokens")
        if step % steps_a_point == 0:
            curve.append(CurvePoint(step=step, loss=total / steps_a_point))
            total = 0.0
    model.eval()
    return curve


def _next_token_loss(model: PreTrainedModel, ids: Tensor) -> Tensor:
    head = head_of(model)
    states = body_of(model)(ids).last_hidden_state[:, :-1].flatten(0, 1)
    return ce_loss(states, head.rows, ids[:, 1:].flatten(), bias=head.bias)


@RECOVERIES.register("finetune")
class Finetuning(HeadRecovery):
    """The biased rows as a start, then everything trained by cross-entropy (published: from the
    rows, at 1e-4).
    """

    steps: Annotated[int, Option("Steps of the training of a recovered head.", low=0)] = 300
    batch: Annotated[
        int, Option("Windows a step of the training of a recovered head.", low=1, high=2**20)
    ] = 16
    rate: Annotated[
        float, Option("Learning rate of a recovered head; probe: 0.001, finetune: 0.0001.", above=0)
    ] = 1e-4

    @property
    def budget(self) -> tuple[int, int]:
        return self.steps, self.batch

    def train(
        self,
        whole: PreTrainedModel,
        rows: npt.NDArray[np.integer],
        *,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> list[CurvePoint]:
        return fit_head(
            whole,
            rows,
            steps=self.steps,
            batch=self.batch,
            rate=self.rate,
            seed=seed,
            progress=progress,
        )


@RECOVERIES.register("probe")
class FrozenProbe(Finetuning):
    """The biased rows as a start, then trained by cross-entropy, the body frozen."""

    rate: Annotated[
        float, Option("Learning rate of a recovered head; probe: 0.001, finetune: 0.0001.", above=0)
    ] = 1e-3

    def prepare(self, whole: PreTrainedModel) -> None:
        body_of(whole).requires_grad_(False)
