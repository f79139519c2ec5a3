"""Faults injected into healthy models are named by their codes; the same models without them raise
no alarm that is not known.

    python benchmarks/the_checkup_names_injected_faults.py [--models gpt-vanilla,FOLDER,...]
        [--runs stories:0,stories:1,FILE:0,...] [--tokens 2048] [--start tokenizer] [--doses]

Each fault (`_faults.py`) is put into a live model, then `headscan checkup` examines it. A row is a
model and a fault, a column a text and a seed (of fault and checkup); a cell has all alarms in the
order of the page, the fault's own code in bold, or *missed*; the rows of the fault "none" are false
alarms. What is stated as known of many models is left out. A fault of the output head, or of
losses, cannot be put into a model without an output head. The table below it counts. What was
examined stays so: a series that was stopped goes on. With --doses, how weak three of the faults may
be and still be named.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, get_args

import torch
from _faults import EXPECTED, FAULTS, noisy, sick
from _kept import kept
from _table import show

import headscan
from headscan.model import Lens
from headscan.text.source import StartName

DOSES = {
    "rogue coordinate": ("HS102", (0.3, 1, 3, 10, 30)),
    "cone": ("HS101", (0.1, 0.3, 1, 3)),
    "untied scale": ("HS202", (1.25, 1.5, 2, 3, 4)),
}
OF_HEADS = ("untied scale", "untrained head", "shuffled checkpoints")
"""What takes a model with an output head."""


Condition = tuple[str, int]
"""A text and a seed."""


def codes(result: Any) -> list[str]:
    """The alarms of the last source, in the order of the page."""
    return [
        finding.code
        for finding in result.findings
        if finding.level == "alarm" and finding.model == result.examinations[-1].model
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default="gpt-vanilla")
    parser.add_argument(
        "--runs",
        default="stories:0",
        help="texts, each with a seed (of fault and checkup) after a colon",
    )
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument(
        "--start", default="tokenizer", choices=get_args(StartName), help="how windows begin"
    )
    parser.add_argument("--doses", action="store_true")
    arguments = parser.parse_args()
    conditions = [
        (run.rpartition(":")[0], int(run.rpartition(":")[2])) for run in arguments.runs.split(",")
    ]
    alarms_by_fault: dict[tuple[str, str], dict[Condition, list[str]]] = {}
    models = {title_of(name): Lens.load(name) for name in arguments.models.split(",")}
    for condition in conditions:
        for title, healthy in models.items():
            for fault in EXPECTED:
                if not applies(fault, healthy):
                    continue
                work = partial(row, fault, healthy, condition, arguments.tokens, arguments.start)
                key = f"{title} {fault} {label(condition)} {arguments.tokens} {arguments.start}"
                alarms = kept(key, work)["alarms"]
                alarms_by_fault.setdefault((title, fault), {})[condition] = alarms
                print(title, fault, condition, alarms, file=sys.stderr, flush=True)
    doses = []
    for title, healthy in models.items():
        for fault, (code, strengths) in DOSES.items() if arguments.doses else ():
            for dose in strengths:
                result = examined(
                    sick(healthy, FAULTS[fault], fault, dose),
                    conditions[0],
                    arguments.tokens,
                    arguments.start,
                )
                observations = result.examinations[0].observations
                values = [item.value for item in observations if item.code == code]
                named = "yes" if code in codes(result) else "no"
                doses.append(
                    {
                        "model": title,
                        "fault": fault,
                        "dose": dose,
                        "code": code,
                        "value": values[0] if values else None,
                        "named": named,
                    }
                )
    tested = [title for title in models if (title, "none") in alarms_by_fault]
    rows = []
    for title in tested:
        for (model, fault), by_condition in alarms_by_fault.items():
            if model == title:
                rows.append(fault_row(model, fault, by_condition))
    show(rows)
    print()
    show([counted(title, alarms_by_fault) for title in tested])
    if doses:
        print()
        show(doses)


def title_of(name: str) -> str:
    """An id, or the folder's name; of a folder `model` inside a package, the package's."""
    parts = [part for part in name.split("/") if part]
    return parts[-2] if len(parts) > 1 and parts[-1] == "model" else parts[-1]


def label(condition: Condition) -> str:
    return f"{'/'.join(condition[0].split('/')[-2:])}, seed {condition[1]}"


def applies(fault: str, lens: Lens) -> bool:
    """Tell whether a model has the part that the fault changes."""
    return fault not in OF_HEADS or lens.model.get_output_embeddings() is not None


def row(
    fault: str, healthy: Lens, condition: Condition, tokens: int, start: StartName
) -> dict[str, Any]:
    source = sources(fault, healthy, condition[1])
    return {"alarms": codes(examined(source, condition, tokens, start))}


def sources(fault: str, healthy: Lens, seed: int) -> Any:
    """The model with the fault in it; of checkpoints, the healthy one and a worse one after it."""
    if fault == "shuffled checkpoints":
        return [healthy, sick(healthy, noisy, "worse", seed=seed)]
    return sick(healthy, FAULTS[fault], fault, seed=seed)


def examined(source: Any, condition: Condition, tokens: int, start: StartName) -> Any:
    text, seed = condition
    torch.manual_seed(seed)
    return headscan.checkup(
        source,
        text,
        max_tokens=tokens,
        context=64,
        budget="10m",
        seed=seed,
        start=start,
        checkpoints=isinstance(source, list),
    )


def cell(expected: Sequence[str], alarms: Sequence[str]) -> str:
    entries = [f"**{code}**" if code in expected else code for code in alarms]
    if not set(expected) <= set(alarms):
        entries.insert(0, "*missed*")
    return ", ".join(entries) or "-"


def fault_row(
    model: str, fault: str, by_condition: Mapping[Condition, list[str]]
) -> dict[str, str]:
    """Return the row of a fault: the codes that were named, by text and seed."""
    expected = EXPECTED[fault]
    row = {"model": model, "fault": fault, "expected": ", ".join(expected) or "no alarm"}
    for condition, alarms in by_condition.items():
        row[label(condition)] = cell(expected, alarms)
    return row


def counted(
    model: str, alarms_by_fault: Mapping[tuple[str, str], Mapping[Condition, list[str]]]
) -> dict[str, Any]:
    """Count over all texts and seeds: faults found, faults named first, alarms of the model without
    a fault.
    """
    ill: list[tuple[Sequence[str], list[str]]] = []
    for (fault_model, fault), by_condition in alarms_by_fault.items():
        if fault_model == model and fault != "none":
            ill += [(EXPECTED[fault], alarms) for alarms in by_condition.values()]
    found_count = sum(set(expected) <= set(alarms) for expected, alarms in ill)
    first_count = sum(alarms[:1] == list(expected) for expected, alarms in ill)
    plain = list(alarms_by_fault[model, "none"].values())
    raised = sorted(set().union(*plain))
    false_alarms = f"{sum(map(bool, plain))} of {len(plain)}"
    if raised:
        false_alarms += f" ({', '.join(raised)})"
    return {
        "model": model,
        "faults found": f"{found_count} of {len(ill)}",
        "named first": f"{first_count} of {len(ill)}",
        "healthy with an alarm": false_alarms,
    }


if __name__ == "__main__":
    main()
