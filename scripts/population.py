"""Write src/headscan/diagnosis/population.json: what the conditions' numbers are in the reference models.

    python scripts/population.py --text TEXT MODEL=healthy MODEL=ill ... [--budget 10m]

Each model is examined anew and its row replaced; the others' rows stay. Names are the models' own; TEXT is named by its file.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import headscan
from headscan.diagnosis.population import Reference, population

FILE = Path(headscan.__file__).with_name("diagnosis") / "population.json"


def row(model: str, kind: str, text: str, budget: str) -> Reference:
    """One model's values."""
    found = headscan.checkup(model, text, budget=budget).examinations[0]  # type: ignore[arg-type]
    values = {one.code: float(f"{one.value:.4g}") for one in found.observations if one.value is not None}
    return Reference(model=found.model, text=Path(text).name, kind=kind, values=values)  # type: ignore[arg-type]


def main() -> None:
    """Examine and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL=healthy|ill")
    parser.add_argument("--text", required=True)
    parser.add_argument("--budget", default="2m")
    given = parser.parse_args()
    rows = {(one.model, one.text): one for one in population()}
    for each in given.models:
        model, _, kind = each.rpartition("=")
        made = row(model, kind, given.text, given.budget)
        rows[made.model, made.text] = made
        print(made, flush=True)
        ordered = [asdict(rows[key]) for key in sorted(rows)]
        FILE.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
