"""Optimisers beside AdamW: Coupled Adam, Muon, and μ-centring of the head."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from headscan.model.traits import embedding_table, output_layer
from headscan.run import BadInput, Option
from headscan.training.learner import Learner
from headscan.training.optimisers import OPTIMISERS, Optimiser, groups_of


@OPTIMISERS.register("coupled-adam")
@dataclass(frozen=True, kw_only=True)
class CoupledAdam(Optimiser):
    """Coupled Adam: the rows of a table share one second moment, their mean; all other parameters
    are moved as by AdamW.

    The gradients of an output table's rows add up to zero, so that gradient descent leaves their
    mean row where it is. Adam divides each row by its own second moment, which grows with the
    token's frequency, and the mean drifts. Rows of tokens that never occur count in the mean.
    Source: Stollenwerk and Stollenwerk 2025 (arXiv:2502.08441), with tied tables.
    """

    coupled: Annotated[
        Literal["head", "input", "both"],
        Option(
            "The table whose rows are coupled. A tied table counts as both; without a head, "
            "outputs are compared with this table."
        ),
    ] = "head"
    coupled_scale: Annotated[float, Option("Factor of the mean second moment.", above=0)] = 1.0

    def make(
        self,
        learner: Learner,
        *,
        rate: float,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        decay: float = 0.0,
    ) -> torch.optim.Optimizer:
        input_table = embedding_table(learner.model)
        output = output_layer(learner.model)
        head_table = input_table if output is None else output.weight
        tables = {"head": [head_table], "input": [input_table], "both": [head_table, input_table]}
        apart = [table for table in tables[self.coupled] if isinstance(table, nn.Parameter)]
        groups = groups_of(learner, rate=rate, decay=decay, apart=apart)
        return CoupledAdamW(groups, lr=rate, betas=betas, eps=epsilon, scale=self.coupled_scale)


class CoupledAdamW(torch.optim.Optimizer):
    """AdamW in which the second moment of a table [V, d] is the mean over its rows, [d].

    This is so in groups with `apart` true. An average over time of means over rows is the mean of
    the averages, so that one row is stored where AdamW stores V.

    >>> table = nn.Parameter(torch.zeros(2, 1))
    >>> table.grad = torch.tensor([[1.0], [7.0]])
    >>> CoupledAdamW([{"params": [table], "apart": True}], lr=0.1).step()
    >>> table.data.flatten()  # Adam would have moved both by 0.1; here by 0.1 g / sqrt(mean g²)
    tensor([-0.0200, -0.1400])
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        scale: float = 1.0,
    ) -> None:
        numbers = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "scale": scale,
        }
        super().__init__(params, numbers | {"apart": False})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move the parameters once."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, group)
        return loss

    def _move(self, parameter: Tensor, group: dict[str, Any]) -> None:
        """Move one parameter by its gradient."""
        beta1, beta2 = group["betas"]
        rate = group["lr"]
        gradient = parameter.grad
        assert gradient is not None
        if gradient.is_sparse:
            gradient = gradient.to_dense()
        square = gradient.square()
        if group["apart"]:
            square = square.mean(0)

        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(square)
        state["step"] += 1
        step = int(state["step"])
        state["exp_avg"].lerp_(gradient, 1 - beta1)
        state["exp_avg_sq"].mul_(beta2).add_(square, alpha=1 - beta2)

        second_moment = state["exp_avg_sq"]
        if group["apart"]:
            second_moment = second_moment * group["scale"]
        size = (second_moment / (1 - beta2**step)).sqrt_().add_(group["eps"])
        parameter.mul_(1 - rate * group["weight_decay"])
        parameter.addcdiv_(state["exp_avg"], size, value=-rate / (1 - beta1**step))


@OPTIMISERS.register("muon")
class Muon(Optimiser):
    """Muon on the matrices of blocks, as torch has it from 2.9 on; AdamW on embeddings, the head
    and vectors.

    A matrix moves by its momentum with all singular values near 1, scaled to the rms of AdamW's
    updates (0.2 √max(n, m)), so that one rate serves both. Sources: Jordan 2024
    (kellerjordan.github.io/posts/muon), arXiv:2502.16982.
    """

    def make(
        self,
        learner: Learner,
        *,
        rate: float,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        decay: float = 0.0,
    ) -> torch.optim.Optimizer:
        if not hasattr(torch.optim, "Muon"):
            raise BadInput(
                f"The optimiser muon needs torch 2.9 or later; this is {torch.__version__}."
            )
        tables = {
            module.weight for module in learner.model.modules() if isinstance(module, nn.Embedding)
        }
        output = output_layer(learner.model)
        if output is not None:
            tables.add(output.weight)
        matrices = [
            parameter
            for parameter in learner.model.parameters()
            if parameter.ndim == 2 and parameter not in tables
        ]
        groups = groups_of(learner, rate=rate, decay=decay, apart=matrices)
        muon_groups = [group for group in groups if group["apart"]]
        adamw_groups = [group for group in groups if not group["apart"]]
        return MuonAndAdamW(
            torch.optim.Muon(muon_groups, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(adamw_groups, betas=betas, eps=epsilon),
        )


class MuonAndAdamW(torch.optim.Optimizer):
    """Two optimizers as one: a schedule sees the groups of both, and a checkpoint holds the state
    of both.
    """

    def __init__(self, muon: torch.optim.Optimizer, adamw: torch.optim.Optimizer) -> None:
        self.parts = muon, adamw
        super().__init__([*muon.param_groups, *adamw.param_groups], {})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move the parameters once."""
        loss = None if closure is None else closure()
        for part, apart in zip(self.parts, (True, False), strict=True):
            # Set anew at each step, because loading a checkpoint makes new groups and a new state.
            part.state = self.state
            part.param_groups = [group for group in self.param_groups if group["apart"] is apart]
            part.step()
        return loss


@torch.no_grad()
def centre_head(model: Any) -> None:
    """Subtract the mean row from the output table of a model, in place.

    The softmax of a plain untied head does not depend on it: all logits of a position move by one
    number. A tied table is the input's too, and under a soft cap the number matters.

    Raises:
        BadInput: for a model without a head.
    """
    output = output_layer(model)
    if output is None:
        raise BadInput(f"{type(model).__name__} has no head whose rows could be centred.")
    output.weight.sub_(output.weight.mean(0))


class CentreHead(TrainerCallback):
    """μ-centring for any `transformers.Trainer`: `Trainer(..., callbacks=[CentreHead()])`.

    Source: "Output embedding centering", arXiv:2601.02031.
    """

    def on_optimizer_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **_: Any,
    ) -> None:
        inner: Any = getattr(model, "module", model)  # DDP
        if type(inner).__name__ == "Learner":
            inner = getattr(inner, "model", inner)
        centre_head(inner)
