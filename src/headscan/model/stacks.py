"""The stacks of blocks of a model and the taps of their sites, found by what one forward pass does.

One traced pass shows the wiring (`headscan.model.trace`), from which blocks, branches and norms are
read. A second pass, with the model's own weights, checks that every site is read once.
"""

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from headscan.model.branches import Branch, BranchesOfBlock, find_branches
from headscan.model.inputs import probe_inputs
from headscan.model.recording import Recorder, evaluating, restored
from headscan.model.sites import Tap, first_tensor
from headscan.model.trace import Call, Trace, trace_calls
from headscan.run import BadInput, exhausted

DEPTHS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers")
DEPTHS_OF_STACK = {
    "encoder.": ("encoder_layers", *DEPTHS),
    "decoder.": ("decoder_layers", "num_decoder_layers", *DEPTHS),
    "": DEPTHS,
}
"""The fields of a configuration that may name the number of blocks, by the prefix of the stack."""

FAULTS_OF_A_TRIAL = (
    TypeError,
    ValueError,
    RuntimeError,
    LookupError,
    AttributeError,
    AssertionError,
)
"""What a model raises that cannot be run on token ids alone."""

SHORTEST_TRIAL = 7
TRIAL_SHAPES = ((2, SHORTEST_TRIAL), (2, 64), (1, 512), (1, 1024))
"""Windows and tokens of the trials, one of which shows the structure of a model."""

Step = str | nn.Module
"""What becomes of a block's input: the site of a branch that is added, or the norm of the sum."""


@dataclass(eq=False, repr=False)
class Stack:
    """One stack of blocks: the whole of a GPT or a BERT, half of a T5.

    Attributes:
        prefix: "", or in encoder-decoders "encoder." and "decoder.".
        module: the module whose forward pass runs the blocks.
        blocks: in the order in which they run; the same one several times where weights are shared.
        taps: by site, in the order of depth.
        plain: for each block, whether its output is its input plus its branches, nothing else.
        notes: sentences that a reader of its numbers needs.
        steps: for each block, what becomes of its input, in order; None where that is not known.
    """

    prefix: str
    module: nn.Module
    blocks: tuple[nn.Module, ...]
    taps: dict[str, Tap]
    plain: tuple[bool, ...]
    notes: list[str]
    steps: tuple[tuple[Step, ...] | None, ...]

    @property
    def depth(self) -> int:
        """The number of blocks that run."""
        return len(self.blocks)

    def __repr__(self) -> str:
        block = type(self.blocks[0]).__name__
        return f"Stack({self.prefix!r}: {self.depth} blocks of {block}, {len(self.taps)} sites)"


class NoSites(BadInput):
    """A trial that shows no sites; a longer one may."""


class Structure(NamedTuple):
    """What trials show of a model.

    Attributes:
        stacks: its stacks of blocks.
        taps: of all sites, in the order of a forward pass.
        switches: whether the model changes itself when it reads a short input.
    """

    stacks: tuple[Stack, ...]
    taps: dict[str, Tap]
    switches: bool


def find_structure(model: Any, context: int | None) -> Structure:
    """Return the stacks of a model and the taps of all its sites.

    A trial of a few tokens shows them in most models. Some pad such an input (Longformer), or
    switch to another kind of attention for good (BigBird): longer ones are tried then, and what a
    trial changed is put back.

    Raises:
        BadInput: for a model that cannot be run on token ids alone, or shows no chain of blocks.
    """
    refusals: list[NoSites] = []
    switches = False
    for rows, tokens in TRIAL_SHAPES:
        if context is not None and tokens > max(context, SHORTEST_TRIAL):
            break
        shape = (rows, min(tokens, context or tokens))
        with restored(model) as switched:
            try:
                stacks, taps = _sites_of_trial(model, shape)
            except NoSites as error:
                refusals.append(error)
                continue
        if not switched:
            return Structure(stacks, taps, switches)
        switches = True
    if refusals:
        raise refusals[0]
    raise BadInput(
        f"{type(model).__name__} changes itself at every length that was tried, so headscan cannot "
        "read it."
    )


def _sites_of_trial(model: Any, shape: tuple[int, int]) -> tuple[tuple[Stack, ...], dict[str, Tap]]:
    with evaluating(model):
        trace = _trial(model, shape)
        stacks = tuple(
            find_stack(model, prefix, module, trace)
            for prefix, module in stack_modules(model).items()
        )
        taps = [tap for stack in stacks for tap in stack.taps.values()]
        head = find_head(model, trace)
        if head is not None:
            taps.append(head)
        return stacks, _verified(model, probe_inputs(model, shape, seed=1), shape, taps)


def _trial(model: Any, shape: tuple[int, int]) -> Trace:
    inputs = probe_inputs(model, shape, seed=0)
    try:
        return trace_calls(model, inputs, shape)
    except FAULTS_OF_A_TRIAL as error:
        if exhausted(error):
            raise
        lines = str(error).strip().splitlines() or [type(error).__name__]
        reason = lines[0].rstrip(".")
        raise NoSites(
            f"A trial run of {type(model).__name__} on nothing but token ids failed ({reason}), "
            "so headscan cannot read it."
        ) from error


