"""Sites of a model: their names, the globs that choose among them, where they are read, and the
trace they are found in.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

import torch
from torch import Tensor, nn

from headscan.model.inputs import SENTENCE
from headscan.run import BadInput, names_in

STACKS = ("encoder", "decoder")
KINDS = ("attention", "cross_attention", "mlp", "mixer")


def match_sites(globs: str | Iterable[str], sites: Sequence[str], owner: str) -> tuple[str, ...]:
    """Those of `sites` that one of the globs matches, in the order of `sites`.

    A glob is matched part by part, as a path is: `*`, `?` and `[...]` stay within one part of the
    dotted name, `**` stands for any number of parts. So `block.*` is every block and no branch of
    one, `block.*.mlp` every MLP, `block.3.**` block 3 with its branches; `*` alone means every
    site. A glob without the prefix `encoder.` or `decoder.` counts for both stacks. Several globs
    may be given as a list or separated by commas.

    Raises BadInput: a glob matches nothing; the message lists the sites there are.

    >>> match_sites("block.*, head", ["embedding", "block.0.mlp", "block.0", "block.1", "head"], "a model")
    ('block.0', 'block.1', 'head')
    """
    if not (wanted := names_in(globs)):
        raise BadInput(f"No site was asked for; {owner} has: {_listed(sites)}.")
    chosen: set[str] = set()
    for glob in wanted:
        matches = {site for site in sites if _matches(glob, site)}
        if not matches:
            raise BadInput(f"No site of {owner} matches '{glob}'; it has: {_listed(sites)}.")
        chosen |= matches
    return tuple(site for site in sites if site in chosen)


def is_block(site: str) -> bool:
    """Whether a site is the output of a whole block.

    >>> is_block("block.3"), is_block("decoder.block.0"), is_block("block.3.mlp"), is_block("final_norm")
    (True, True, False, False)
    """
    return site.rsplit(".", 1)[-1].isdigit()


def last_block(sites: Sequence[str]) -> str:
    """The site that speaks for a model: of these, in their order, the last whole block, or else the
    last that is of tokens.
    """
    whole = [site for site in sites if ".block." in f".{site}" and is_block(site)]
    return (whole or [site for site in sites if site != SENTENCE] or sites)[-1]


def possible_sites(blocks: int) -> tuple[str, ...]:
    """The names of all sites that a model of so many blocks can have, whatever its family; it will
    have some of them.

    >>> match_sites("block.12", possible_sites(12), "gpt2")[0]
    Traceback (most recent call last):
    headscan.BadInput: No site of gpt2 matches 'block.12'; it has: ...
    """
    branches = ("", *(f".{kind}" for kind in KINDS))
    tower = (
        "embedding",
        *(f"block.{number}{kind}" for number in range(blocks) for kind in branches),
        "final_norm",
    )
    return (*tower, *(f"{stack}.{site}" for stack in STACKS for site in tower), "head", "sentence")


def _matches(glob: str, site: str) -> bool:
    if glob == "*":
        return True
    pattern = glob.split(".")
    name = site.split(".")
    bare = name[1:] if name[0] in STACKS else name
    return _parts_match(pattern, name) or _parts_match(pattern, bare)


def _parts_match(pattern: list[str], name: list[str]) -> bool:
    if not pattern:
        return not name
    if pattern[0] == "**":
        return any(_parts_match(pattern[1:], name[skip:]) for skip in range(len(name) + 1))
    return bool(name) and fnmatchcase(name[0], pattern[0]) and _parts_match(pattern[1:], name[1:])


def _listed(sites: Sequence[str]) -> str:
    """All sites in few words: a run of numbered blocks is written `block.0 ... block.11`, branches
    after blocks.
    """
    groups: dict[str, list[str]] = {}
    for site in sites:
        groups.setdefault(
            ".".join("#" if part.isdigit() else part for part in site.split(".")), []
        ).append(site)
    first: dict[str, int] = {}
    for place, key in enumerate(groups):
        first.setdefault(key.partition("#")[0], place)
    ordered = sorted(groups, key=lambda key: (first[key.partition("#")[0]], key.count(".")))
    runs = [groups[key] for key in ordered]
    return ", ".join(", ".join(run) if len(run) < 4 else f"{run[0]} ... {run[-1]}" for run in runs)


# ---- Where a site is read: one module, at its input or its output.


@dataclass(frozen=True, eq=False, repr=False)
class Tap:
    """One site of a model, and the place where it is read: the input or the output of one call of
    one module.
    """

    site: str
    module: nn.Module
    path: str  # the module's name inside the model, such as `transformer.h.3.mlp`
    where: Literal["input", "output"]
    width: int  # the size of the last dimension
    clock: nn.Module  # the module whose start begins a new count of calls: the stack's own module
    # The module runs `calls` times in one forward pass and the site is call number `call`: 0 of 1,
    # except where layers share their weights, as in ALBERT.
    call: int = 0
    calls: int = 1
    # Set where the module sees [B*T, width] (OPT's MLP): the block whose input has B and T, which
    # the site is given with.
    shape_from: nn.Module | None = None
    # The model goes on to change this tensor in place (Falcon adds into its MLP's output): it is
    # copied to be kept.
    overwritten: bool = False

    @property
    def place(self) -> str:
        again = f", call {self.call + 1} of {self.calls}" if self.calls > 1 else ""
        return f"{self.where} of {self.path or 'the model'}{again}"

    def __repr__(self) -> str:
        return f"Tap({self.site}: {self.place}, width {self.width})"


def first_tensor(value: Any) -> Tensor | None:
    """The tensor that matters in what a module returns: itself, the logits, or the first of a
    tuple.
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Mapping):
        named = (value.get(key) for key in ("logits", "prediction_logits", "last_hidden_state"))
        return next((tensor for tensor in named if isinstance(tensor, Tensor)), None)
    if isinstance(value, (tuple, list)) and value and isinstance(value[0], Tensor):
        return value[0]
    return None


