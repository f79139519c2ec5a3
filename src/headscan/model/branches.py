"""The branches of a block: the terms that it adds to the residual stream, found by arithmetic.

The rule. A block carries a residual stream and adds branches to it. A *branch* is the term that is
added: it is taken before the addition, after any norm that belongs to the branch alone (Gemma 2's
post-attention norm) and before any norm that acts on the sum (BERT's post-norm). So in a plain
pre-norm block, sequential or parallel,

    block output = block input + attention + mlp [+ cross_attention].

In a block of BERT's kind it is: output = norm(norm(input + attention) + mlp).

How it is found. The trace of one forward pass has all tensors that the block's modules got or
returned. Those that satisfy `older + term = sum` exactly, in the model's own arithmetic, are looked
for from the block's output backwards to its input; norms that act on the sum are stepped through.
This needs no class names, and holds for BLOOM (the residual is added inside the attention and MLP
modules), OPT (two linear layers without a module around them), Falcon (branches are summed in
place) and mixtures of experts. Names serve only to name the kind of a branch:

    attention         the model calls it attention, and it has no recurrent state
    cross_attention   attention to another stack's states
    mlp               feed-forward, dense or mixture of experts
    mixer             whatever else mixes tokens: state spaces (Mamba), recurrences (RWKV),
                      convolutions

The trace has noise in place of every layer's output (`headscan.model.trace`), so that the result
depends on the wiring and not on the weights: trained models have dead branches, whose terms are
lost in rounding.
"""

import inspect
import itertools
import re
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headscan.model.trace import Call

CROSS_ATTENTION = re.compile(r"cross|encdec|encoder_attn|enc_attn")
ATTENTION = re.compile(r"att")
MLP = re.compile(r"mlp|ff|feed|fc\d|dense|moe|expert|output|intermediate")
NORM = re.compile(r"norm|\bln|_ln|ln_")
STATE_ARGUMENTS = {"state", "cache_params", "conv_state", "ssm_state"}
"""Arguments of a recurrence's forward pass."""

PROJECTED_COLUMNS = 128
"""Columns that the cheap test of a sum looks at."""


class Branch(NamedTuple):
    """One term of a block's sum: its kind and the call whose output it is."""

    kind: str
    call: Call


@dataclass(frozen=True)
class BranchesOfBlock:
    """The branches of one block.

    Attributes:
        branches: in the order of their calls.
        plain: whether the block's output is its input plus the branches, and nothing else.
        steps: what becomes of the input, in order: a branch is added, or a norm (its call) acts on
            the sum; None where a step is not known.
    """

    branches: list[Branch]
    plain: bool
    steps: list[Branch | Call] | None


def find_branches(block: Call, calls: list[Call]) -> BranchesOfBlock:
    """Return the branches of one traced block, of which `calls` are all calls of the trace."""
    if not block.inputs or block.output is None or block.output.shape != block.inputs[0].shape:
        return BranchesOfBlock([], False, None)
    tensors = _BlockTensors(block, [call for call in calls if call.within(block)])
    branches: list[Branch] = []
    steps: list[Branch | Call] = []
    target = tensors.add(block.output, block.end, None)
    while target != 0:  # 0 is the block's input
        addition = _as_sum(tensors, target)
        norm = None if addition is not None else _as_norm(tensors, target)
        if addition is not None:
            target = addition.older
            for term in addition.terms:
                makers = tensors.makers[term]
                branch = Branch(_kind(makers, block), _carrier(makers, calls))
                branches.append(branch)
                steps.append(branch)
        elif norm is not None:
            target = norm.input
            steps.append(norm.call)
        else:
            break
    branches.sort(key=lambda branch: branch.call.end)
    complete = target == 0 and bool(branches)
    return BranchesOfBlock(
        branches,
        plain=complete and len(steps) == len(branches),
        steps=steps[::-1] if complete else None,
    )


