"""The branches of a block: what each adds to the residual stream, found by arithmetic on one traced
forward pass.

The rule. A block carries a residual stream and adds branches to it. A *branch* is the term that is
added: it is taken before the addition, after any norm that belongs to the branch alone (Gemma 2's
post-attention norm) and before any norm that acts on the sum (BERT's post-norm). So in a plain
pre-norm block, sequential or parallel,

    block output = block input + attention + mlp [+ cross_attention].

In a block of BERT's kind it is: output = norm(norm(input + attention) + mlp).

How it is found. Of the tensors that the block's modules were given or returned in the traced pass,
those that satisfy `older + term = sum` exactly, in the model's own arithmetic, are looked for from
the block's output backwards to its input; norms that act on the sum are stepped through. This needs
no class names, and holds for BLOOM (the residual is added inside the attention and MLP modules),
OPT (two linear layers without a module around them), Falcon (branches are summed in place) and
mixtures of experts. Names serve only to name the kind of a branch:

    attention         the model calls it attention, and it has no recurrent state
    cross_attention   attention to another stack's states
    mlp               feed-forward, dense or mixture of experts
    mixer             whatever else mixes tokens: state spaces (Mamba), recurrences (RWKV),
    convolutions

The traced pass has noise in place of every layer's output (`headscan.model.sites`), so that the
result depends on the wiring and not on the weights: trained models have dead branches, whose terms
are lost in rounding.
"""

import copy
import inspect
import itertools
import re
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headscan.model.sites import Call

CROSS = re.compile(r"cross|encdec|encoder_attn|enc_attn")
ATTENTION = re.compile(r"att")
MLP = re.compile(r"mlp|ff|feed|fc\d|dense|moe|expert|output|intermediate")
# Columns that the cheap test of a sum looks at.
MARKED = 128
STATE = {"state", "cache_params", "conv_state", "ssm_state"}


class Branch(NamedTuple):
    """One term of a block's sum: its kind and the call whose output it is."""

    kind: str
    call: Call


class _Values:
    """The distinct tensors of a block, each with the time at which it first appeared and the calls
    that returned it.
    """

    def __init__(self, block: Call, inner: list[Call]) -> None:
        self.tensors: list[Tensor] = []
        self.born: list[int] = []
        self.makers: list[list[Call]] = []
        self.marks: list[float] = []
        self.scales: list[float] = []
        # A random linear functional: sums of tensors can be ruled out by sums of numbers, so few
        # need to be compared.
        rows = block.inputs[0].shape[0]
        width = min(block.inputs[0].shape[1], MARKED)
        self._weights = torch.randn(
            rows, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64
        )
        events: list[tuple[int, Tensor, Call | None]] = [(block.begin, block.inputs[0], None)]
        for call in inner:
            events += [(call.begin, tensor, None) for tensor in call.inputs]
            if call.output is not None:
                events.append((call.end, call.output, call))
        for time, tensor, maker in sorted(events, key=lambda event: event[0]):
            if tensor.shape == block.inputs[0].shape:
                self.add(tensor, time, maker)

    def add(self, tensor: Tensor, time: int, maker: Call | None) -> int:
        values = tensor[:, :MARKED].to("cpu", torch.float64)
        mark = float((values * self._weights).sum())
        scale = float(values.abs().max())
        for index, other in enumerate(self.tensors):
            if self.marks[index] == mark and torch.equal(
                other.to(tensor.device, tensor.dtype), tensor
            ):
                break
        else:
            index = len(self.tensors)
            self.tensors.append(tensor)
            self.born.append(time)
            self.makers.append([])
            self.marks.append(mark)
            self.scales.append(scale)
        if maker is not None:
            self.makers[index].append(maker)
        return index

    def is_sum(self, total: int, terms: tuple[int, ...], exact: bool) -> bool:
        goal = self.tensors[total]
        # The marks first: they are cheap, and never wrong when they say no.
        scale = max(self.scales[index] for index in (total, *terms))
        slack = 8 * torch.finfo(goal.dtype).eps * scale * float(self._weights.abs().sum())
        if abs(self.marks[total] - sum(self.marks[index] for index in terms)) > slack:
            return False
        values = [self.tensors[index].to(goal.device, goal.dtype) for index in terms]
        if exact:
            native = [self.tensors[index].to(goal.device) for index in terms]
            return any(
                torch.equal(x.to(goal.dtype), goal)
                for group in (values, native)
                for x in _additions(group)
            )
        bound = (
            8
            * torch.finfo(goal.dtype).eps
            * torch.stack([value.abs() for value in values]).sum(0).max()
        )
        # A term too small to tell from rounding would fit any sum.
        visible = all(value.abs().max() > 100 * bound for value in values)
        return visible and bool((sum(values) - goal).abs().max() <= bound)