def stack_modules(model: Any) -> dict[str, nn.Module]:
    """Return the modules that hold the stacks: {"": ...}, or {"encoder.": ..., "decoder.": ...}."""
    encoder = model.get_encoder() if hasattr(model, "get_encoder") else model
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model
    if getattr(model.config, "is_encoder_decoder", False) and encoder is not decoder:
        return {"encoder.": encoder, "decoder.": decoder}
    # In masked LMs `decoder` may be the layer that makes logits (ModernBERT), which is no stack.
    for module in (decoder, getattr(model, "base_model", model)):
        if any(isinstance(part, nn.ModuleList) for part in module.modules()):
            return {"": module}
    return {"": model}


def find_stack(model: nn.Module, prefix: str, module: nn.Module, trace: Trace) -> Stack:
    """Return one stack with its sites, read from the trace.

    Raises:
        BadInput: where no chain of blocks is to be seen.
    """
    block_calls = _block_calls(module, prefix, trace)
    if not block_calls:
        raise NoSites(
            f"{type(model).__name__} has no list of blocks that run one after another, each on "
            "the states [windows, tokens, width] that the one before returned, so headscan cannot "
            "name its sites."
        )
    final_norm = _final_norm(module, block_calls, trace)
    sites = _SitesOfStack(prefix, module, trace)
    sites.add("embedding", block_calls[0], "input", block_calls[0].inputs[0])
    plain = []
    steps = []
    for index, call in enumerate(block_calls):
        branches = find_branches(call, trace.calls)
        plain.append(branches.plain)
        steps.append(sites.add_branches(index, call, branches))
        is_last = index + 1 == len(block_calls)
        sites.add_block(index, call, final_norm if is_last else block_calls[index + 1])
    if final_norm is not None and final_norm.output is not None:
        sites.add("final_norm", final_norm, "output", final_norm.output)

    blocks = tuple(call.module for call in block_calls)
    distinct_blocks = len(set(blocks))
    if distinct_blocks < len(blocks):
        sites.notes.append(
            f"{len(blocks)} blocks share the weights of {distinct_blocks}: a site of one block is "
            "a pass through the same module."
        )
    others = _similar_calls(module if prefix else model, block_calls, trace)
    if others:
        sites.notes.append(
            f"The sites are those of {len(blocks)} blocks; {others} more of the same kind run "
            "elsewhere in the model, on other states, and are not read."
        )
    return Stack(prefix, module, blocks, sites.taps, tuple(plain), sites.notes, tuple(steps))


def _similar_calls(whole: nn.Module, block_calls: list[Call], trace: Trace) -> int:
    """Return how many other modules of a block's class ran (those of Funnel that pool)."""
    modules = set(whole.modules()) - {call.module for call in block_calls}
    classes = {type(call.module) for call in block_calls}
    similar = {
        call.module
        for call in trace.calls
        if call.module in modules
        and type(call.module) in classes
        and not any(call.within(block) for block in block_calls)
    }
    return len(similar)


class _SitesOfStack:
    """The taps and the notes of one stack, while they are found."""

    def __init__(self, prefix: str, module: nn.Module, trace: Trace) -> None:
        self.taps: dict[str, Tap] = {}
        self.notes: list[str] = []
        self._prefix = prefix
        self._module = module
        self._trace = trace
        self._padded = trace.shape[1] > SHORTEST_TRIAL

    def add(
        self,
        name: str,
        call: Call,
        where: Literal["input", "output"],
        states: Tensor,
        block: nn.Module | None = None,
    ) -> None:
        """Add the tap of a site; `block` is the one around a branch."""
        calls_of_module = [item for item in self._trace.calls if item.module is call.module]
        is_flat_output = call.flat and where == "output"
        self.taps[self._prefix + name] = Tap(
            site=self._prefix + name,
            module=call.module,
            path=call.path,
            where=where,
            width=states.shape[-1],
            clock=self._module,
            call=calls_of_module.index(call),
            calls=len(calls_of_module),
            shape_from=block if is_flat_output else None,
            padded=self._padded,
        )

    def add_branches(
        self, index: int, block_call: Call, branches: BranchesOfBlock
    ) -> tuple[Step, ...] | None:
        """Add the taps of a block's branches, and return what becomes of the block's input."""
        kinds: Counter[str] = Counter()
        site_of: dict[Call, str] = {}
        for branch in branches.branches:
            kinds[branch.kind] += 1
            number = kinds[branch.kind]
            kind = branch.kind if number == 1 else f"{branch.kind}_{number}"
            name = f"block.{index}.{kind}"
            assert branch.call.output is not None
            self.add(name, branch.call, "output", branch.call.output, block_call.module)
            site_of[branch.call] = self._prefix + name
        if branches.steps is None:
            return None
        return tuple(
            site_of[step.call] if isinstance(step, Branch) else step.module
            for step in branches.steps
        )

    def add_block(self, index: int, call: Call, reader: Call | None) -> None:
        """Add the tap of a whole block, whose output `reader` reads: the next block or final norm.

        RWKV halves the stream between some blocks; its own hidden states are those that the next
        block gets.
        """
        assert call.output is not None
        name = f"block.{index}"
        if reader is None:
            self.add(name, call, "output", call.output)
            return
        read_states = reader.inputs[0]
        if torch.equal(read_states.to(call.output.device), call.output):
            self.add(name, call, "output", call.output)
            return
        self.add(name, reader, "input", read_states)
        factor = _factor(call.output, read_states)
        change = f"multiplied by {factor:g}" if factor else "changed"
        self.notes.append(
            f"The stream is {change} after {self._prefix}{name}; the site is what the next part "
            "of the model gets, which is also the model's own hidden state."
        )


