"""A damaged block is named first, and the recommended blocks to keep beat uniform and random choices of as many bytes.

python benchmarks/damage_names_the_fault_and_keeps_what_matters.py MODEL [MODEL ...] [--tries 10]

Faults: one block rounded to 2 bits, the values of one of its heads permuted, one of its matrices times 1.05, each beside
a rounding of all blocks to 8 bits; named first is the block of the finding HS702. Choices: `--keep` with 45 % of the bytes that
q4_0 and q8_0 save; `more` is the divergence of the other choice minus the recommended one's, nats a token, on windows
that the choice was not made by, with its 95 % interval. Text: stories.
"""

import copy
import sys
from pathlib import Path

import numpy as np
import torch
from _table import show

import headscan
from headscan.model import Lens
from headscan.model.partwise import PartwiseModel
from headscan.model.rounding import round_block

READ = {"max_tokens": 512, "context": 64, "sample": 256}


def two_bits(block, lens, rng):
    for weight in (one for one in block.parameters() if one.ndim == 2):
        groups = weight.data.reshape(-1, 16 if weight.numel() % 32 else 32)
        low, high = groups.amin(1, keepdim=True), groups.amax(1, keepdim=True)
        step = (high - low) / 3
        groups.copy_(low + ((groups - low) / step).round() * step)


def permuted_head(block, lens, rng):
    config, heads = lens.model.config, lens.model.config.num_attention_heads
    if hasattr(block, "attn"):
        values, size = block.attn.c_attn.weight.data[:, -config.hidden_size :].T, config.hidden_size // heads
    else:
        values, size, heads = block.self_attn.v_proj.weight.data, config.head_dim, config.num_key_value_heads
    own = values[(head := int(rng.integers(heads))) * size : (head + 1) * size]
    own.copy_(own[torch.arange(size).roll(1)].clone())


def scaled(block, lens, rng):
    weights = [one for one in block.parameters() if one.ndim == 2]
    weights[rng.integers(len(weights))].data.mul_(1.05)


def faults(lens: Lens, tries: int) -> None:
    rows = []
    for fault in (two_bits, permuted_head, scaled):
        first = 0
        for seed in range(tries):
            rng, other = np.random.default_rng(seed), Lens(copy.deepcopy(lens.model), lens.tokenizer, name="other")
            blocks = other.stacks[0].blocks
            for block in blocks:
                round_block(block, "q8_0")
            hurt = int(rng.integers(len(blocks)))
            fault(blocks[hurt], lens, rng)
            result = headscan.compare([lens, other], "stories", damage=True, seed=seed, **READ)
            [found] = [one for one in result.findings if one.name == "WORST-PART"]
            first += found.site == f"block.{hurt}"
        rows.append({"model": lens.name, "fault": fault.__name__, "named_first": f"{first} of {tries}"})
    show(rows)


def choices(name: str, lens: Lens) -> None:
    rows = []
    for rounding in ("q4_0", "q8_0"):
        parts = PartwiseModel(lens, rounding=rounding)
        whole = sum(parts.bytes[part] for part in parts.parts[1:-1])
        for part in parts.parts[1:-1]:
            with parts.ready(part):
                pass
        saved = whole - sum(parts.bytes[part] for part in parts.parts[1:-1])
        read = {"max_tokens": 16384, "context": 64, "sample": 4096}
        result = headscan.compare(name, "stories", damage=True, against=rounding, keep=saved * 0.45, **read)
        for row in result.choices:
            if row["choice"] in ("uniform", "random"):
                ends = row.interval("more_kl")
                inside = "none" if ends is None else f"[{ends[0]:.2g}, {ends[1]:.2g}]"
                rows.append({
                    "model": lens.name, "rounding": rounding, "against": row["choice"], "more": row.number("more_kl"),
                    "interval": inside, "beaten": ends is not None and ends[0] > 0,
                })  # fmt: skip
    show(rows)


def main() -> None:
    names = sys.argv[1:]
    tries = int(names.pop(names.index("--tries") + 1)) if "--tries" in names else 10
    for name in (one for one in names if one != "--tries"):
        lens = Lens.load(Path(name) if Path(name).exists() else name)
        faults(lens, tries)
        choices(name, lens)


if __name__ == "__main__":
    main()
