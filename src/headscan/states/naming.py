"""What sites are called: names of other libraries' hooks as headscan's, and names in the order of depth."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["by_depth", "site_of_hook"]

PARTS = {"attn_out": ".attention", "mlp_out": ".mlp", "resid_post": ""}


def site_of_hook(hook: str) -> str:
    """headscan's name of a hook of TransformerLens (also used by SAELens and activault); itself where there is none.

    >>> [site_of_hook(f"blocks.4.hook_{name}") for name in ("resid_post", "resid_pre", "mlp_out", "resid_mid")]
    ['block.4', 'block.3', 'block.4.mlp', 'blocks.4.hook_resid_mid']
    >>> site_of_hook("blocks.0.hook_resid_pre"), site_of_hook("ln_final.hook_normalized")
    ('embedding', 'final_norm')
    """
    if hook == "ln_final.hook_normalized":
        return "final_norm"
    found = re.fullmatch(r"blocks\.(\d+)\.hook_(\w+)", hook)
    if found is None:
        return hook
    block, kind = int(found[1]), found[2]
    if kind == "resid_pre":
        return f"block.{block - 1}" if block else "embedding"
    return f"block.{block}{PARTS[kind]}" if kind in PARTS else hook


def by_depth(names: Iterable[str]) -> list[str]:
    """Names in the order of depth: embedding, blocks by their numbers with their branches before them, final norm, head;
    others by the numbers in them.

    >>> by_depth(["head", "block.10", "block.2", "block.2.mlp", "final_norm", "embedding"])
    ['embedding', 'block.2.mlp', 'block.2', 'block.10', 'final_norm', 'head']
    """

    def key(name: str) -> tuple[object, ...]:
        stack = name.partition(".")[0]
        bare = name.removeprefix("encoder.").removeprefix("decoder.")
        kind = {"embedding": 0, "final_norm": 3, "head": 4}.get(bare, 1 if bare.startswith("block.") else 2)
        numbers = [int(part) if part.isdigit() else -1 for part in re.split(r"(\d+)", bare)]
        return stack == "decoder" or kind == 4, kind, numbers[:2], -bare.count("."), numbers, bare

    return sorted(names, key=key)
