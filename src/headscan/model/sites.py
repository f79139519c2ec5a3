"""Sites of a model: their names, the globs that choose among them, and where each is read."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

import torch
from torch import Tensor, nn

from headscan.model.sentence import SENTENCE
from headscan.run import BadInput, names_in

STACKS = ("encoder", "decoder")
KINDS = ("attention", "cross_attention", "mlp", "mixer")
OUTPUT_FIELDS = ("logits", "prediction_logits", "last_hidden_state")


def match_sites(globs: str | Iterable[str], sites: Sequence[str], owner: str) -> tuple[str, ...]:
    """Return those of `sites` that one of the globs matches, in the order of `sites`.

    A glob is matched part by part, as a path is: `*`, `?` and `[...]` stay within one part of the
    dotted name, `**` stands for any number of parts. So `block.*` is every block and no branch of
    one, `block.*.mlp` every MLP, `block.3.**` block 3 with its branches; `*` alone means every
    site. A glob without the prefix `encoder.` or `decoder.` counts for both stacks. Several globs
    may be given as a list or separated by commas.

    Raises:
        BadInput: where a glob matches nothing; the message lists the sites of the `owner`.

    >>> sites = ["embedding", "block.0.mlp", "block.0", "block.1", "head"]
    >>> match_sites("block.*, head", sites, "a model")
    ('block.0', 'block.1', 'head')
    """
    patterns = names_in(globs)
    if not patterns:
        raise BadInput(f"No site was asked for; {owner} has: {_listed(sites)}.")
    matched: set[str] = set()
    for pattern in patterns:
        matches = {site for site in sites if _matches(pattern, site)}
        if not matches:
            raise BadInput(f"No site of {owner} matches '{pattern}'; it has: {_listed(sites)}.")
        matched |= matches
    return tuple(site for site in sites if site in matched)


def is_block(site: str) -> bool:
    """Return whether a site is the output of a whole block.

    >>> is_block("block.3"), is_block("decoder.block.0"), is_block("block.3.mlp")
    (True, True, False)
    """
    return site.rsplit(".", 1)[-1].isdigit()


def last_block(sites: Sequence[str]) -> str:
    """Return the site that represents a model: the last block, else the last site of tokens."""
    blocks = [site for site in sites if ".block." in f".{site}" and is_block(site)]
    if blocks:
        return blocks[-1]
    token_sites = [site for site in sites if site != SENTENCE]
    return token_sites[-1] if token_sites else sites[-1]


def possible_sites(blocks: int) -> tuple[str, ...]:
    """Return the names of all sites that a model with this number of blocks can have.

    A model of one family has some of them.

    >>> match_sites("block.12", possible_sites(12), "gpt2")[0]
    Traceback (most recent call last):
    headscan.BadInput: No site of gpt2 matches 'block.12'; it has: ...
    """
    tower = ["embedding"]
    for number in range(blocks):
        tower.append(f"block.{number}")
        tower += [f"block.{number}.{kind}" for kind in KINDS]
    tower.append("final_norm")
    prefixed = [f"{stack}.{site}" for stack in STACKS for site in tower]
    return (*tower, *prefixed, "head", SENTENCE)


def _matches(pattern: str, site: str) -> bool:
    if pattern == "*":
        return True
    pattern_parts = pattern.split(".")
    name = site.split(".")
    name_in_stack = name[1:] if name[0] in STACKS else name
    return _parts_match(pattern_parts, name) or _parts_match(pattern_parts, name_in_stack)


def _parts_match(pattern: list[str], name: list[str]) -> bool:
    if not pattern:
        return not name
    first, *following = pattern
    if first == "**":
        return any(_parts_match(following, name[skip:]) for skip in range(len(name) + 1))
    if not name or not fnmatchcase(name[0], first):
        return False
    return _parts_match(following, name[1:])


def _listed(sites: Sequence[str]) -> str:
    """Return a short list of all sites.

    Numbered blocks are written as `block.0 ... block.11`, and branches come after blocks.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for site in sites:
        parts = ["#" if part.isdigit() else part for part in site.split(".")]
        groups[".".join(parts)].append(site)

    rank: dict[str, int] = {}
    for number, pattern in enumerate(groups):
        rank.setdefault(pattern.partition("#")[0], number)

    def order(pattern: str) -> tuple[int, int]:
        return rank[pattern.partition("#")[0]], pattern.count(".")

    return ", ".join(_listed_group(groups[pattern]) for pattern in sorted(groups, key=order))


def _listed_group(sites: list[str]) -> str:
    if len(sites) < 4:
        return ", ".join(sites)
    return f"{sites[0]} ... {sites[-1]}"


@dataclass(frozen=True, eq=False, repr=False)
class Tap:
    """The place where a site is read: the input or the output of one call of one module.

    Attributes:
        path: the module's name inside the model, such as `transformer.h.3.mlp`.
        width: the size of the last dimension.
        clock: the module whose start begins a new count of calls: the stack's own module.
        call, calls: the module runs `calls` times in a forward pass, and the site is call number
            `call`. They are 0 and 1, except where layers share their weights, as in ALBERT.
        shape_from: set where the module computes on [B*T, width] (OPT's MLP): the block whose input
            has B and T, with which states of the site are handed out.
        padded: the model pads short inputs (Longformer, LED), so that states of positions behind
            the input are left out.
        overwritten: the model goes on to change this tensor in place (Falcon adds to its MLP's
            output), so it must be copied to be stored.
    """

    site: str
    module: nn.Module
    path: str
    where: Literal["input", "output"]
    width: int
    clock: nn.Module
    call: int = 0
    calls: int = 1
    shape_from: nn.Module | None = None
    padded: bool = False
    overwritten: bool = False

    @property
    def place(self) -> str:
        """The module and the call, for messages."""
        text = f"{self.where} of {self.path or 'the model'}"
        if self.calls > 1:
            text += f", call {self.call + 1} of {self.calls}"
        return text

    def __repr__(self) -> str:
        return f"Tap({self.site}: {self.place}, width {self.width})"


@dataclass(frozen=True)
class SiteDescription:
    """A site for readers: `parameters` are those of the module whose output it is."""

    site: str
    width: int
    place: str
    parameters: int | None


def first_tensor(value: Any) -> Tensor | None:
    """Return the states in a module's output: itself, the logits, or a tuple's first tensor."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Mapping):
        for field in OUTPUT_FIELDS:
            states = value.get(field)
            if isinstance(states, Tensor):
                return states
        return None
    if isinstance(value, (tuple, list)) and value and isinstance(value[0], Tensor):
        return value[0]
    return None


def input_tensor(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor | None:
    """Return the hidden states among a module's arguments: the first tensor of floating numbers.

    Positional arguments come first.
    """
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor) and torch.is_floating_point(value):
            return value
    return None
