"""The names of sites and the globs that choose among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from headscan.run import BadInput

__all__ = ["is_block", "match_sites", "possible_sites"]

STACKS = ("encoder", "decoder")
KINDS = ("attention", "cross_attention", "mlp", "mixer")


def match_sites(globs: str | Iterable[str], sites: Sequence[str], owner: str) -> tuple[str, ...]:
    """Those of `sites` that one of the globs matches, in the order of `sites`.

    A glob is matched part by part, as a path is: `*`, `?` and `[...]` stay within one part of the dotted name, `**`
    stands for any number of parts. So `block.*` is every block and no branch of one, `block.*.mlp` every MLP,
    `block.3.**` block 3 with its branches; `*` alone means every site. A glob without the prefix `encoder.` or
    `decoder.` counts for both stacks. Several globs may be given as a list or separated by commas.

    Raises:
        BadInput: a glob matches nothing; the message lists the sites there are.

    >>> match_sites("block.*, head", ["embedding", "block.0.mlp", "block.0", "block.1", "head"], "a model")
    ('block.0', 'block.1', 'head')
    """
    parts = [globs] if isinstance(globs, str) else list(globs)
    wanted = [glob.strip() for part in parts for glob in part.split(",") if glob.strip()]
    if not wanted:
        raise BadInput(f"No site was asked for; {owner} has: {_listed(sites)}.")
    chosen: set[str] = set()
    for glob in wanted:
        found = {site for site in sites if _matches(glob, site)}
        if not found:
            raise BadInput(f"No site of {owner} matches '{glob}'; it has: {_listed(sites)}.")
        chosen |= found
    return tuple(site for site in sites if site in chosen)


def is_block(site: str) -> bool:
    """Whether a site is the output of a whole block, and none of its branches.

    >>> is_block("block.3"), is_block("decoder.block.0"), is_block("block.3.mlp"), is_block("final_norm")
    (True, True, False, False)
    """
    return site.rsplit(".", 1)[-1].isdigit()


def possible_sites(blocks: int) -> tuple[str, ...]:
    """The names of all sites that a model of so many blocks can have, whatever its family; it will have some of them.

    >>> match_sites("block.12", possible_sites(12), "gpt2")[0]
    Traceback (most recent call last):
    headscan.BadInput: No site of gpt2 matches 'block.12'; it has: ...
    """
    branches = ("", *(f".{kind}" for kind in KINDS))
    one = ("embedding", *(f"block.{number}{kind}" for number in range(blocks) for kind in branches), "final_norm")
    return (*one, *(f"{stack}.{site}" for stack in STACKS for site in one), "head")


def _matches(glob: str, site: str) -> bool:
    if glob == "*":
        return True
    pattern, name = glob.split("."), site.split(".")
    bare = name[1:] if name[0] in STACKS else name
    return _parts_match(pattern, name) or _parts_match(pattern, bare)


def _parts_match(pattern: list[str], name: list[str]) -> bool:
    if not pattern:
        return not name
    if pattern[0] == "**":
        return any(_parts_match(pattern[1:], name[skip:]) for skip in range(len(name) + 1))
    return bool(name) and fnmatchcase(name[0], pattern[0]) and _parts_match(pattern[1:], name[1:])


def _listed(sites: Sequence[str]) -> str:
    """All sites in few words: a run of numbered blocks is written `block.0 ... block.11`, branches after blocks."""
    groups: dict[str, list[str]] = {}
    for site in sites:
        groups.setdefault(".".join("#" if part.isdigit() else part for part in site.split(".")), []).append(site)
    first: dict[str, int] = {}
    for place, key in enumerate(groups):
        first.setdefault(key.partition("#")[0], place)
    ordered = sorted(groups, key=lambda key: (first[key.partition("#")[0]], key.count(".")))
    runs = [groups[key] for key in ordered]
    return ", ".join(", ".join(run) if len(run) < 4 else f"{run[0]} ... {run[-1]}" for run in runs)
