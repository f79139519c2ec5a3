"""What moves the weights in another way than AdamW: Coupled Adam, Muon, and μ-centring of the head."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import nn
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

    The gradients of an output table's rows add up to zero, so under gradient descent their mean row
    stands still; Adam divides each by its own second moment, which grows with the token's
    frequency, and the mean drifts. Rows of tokens that never occur count in the mean. Source:
    Stollenwerk and Stollenwerk 2025 (arXiv:2502.08441), with tied tables.
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
        output = output_layer(learner.model)
        head = embedding_table(learner.model) if output is None else output.weight
        tables = {"head": [head], "input": [embedding_table(learner.model)]}
        tables["both"] = tables["head"] + tables["input"]
        apart = [table for table in tables[self.coupled] if isinstance(table, nn.Parameter)]
        groups = groups_of(learner, rate=rate, decay=decay, apart=apart)
        return CoupledAdamW(groups, lr=rate, betas=betas, eps=epsilon, scale=self.coupled_scale)


class CoupledAdamW(torch.optim.Optimizer):
    """AdamW; in groups with `apart` true the second moment of a table [V, d] is the mean over its
    rows, [d].

    An average over time of means over rows is the mean of the averages: V d numbers less are kept
    than AdamW keeps.

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
            (fast, slow), rate = group["betas"], group["lr"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                slope = parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
                energy = slope.square().mean(0) if group["apart"] else slope.square()
                if not (state := self.state[parameter]):
                    state["step"] = torch.zeros(())
                    state["exp_avg"], state["exp_avg_sq"] = (
                        torch.zeros_like(parameter),
                        torch.zeros_like(energy),
                    )
                state["step"] += 1
                step = int(state["step"])
                state["exp_avg"].lerp_(slope, 1 - fast)
                state["exp_avg_sq"].mul_(slow).add_(energy, alpha=1 - slow)
                second = (
                    state["exp_avg_sq"] * group["scale"] if group["apart"] else state["exp_avg_sq"]
                )
                size = (second / (1 - slow**step)).sqrt_().add_(group["eps"])
                parameter.mul_(1 - rate * group["weight_decay"])
                parameter.addcdiv_(state["exp_avg"], size, value=-rate / (1 - fast**step))
        return loss


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
        output = output_layer(learner.model)
        tables = {
            module.weight for module in learner.model.modules() if isinstance(module, nn.Embedding)
        }
        tables |= set() if output is None else {output.weight}
        matrices = [
            one for one in learner.model.parameters() if one.ndim == 2 and one not in tables
        ]
        groups = groups_of(learner, rate=rate, decay=decay, apart=matrices)
        muon, adamw = (
            [group for group in groups if group["apart"] is apart] for apart in (True, False)
        )
        return MuonAndAdamW(
            torch.optim.Muon(muon, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(adamw, betas=betas, eps=epsilon),
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
            # Given anew at each step, because loading a checkpoint makes new groups and a new
            # state.
            part.state = self.state
            part.param_groups = [group for group in self.param_groups if group["apart"] is apart]
            part.step()
        return loss


@torch.no_grad()
def centre_head(model: Any) -> None:
    """Subtract the mean row from the output table of a model, in place; BadInput where it has no
    head.

    The softmax of a plain untied head does not see it: all logits of a position move by one number.
    A tied table is the input's too, and under a soft cap the number is seen.
    """
    if (output := output_layer(model)) is None:
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
        centre_head(getattr(inner, "model", inner) if type(inner).__name__ == "Learner" else inner)
