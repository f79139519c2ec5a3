"""Finding the sites of a model: one traced pass tells where they are, another that they are read right."""

from __future__ import annotations

from typing import Any

from headscan.model.inputs import probe_inputs
from headscan.model.probe import trace_calls
from headscan.model.structure import Stack, find_head, find_stack, stack_modules
from headscan.model.tap import Tap
from headscan.model.verify import evaluating, verify_taps
from headscan.run import BadInput

__all__ = ["find_sites"]


def find_sites(model: Any, context: int | None) -> tuple[tuple[Stack, ...], dict[str, Tap]]:
    """The towers of a model and the taps of all its sites, in the order in which the model passes them.

    Raises:
        BadInput: it cannot be run on token ids alone, or shows no chain of blocks.
    """
    inputs, shape = probe_inputs(model, context, seed=0)
    with evaluating(model):
        try:
            trace = trace_calls(model, inputs, shape)
        except (TypeError, ValueError, RuntimeError, LookupError, AttributeError, AssertionError) as error:
            said = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            raise BadInput(
                f"A trial run of {type(model).__name__} on nothing but token ids failed ({said}), so headscan cannot read it."
            ) from error
        towers = stack_modules(model)
        stacks = tuple(find_stack(model, prefix, module, trace) for prefix, module in towers.items())
        head = find_head(model, trace)
        taps = [tap for stack in stacks for tap in stack.taps.values()] + ([head] if head else [])
        inputs, shape = probe_inputs(model, context, seed=1)
        return stacks, verify_taps(model, inputs, shape, taps)