def find_head(model: nn.Module, trace: Trace) -> Tap | None:
    """Return the tap of the logits; None of a model without any."""
    names = " ".join(trace.result.keys()) if hasattr(trace.result, "keys") else ""
    logits = first_tensor(trace.result) if "logits" in names else None
    if logits is None or logits.ndim != 3 or tuple(logits.shape[:2]) != trace.shape:
        return None
    return Tap("head", model, "", "output", logits.shape[-1], clock=model)


def _block_calls(stack: nn.Module, prefix: str, trace: Trace) -> list[Call]:
    """Return the calls of the blocks, in order; empty where there are none.

    Of all module lists that form a chain it is the one as long as the configuration says, else the
    longest, else the outermost.
    """
    config = getattr(stack, "config", None)
    declared = [getattr(config, name, None) for name in DEPTHS_OF_STACK[prefix]]
    depths = {depth for depth in declared if isinstance(depth, int)}
    chains: list[list[Call]] = []
    for part in stack.modules():
        if not isinstance(part, nn.ModuleList):
            continue
        members = set(part)
        calls = [call for call in trace.calls if call.module in members]
        if _is_chain(calls):
            chains.append(calls)
    return max(chains, key=lambda calls: (len(calls) in depths, len(calls)), default=[])


def _is_chain(calls: list[Call]) -> bool:
    """Return whether each call reads the output of the one before, up to a factor."""
    if not calls:
        return False
    for call in calls:
        if not call.inputs or call.output is None or call.output.shape != call.inputs[0].shape:
            return False
    return all(
        call.end < next_call.begin and _factor(call.output, next_call.inputs[0])
        for call, next_call in itertools.pairwise(calls)
    )


def _final_norm(stack: nn.Module, block_calls: list[Call], trace: Trace) -> Call | None:
    """Return the call of the first norm inside the stack that reads the last block's output."""
    modules = set(stack.modules())
    last_block = block_calls[-1]
    for call in trace.calls:
        if call.begin < last_block.end or call.module not in modules or not _is_norm(call):
            continue
        if _factor(last_block.output, call.inputs[0]):
            return call
    return None


def _is_norm(call: Call) -> bool:
    named_so = "norm" in call.name or call.path.rpartition(".")[2].startswith("ln")
    if not named_so or not call.inputs or call.output is None:
        return False
    return call.output.shape == call.inputs[0].shape


def _factor(states: Tensor | None, scaled: Tensor) -> float | None:
    """Return c if scaled = c * states, c not 0, else None."""
    if states is None or states.shape != scaled.shape:
        return None
    a = states.to("cpu", torch.float64)
    b = scaled.to("cpu", torch.float64)
    energy = float((a * a).sum())
    if energy == 0 or not bool(torch.isfinite(a).all()):
        return None
    factor = float((a * b).sum()) / energy
    tolerance = 4 * max(torch.finfo(states.dtype).eps, torch.finfo(scaled.dtype).eps)
    difference = (b - factor * a).abs().max()
    fits = bool(difference <= tolerance * abs(factor) * a.abs().max())
    return factor if factor and fits else None


def _verified(
    model: nn.Module, inputs: Mapping[str, Any], shape: tuple[int, int], taps: list[Tap]
) -> dict[str, Tap]:
    """Return the taps by site, in the order in which one pass reads them.

    Taps whose tensor the model changes afterwards are marked `overwritten`.

    Raises:
        RuntimeError: where a tap is not read exactly once, in the shape that it promises.
    """
    live: dict[str, Tensor] = {}
    copies: dict[str, Tensor] = {}

    def store(site: str, states: Tensor) -> None:
        if site in live:
            raise RuntimeError(f"The site {site} fired twice in one forward pass.")
        live[site] = states
        copies[site] = states.detach().clone()

    with torch.no_grad(), Recorder(taps, store, own_thread=True):
        model(**inputs)

    tap_of = {tap.site: tap for tap in taps}
    for site, tap in tap_of.items():
        if site not in live:
            raise RuntimeError(f"The site {site} ({tap.place}) did not fire in a forward pass.")
        found_shape = tuple(live[site].shape)
        expected_shape = (*shape, tap.width)
        if found_shape != expected_shape:
            raise RuntimeError(f"The site {site} has shape {found_shape}, not {expected_shape}.")

    verified = {}
    for site, states in live.items():
        changed = not torch.equal(states.nan_to_num(), copies[site].nan_to_num())
        verified[site] = replace(tap_of[site], overwritten=changed)
    return verified