def _additions(terms: list[Tensor]) -> list[Tensor]:
    if len(terms) == 2:
        return [terms[0] + terms[1]]
    a, b, c = terms
    return [(a + b) + c, (a + c) + b, (b + c) + a]


def find_branches(
    block: Call, calls: list[Call]
) -> tuple[list[Branch], bool, list[Branch | Call] | None]:
    """The branches of one traced block in the order of their calls; whether block output = block
    input + their sum; and what becomes of the input, in order: a branch is added, or a norm (its
    call) acts on the sum. None where a step is not known.
    """
    inner = [call for call in calls if call.within(block)]
    if not block.inputs or block.output is None or block.output.shape != block.inputs[0].shape:
        return [], False, None
    values = _Values(block, inner)
    target = values.add(block.output, block.end, None)
    branches: list[Branch] = []
    steps: list[Branch | Call] = []
    while target != 0:
        if total := _as_sum(values, target):
            target, terms = total
            makers = [values.makers[term] for term in terms]
            added = [Branch(_kind(made, block), _carrier(made, calls)) for made in makers]
            branches += added
            steps += added
        elif norm := _as_norm(values, target):
            target, call = norm
            steps.append(call)
        else:
            break
    branches.sort(key=lambda branch: branch.call.end)
    whole = target == 0 and bool(branches)
    return branches, whole and len(steps) == len(branches), steps[::-1] if whole else None


def _as_sum(values: _Values, total: int) -> tuple[int, tuple[int, ...]] | None:
    """`total` as older + term or older + term + term, where every term is what some module
    returned.
    """
    indices = [
        i for i in range(len(values.tensors)) if i != total and values.born[i] <= values.born[total]
    ]
    terms = [i for i in indices if values.makers[i] and i != 0]
    # The latest possible `older` comes first: a sequential block's middle is preferred to its
    # beginning.
    for exact in (True, False):
        if not exact and values.tensors[total].dtype not in (torch.float32, torch.float64):
            continue
        for count in (1, 2):
            for older in reversed(indices):
                for added in itertools.combinations(terms, count):
                    newer = values.born[older] < min(values.born[term] for term in added)
                    if newer and values.is_sum(total, (older, *added), exact):
                        return older, added
    return None


def _as_norm(values: _Values, total: int) -> tuple[int, Call] | None:
    """The input of the norm that returned `total`, and its call, if a norm did."""
    for call in values.makers[total]:
        if "norm" in call.name or re.search(r"\bln|_ln|ln_", call.name):
            for index, tensor in enumerate(values.tensors):
                if call.inputs and index != total and torch.equal(tensor, call.inputs[0]):
                    return index, call
    return None


def _carrier(makers: list[Call], calls: list[Call]) -> Call:
    """Of the calls that returned a term, the last of a module that runs once: after its dropout, if
    that is a module.
    """
    once = [call for call in makers if sum(other.module is call.module for other in calls) == 1]
    return max(once or makers, key=lambda call: call.end)


def _kind(makers: list[Call], block: Call) -> str:
    """What to call a branch, by the names of its modules inside the block, innermost evidence last."""
    skip = len(block.path) + 1
    owners = [owner for call in makers for owner in _owners(call, block)]
    names = " ".join(f"{call.path[skip:]} {type(call.module).__name__}" for call in makers).lower()
    for text in (names, " ".join(type(owner).__name__ for owner in owners).lower()):
        if ATTENTION.search(text):
            modules = [*owners, *(call.module for call in makers)]
            if any(STATE & set(inspect.signature(module.forward).parameters) for module in modules):
                return "mixer"
            return "cross_attention" if CROSS.search(text) else "attention"
        if MLP.search(text):
            return "mlp"
    return "mixer"