class _BlockTensors:
    """The distinct tensors of a block, by index; 0 is the block's input.

    Attributes:
        born: the time at which each first appeared.
        makers: the calls that returned it.
    """

    def __init__(self, block: Call, inner_calls: list[Call]) -> None:
        self.tensors: list[Tensor] = []
        self.born: list[int] = []
        self.makers: list[list[Call]] = []
        self._projections: list[float] = []
        self._scales: list[float] = []
        # A random linear functional: sums of tensors can be ruled out by sums of numbers, so few
        # need to be compared.
        block_input = block.inputs[0]
        rows, width = block_input.shape
        self._functional = torch.randn(
            rows,
            min(width, PROJECTED_COLUMNS),
            generator=torch.Generator().manual_seed(0),
            dtype=torch.float64,
        )
        self._functional_size = float(self._functional.abs().sum())
        appearances: list[tuple[int, Tensor, Call | None]] = [(block.begin, block_input, None)]
        for call in inner_calls:
            appearances += [(call.begin, tensor, None) for tensor in call.inputs]
            if call.output is not None:
                appearances.append((call.end, call.output, call))
        for time, tensor, maker in sorted(appearances, key=lambda appearance: appearance[0]):
            if tensor.shape == block_input.shape:
                self.add(tensor, time, maker)

    def add(self, tensor: Tensor, time: int, maker: Call | None) -> int:
        """Return the index of a tensor, which is added unless an equal one is there."""
        columns = tensor[:, :PROJECTED_COLUMNS].to("cpu", torch.float64)
        projection = float((columns * self._functional).sum())
        index = self._index(tensor, projection)
        if index is None:
            index = len(self.tensors)
            self.tensors.append(tensor)
            self.born.append(time)
            self.makers.append([])
            self._projections.append(projection)
            self._scales.append(float(columns.abs().max()))
        if maker is not None:
            self.makers[index].append(maker)
        return index

    def _index(self, tensor: Tensor, projection: float) -> int | None:
        for index, known in enumerate(self.tensors):
            if self._projections[index] != projection:
                continue
            if torch.equal(known.to(tensor.device, tensor.dtype), tensor):
                return index
        return None

    def is_sum(self, total: int, terms: tuple[int, ...], exact: bool) -> bool:
        """Return whether a tensor is the sum of others, exactly or up to rounding."""
        if not self._may_be_sum(total, terms):
            return False
        goal = self.tensors[total]
        values = [self.tensors[index].to(goal.device, goal.dtype) for index in terms]
        if exact:
            own_precision = [self.tensors[index].to(goal.device) for index in terms]
            sums = [*_sums_in_any_order(values), *_sums_in_any_order(own_precision)]
            return any(torch.equal(result.to(goal.dtype), goal) for result in sums)
        sizes = torch.stack([value.abs() for value in values]).sum(0)
        bound = 8 * torch.finfo(goal.dtype).eps * sizes.max()
        # A term too small to tell from rounding would fit any sum.
        visible = all(value.abs().max() > 100 * bound for value in values)
        return visible and bool((sum(values) - goal).abs().max() <= bound)

    def _may_be_sum(self, total: int, terms: tuple[int, ...]) -> bool:
        """Return False where the projections show that a tensor is not the sum; they are cheap."""
        epsilon = torch.finfo(self.tensors[total].dtype).eps
        scale = max(self._scales[index] for index in (total, *terms))
        slack = 8 * epsilon * scale * self._functional_size
        difference = self._projections[total] - sum(self._projections[index] for index in terms)
        return not abs(difference) > slack  # a sum that is not a number rules nothing out


def _sums_in_any_order(terms: list[Tensor]) -> list[Tensor]:
    """Return the sums of two or three tensors, in every order in which a model may add them."""
    if len(terms) == 2:
        return [terms[0] + terms[1]]
    a, b, c = terms
    return [(a + b) + c, (a + c) + b, (b + c) + a]


class _Addition(NamedTuple):
    """The indices of the tensors of a sum: what was there before, and the terms that were added."""

    older: int
    terms: tuple[int, ...]


class _NormOf(NamedTuple):
    """The index of the input of a norm, and the norm's call."""

    input: int
    call: Call


def _as_sum(tensors: _BlockTensors, total: int) -> _Addition | None:
    """Return a tensor as older + term or older + term + term; None where it is no such sum.

    Every term is what some module returned. The latest possible `older` is preferred: a sequential
    block's middle rather than its beginning.
    """
    candidates = [
        index
        for index, born in enumerate(tensors.born)
        if index != total and born <= tensors.born[total]
    ]
    returned = [index for index in candidates if tensors.makers[index] and index != 0]
    precise = tensors.tensors[total].dtype in (torch.float32, torch.float64)
    for exact in (True, False) if precise else (True,):
        for count in (1, 2):
            for older in reversed(candidates):
                for terms in itertools.combinations(returned, count):
                    is_later = tensors.born[older] < min(tensors.born[term] for term in terms)
                    if is_later and tensors.is_sum(total, (older, *terms), exact):
                        return _Addition(older, terms)
    return None


def _as_norm(tensors: _BlockTensors, total: int) -> _NormOf | None:
    """Return the norm that returned a tensor, and its input; None where no norm did."""
    for call in tensors.makers[total]:
        if not NORM.search(call.name) or not call.inputs:
            continue
        for index, tensor in enumerate(tensors.tensors):
            if index != total and torch.equal(tensor, call.inputs[0]):
                return _NormOf(index, call)
    return None


def _carrier(makers: list[Call], calls: list[Call]) -> Call:
    """Return the last call that returned a term, of a module that runs once where there is one.

    So the branch is read after its dropout, if that is a module.
    """

    def runs(module: nn.Module) -> int:
        return sum(call.module is module for call in calls)

    running_once = [maker for maker in makers if runs(maker.module) == 1]
    return max(running_once or makers, key=lambda call: call.end)


def _kind(makers: list[Call], block: Call) -> str:
    """Return the kind of a branch, by the names of the modules that made it.

    Names inside the block come first; the classes of the modules around decide where those say
    nothing.
    """
    outer_modules = [module for call in makers for module in _modules_around(call, block)]
    start = len(block.path) + 1
    names = [f"{call.path[start:]} {type(call.module).__name__}" for call in makers]
    outer_names = [type(module).__name__ for module in outer_modules]
    for text in (" ".join(names).lower(), " ".join(outer_names).lower()):
        if ATTENTION.search(text):
            modules = [*outer_modules, *(call.module for call in makers)]
            if any(_is_recurrent(module) for module in modules):
                return "mixer"
            return "cross_attention" if CROSS_ATTENTION.search(text) else "attention"
        if MLP.search(text):
            return "mlp"
    return "mixer"


def _is_recurrent(module: nn.Module) -> bool:
    return bool(STATE_ARGUMENTS & set(inspect.signature(module.forward).parameters))


def _modules_around(call: Call, block: Call) -> list[nn.Module]:
    """Return the modules between a block and a call inside it, outermost first."""
    modules = []
    module = block.module
    path_inside = call.path[len(block.path) + 1 :]
    for name in path_inside.split(".")[:-1]:
        module = getattr(module, name)
        modules.append(module)
    return modules
