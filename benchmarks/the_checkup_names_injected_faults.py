"""Faults injected into healthy models are named by their codes; the same models without them raise no alarm that is not known.

    python benchmarks/the_checkup_names_injected_faults.py [--models gpt-vanilla,FOLDER,...] [--text stories] [--doses]

Each fault (`_faults.py`) is put into a live model, then `headscan checkup` examines it. The table says whether the fault's code
was an alarm, which alarm was named first, and which others there were; what is stated as known of many models is left out. With
--doses, how weak three of the faults may be and still be named.
"""

from __future__ import annotations

import argparse
import sys
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


def codes(result: Any) -> set[str]:
    return {one.code for one in result.findings if not one.known}


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
        for fault, put in FAULTS.items():
            records.append(record(healthy.name, fault, examined(sick(healthy, put, fault), given)))
            print(records[-1], file=sys.stderr, flush=True)
        pair = [healthy, sick(healthy, noisy, "worse")]
        records.append(record(healthy.name, "shuffled checkpoints", examined(pair, given, checkpoints=True)))
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


def record(model: str, fault: str, result: Any) -> dict[str, Any]:
    expected = EXPECTED[fault]
    alarms = [one.code for one in result.findings if not one.known and one.model == result.examinations[-1].model]
    found = "yes" if set(expected) <= set(alarms) else "NO"
    return {
        "model": model, "fault": fault, "expected": ", ".join(expected) or "no alarm",
        "found": found if expected else "NO" if alarms else "yes",
        "named first": alarms[0] if alarms else "-",
        "other alarms": ", ".join(code for code in alarms if code not in expected) or "-",
    }  # fmt: skip


if __name__ == "__main__":
    main()