def _owners(call: Call, block: Call) -> list[torch.nn.Module]:
    owners = []
    module = block.module
    for part in call.path[len(block.path) + 1 :].split(".")[:-1]:
        module = getattr(module, part)
        owners.append(module)
    return owners


# relative difference up to which two answers of a norm count as the same law: some compute in
# float32
ALIKE = 1e-5


def near(states: Tensor) -> int:
    """How many vectors to take at a time: on a CPU intermediate results of 512 stay in its cache."""
    return 512 if states.device.type == "cpu" else 2**16


@dataclass(frozen=True, eq=False)
class Norm:
    """A norm, read from its module by trying it: y = s·γ⊙(x − mean x) + β (`centred`), or without
    the mean.

    s is one number a token; with s held fixed a norm is linear. `gain` [d] is γ up to a positive
    factor, `bias` [d] is β, both in float64.

    >>> layer = nn.LayerNorm(3, eps=0.0)
    >>> layer.bias.data[:] = 7.0
    >>> norm = Norm.of(layer, 3)
    >>> norm.centred, norm.bias.tolist(), norm.linear(torch.tensor([1.0, 2.0, 3.0])).sign().tolist()
    (True, [7.0, 7.0, 7.0], [-1.0, 0.0, 1.0])
    """

    module: nn.Module
    gain: Float[Tensor, " d"]
    bias: Float[Tensor, " d"]
    centred: bool

    @classmethod
    def of(cls, module: nn.Module, width: int) -> Self | None:
        """The law of a module that takes states of this width; None where it is neither of the two."""
        own = copy.deepcopy(module).double()
        device = next((tensor.device for tensor in own.parameters()), torch.device("cpu"))
        generator = torch.Generator().manual_seed(0)
        # Entries of size 1 to 2, so that nothing is divided by what is nearly zero.
        signs = torch.where(torch.rand(2, width, generator=generator) < 0.5, -1.0, 1.0).double()
        x = (signs * (1 + torch.rand(2, width, generator=generator, dtype=torch.float64))).to(
            device
        )
        try:
            with torch.no_grad():
                plus = own.forward(x[None])[0].double()
                minus = own.forward(-x[None])[0].double()
        except (TypeError, ValueError, RuntimeError, IndexError):
            return None
        bias = (plus + minus) / 2
        odd = (plus - minus) / 2
        if not bool(torch.isfinite(odd).all()):
            return None
        for centred in (True, False):
            base = x - x.mean(-1, keepdim=True) if centred else x
            gain = odd[0] / base[0]
            other = gain * base[1]
            factor = (odd[1] @ other) / (other @ other).clamp_min(1e-300)
            if bool(
                torch.linalg.vector_norm(odd[1] - factor * other)
                <= ALIKE * torch.linalg.vector_norm(odd[1])
            ):
                return cls(module, gain.cpu(), bias.mean(0).cpu(), centred)
        return None

    def linear(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        x, gain = x.double(), self.gain.to(x.device)
        return (x - x.mean(-1, keepdim=True)).mul_(gain) if self.centred else gain * x

    def factors(self, x: Float[Tensor, "... d"], y: Float[Tensor, "... d"]) -> Float[Tensor, "..."]:
        """s of each token, by least squares from what went in and what came out."""
        bias, width = self.bias.to(y.device), len(self.bias)
        factors = []
        size = near(x)
        for before, after in zip(
            x.reshape(-1, width).split(size), y.reshape(-1, width).split(size), strict=True
        ):
            linear = self.linear(before)
            products = after.double() - bias
            products *= linear
            squares = linear.square_().sum(-1)
            factors.append(torch.where(squares > 0, products.sum(-1) / squares, 0.0))
        return torch.cat(factors).reshape(x.shape[:-1])
