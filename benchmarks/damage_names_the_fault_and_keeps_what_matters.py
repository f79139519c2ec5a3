"""A damaged block is named first, and the recommended blocks to keep beat uniform and random
choices of as many bytes.

python benchmarks/damage_names_the_fault_and_keeps_what_matters.py MODEL [MODEL ...] [--tries 10]

Faults: one block rounded to 2 bits, the values of one of its heads permuted, one of its matrices
times 1.05, each beside a rounding of all blocks to 8 bits; named first is the block of the finding
HS702. Choices: `--keep` with 45 % of the bytes that q4_0 and q8_0 save; `more` is the divergence of
the other choice minus the recommended one's, nats a token, on windows that the choice was not made
by, with its 95 % interval. Text: stories.
"""

import sys
from pathlib import Path
from typing import Any

from _table import needs, show

import headscan
from headscan.comparison.result import DamageResult
from headscan.model import Lens
from headscan.model.partwise import PartwiseModel

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.comparison.test_damage import named_first, permuted_head, scaled, two_bits


def faults(lens: Lens, tries: int) -> None:
    rows = []
    for fault in (two_bits, permuted_head, scaled):
        first = sum(
            hurt == named
            for hurt, named in (named_first(lens, fault, seed) for seed in range(tries))
        )
        rows.append(
            {"model": lens.name, "fault": fault.__name__, "named_first": f"{first} of {tries}"}
        )
    show(rows)


def choices(name: str, lens: Lens) -> None:
    rows = []
    for rounding in ("q4_0", "q8_0"):
        parts = PartwiseModel(lens, rounding=rounding)
        all_bytes = sum(parts.bytes[part] for part in parts.parts[1:-1])
        for part in parts.parts[1:-1]:
            with parts.ready(part):
                pass
        saved = all_bytes - sum(parts.bytes[part] for part in parts.parts[1:-1])
        read: dict[str, Any] = {"max_tokens": 16384, "context": 64, "sample": 4096, "start": "none"}
        result = headscan.compare(
            name, "stories", damage=True, against=rounding, keep=saved * 0.45, **read
        )
        assert isinstance(result, DamageResult)
        for row in result.choices:
            if row["choice"] in ("uniform", "random"):
                ends = row.interval("more_kl")
                inside = "none" if ends is None else f"[{ends[0]:.2g}, {ends[1]:.2g}]"
                rows.append(
                    {
                        "model": lens.name,
                        "rounding": rounding,
                        "against": row["choice"],
                        "more": row.number("more_kl"),
                        "interval": inside,
                        "beaten": ends is not None and ends[0] > 0,
                    }
                )
    show(rows)


def main() -> None:
    if not sys.argv[1:]:
        needs("a model")
    names = sys.argv[1:]
    tries = int(names.pop(names.index("--tries") + 1)) if "--tries" in names else 10
    for name in (name for name in names if name != "--tries"):
        lens = Lens.load(Path(name) if Path(name).exists() else name)
        faults(lens, tries)
        choices(name, lens)


if __name__ == "__main__":
    main()