def input_tensor(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor | None:
    """The hidden states among a module's arguments: the first floating tensor, positional arguments
    first.
    """
    values = (*args, *kwargs.values())
    return next(
        (value for value in values if isinstance(value, Tensor) and torch.is_floating_point(value)),
        None,
    )


# ---- One tiny forward pass that records every module call: what the structure is read from.
#
# In that pass the output of every layer that holds weights itself (a linear map, a norm, an
# embedding) is replaced by noise of size one, so that only the wiring between the layers shows.
# With the model's own weights it would not always show: terms of decayed weights (1e-7 in one real
# model) are lost in rounding, in bfloat16 more of them.


@dataclass(eq=False, repr=False)
class Call:
    """One call of one module: when it began and ended (in steps of the trace), copies of what it
    saw and returned.

    `inputs` and `output` are flattened to [B*T, width]; tensors of any other number of rows are
    left out.
    """

    path: str
    module: nn.Module
    begin: int
    end: int = -1
    inputs: list[Tensor] = field(default_factory=list)
    output: Tensor | None = None
    flat: bool = False

    @property
    def name(self) -> str:
        return f"{self.path} {type(self.module).__name__}".lower()

    def within(self, other: "Call") -> bool:
        return other.begin < self.begin and self.end < other.end


@dataclass(eq=False, repr=False)
class Trace:
    """All calls of one forward pass in the order in which they began, and the model's own output."""

    calls: list[Call]
    result: Any
    shape: tuple[int, int]


def trace_calls(model: nn.Module, inputs: dict[str, Any], shape: tuple[int, int]) -> Trace:
    """Run the model once on `inputs`, a batch of `shape` [B, T], with noise in place of every
    layer's output.
    """
    noise = torch.Generator().manual_seed(0)
    calls: list[Call] = []
    open_calls: list[Call] = []
    clock = itertools.count(1)
    rows = shape[0] * shape[1]

    def rows_of(value: Any) -> Tensor | None:
        if (
            not isinstance(value, Tensor)
            or not torch.is_floating_point(value)
            or value.ndim not in (2, 3)
        ):
            return None
        if value.ndim == 3 and tuple(value.shape[:2]) == shape:
            return value.detach().reshape(rows, -1).clone()
        if value.ndim == 2 and value.shape[0] == rows:
            return value.detach().clone()
        return None

    def before(path: str) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            call = Call(path, module, next(clock))
            call.inputs = [
                x for value in (*args, *kwargs.values()) if (x := rows_of(value)) is not None
            ]
            calls.append(call)
            open_calls.append(call)

        return hook

    def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        call = open_calls.pop()
        call.end = next(clock)
        is_layer = (
            next(module.children(), None) is None and next(module.parameters(), None) is not None
        )
        if is_layer and isinstance(output, Tensor) and torch.is_floating_point(output):
            output = torch.randn(output.shape, generator=noise).to(output.device, output.dtype)
        tensor = first_tensor(output)
        call.output = rows_of(tensor)
        call.flat = tensor is not None and tensor.ndim == 2
        return output

    with torch.no_grad(), ExitStack() as hooks:
        for path, module in model.named_modules():
            hooks.callback(module.register_forward_pre_hook(before(path), with_kwargs=True).remove)
            hooks.callback(module.register_forward_hook(after).remove)
        result = model(**inputs)
    return Trace(calls, result, shape)
