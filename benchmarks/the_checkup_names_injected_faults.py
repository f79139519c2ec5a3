"""Faults injected into healthy models are named by their codes; the same models without them raise no alarm that is not known.

    python benchmarks/the_checkup_names_injected_faults.py [--models gpt-vanilla,FOLDER,...] [--text stories] [--doses]

Each fault (`_faults.py`) is put into a live model, then `headscan checkup` examines it. The table says which codes were found
beyond those of the model without a fault, and which was named first; with --doses, how weak three of the faults may be and still
be named.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from _faults import EXPECTED, FAULTS, noisy, sick
from _table import show

import headscan
from headscan.model import Lens

DOSES = {
    "rogue coordinate": ("HS102", (0.3, 1, 3, 10, 30)), "cone": ("HS101", (0.1, 0.3, 1, 3)),
    "untied scale": ("HS202", (1.25, 1.5, 2, 3, 4)),
}  # fmt: skip


def codes(result: Any, which: int = -1) -> set[str]:
    return {one.code for one in result.examinations[which].observations if one.present}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gpt-vanilla")
    parser.add_argument("--text", default="stories")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--doses", action="store_true")
    given = parser.parse_args()
    records, doses = [], []
    for name in given.models.split(","):
        healthy = Lens.load(name)
        own: set[str] = set()
        for fault, put in FAULTS.items():
            result = examined(sick(healthy, put, fault), given)
            own = codes(result) if fault == "none" else own
            records.append(record(healthy.name, fault, result, own))
        pair = [healthy, sick(healthy, noisy, "worse")]
        records.append(record(healthy.name, "shuffled checkpoints", examined(pair, given, checkpoints=True), own))
        for fault, (code, strengths) in DOSES.items() if given.doses else ():
            for dose in strengths:
                result = examined(sick(healthy, FAULTS[fault], fault, dose), given)
                value = next((one.value for one in result.examinations[0].observations if one.code == code), None)
                doses.append({
                    "model": healthy.name, "fault": fault, "dose": dose, "code": code, "value": value,
                    "named": "yes" if code in codes(result) else "no",
                })  # fmt: skip
    show(records)
    if doses:
        print()
        show(doses)


def examined(source: Any, given: argparse.Namespace, **more: Any) -> Any:
    torch.manual_seed(0)
    return headscan.checkup(source, given.text, max_tokens=given.tokens, context=64, budget="10m", **more)


def record(model: str, fault: str, result: Any, own: set[str]) -> dict[str, Any]:
    expected, found = set(EXPECTED[fault]), codes(result)
    alarms = [one.code for one in result.findings if not one.known and one.model == result.examinations[-1].model]
    return {
        "model": model, "fault": fault, "expected": ", ".join(sorted(expected)) or "-",
        "found": "yes" if expected <= found else "NO",
        "named first": alarms[0] if alarms else "-",
        "others, beyond the healthy model's": ", ".join(sorted(found - own - expected)) or "-",
        "of the healthy model": ", ".join(sorted(own)) or "-",
    }  # fmt: skip


if __name__ == "__main__":
    main()
