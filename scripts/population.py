"""Write src/headscan/diagnosis/population.json: what the conditions' numbers are in the reference
models; then its page.

    python scripts/population.py --text stories --max-tokens 4096 'gpt-vanilla=healthy: 4,000 steps
    on spamlang' ... python scripts/population.py --faults FOLDER --text stories --max-tokens 4096
    each fault of benchmarks/_faults.py python scripts/population.py --add FILE --kind healthy
    --about 'GPT-2, 1 B'    what checkup --contribute wrote python scripts/population.py
    only the pages anew

A model is NAME@SOURCE=KIND: ABOUT, or SOURCE=KIND: ABOUT where the source is its name. It is
examined anew and its row replaced; the others' rows stay.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

import headscan
from headscan.diagnosis import CONDITIONS
from headscan.diagnosis.population import (
    LEAST,
    Reference,
    edition,
    population,
    reference,
    trained_values,
)
from headscan.diagnosis.registry import alarming
from headscan.model import Lens

ROOT = Path(__file__).parent.parent
FILE = ROOT / "src" / "headscan" / "diagnosis" / "population.json"
MARKS = ("<!-- population -->", "<!-- /population -->")


def examined(
    name: str, source: str | Lens, kind: str, about: str, arguments: argparse.Namespace
) -> Reference:
    """One model's row."""
    result = headscan.checkup(
        source,
        arguments.text,
        budget=arguments.budget,
        max_tokens=arguments.max_tokens,
        tokenizer=arguments.tokenizer,
    )
    return replace(reference(result, 0), model=name, kind=kind, about=about)  # type: ignore[arg-type]


def write(rows: list[Reference]) -> None:
    """The table, by kind and name."""
    ordered = [asdict(row) for row in sorted(rows, key=lambda row: (row.kind, row.model.lower()))]
    FILE.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    population.cache_clear()


def table(rows: list[Reference], codes: list[str]) -> str:
    """The leaderboard: a line a model, healthy ones first, the roundest (least average cosine) at
    the top.
    """
    heads = [CONDITIONS[code].unit.split(" (")[0] for code in codes]
    lines = [
        "| model | what it is | "
        + " | ".join(f"{code} {head}" for code, head in zip(codes, heads, strict=True))
        + " | alarms |",
        "|---|---|" + "---|" * (len(codes) + 1),
    ]
    for row in sorted(rows, key=lambda row: (row.kind != "healthy", row.values.get("HS101", 2.0))):
        alarms = alarming(row.values)
        cells = [f"{row.values[code]:.3g}" if code in row.values else "-" for code in codes]
        lines.append(
            f"| {row.model} | {row.about} | {' | '.join(cells)} | {', '.join(alarms) or 'none'} |"
        )
    return "\n".join(lines)


def ranges(codes: list[str]) -> str:
    """The percentiles of each number over the trained models, and where the healthy ones lie."""
    shares = (0, 10, 25, 50, 75, 90, 100)
    lines = [
        "| number | models | lowest | 10 % | 25 % | median | 75 % | 90 % | highest | healthy ones "
        "| alarm |",
        "|---|" + "---|" * 10,
    ]
    for code in codes:
        known = trained_values(code)
        condition = CONDITIONS[code]
        healthy = [
            row.values[code] for row in population() if row.kind == "healthy" and code in row.values
        ]
        values = np.percentile(known, shares) if len(known) >= LEAST else [None] * len(shares)
        cells = ["-" if value is None else f"{value:.3g}" for value in values]
        limit = (
            "none by itself"
            if condition.known
            else f"{'≥' if condition.least else '≤'} "
            f"{condition.threshold if condition.alarm is None else condition.alarm:g}"
        )
        spread = f"{min(healthy):.3g} to {max(healthy):.3g} ({len(healthy)})" if healthy else "-"
        lines.append(
            f"| {code} {condition.unit.split(' (')[0]} | {len(known)} | {' | '.join(cells)} | "
            f"{spread} | {limit} |"
        )
    return "\n".join(lines)


def contributed(path: str) -> list[Reference]:
    """The rows of a file that `checkup --contribute` wrote, or of a checkup's folder."""
    if Path(path).is_file():
        return TypeAdapter(list[Reference]).validate_json(Path(path).read_bytes())
    result = headscan.load(path)
    return [reference(result, number) for number in range(len(result.examinations))]


def pages() -> dict[Path, str]:
    """The page that shows the table, as it must be: docs/generated/population.md."""
    rows = list(population())
    healthy = [row for row in rows if row.kind == "healthy"]
    texts = sorted({f"{row.text} ({row.tokens:,} tokens)" for row in rows if row.tokens})
    known = [code for code in CONDITIONS if any(code in row.values for row in rows)]
    by_question = [[code for code in known if code.startswith(f"HS{k}")] for k in (1, 2, 3, 4)]
    ill = len(rows) - len(healthy)
    parts = [
        "# The reference population",
        "<!-- written by scripts/population.py from src/headscan/diagnosis/population.json -->",
        f"{len(healthy)} models that are trained and healthy, and {ill} that are known to be ill, "
        f"examined by `headscan checkup` on one text: {' or '.join(texts)}. A checkup says beside "
        f"each number how the model stands among the healthy ones; of fewer than {LEAST} it says "
        "that they are too few. So few models make no percentile of all there are, and most are "
        "small: a number that stands apart is a reason to look, no diagnosis. A number moves "
        "with the text, too.",
        "`headscan checkup MODEL --text stories --max-tokens 4096 --budget 10m --contribute FILE` "
        "writes a model's row: its name, numbers and protocol, nothing of its weights or text. In "
        "a pull request, `python scripts/population.py --add FILE --kind healthy --about WORDS` "
        "takes it in and writes these tables anew.",
        f"## Percentiles\n\nEdition {edition()}, windows of "
        f"{' or '.join(sorted({str(row.context) for row in rows}))} tokens; "
        "the edition changes with any row. Percentiles are of the "
        f"{sum(row.trained for row in rows)} models that are as they "
        "were trained, healthy or not; models into which a fault was put are left out, for they "
        "are copies of one. The "
        "percentile of a value is the share of these models below it, equal ones by half. With "
        "ten models it is uncertain: "
        "half of them below means 24 to 76 % (95 % interval, Wilson). Quote the edition and the "
        "number of models with it.",
        ranges(known),
    ]
    for title, codes in zip(("Shape", "Cause", "Leak", "Cure"), by_question, strict=True):
        parts += [f"## {title}", table(rows, codes)] if codes else []
    return {ROOT / "docs" / "generated" / "population.md": "\n\n".join(parts) + "\n"}


def main() -> None:
    """Examine and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="[NAME@]SOURCE=KIND: ABOUT")
    parser.add_argument("--text", default="stories")
    parser.add_argument("--budget", default="2m")
    parser.add_argument("--max-tokens", type=int)
    parser.add_argument("--tokenizer", help="of models that come without one, such as 'bytes'")
    parser.add_argument("--faults", nargs="*", default=[], metavar="[NAME@]SOURCE")
    parser.add_argument("--add", nargs="*", default=[], metavar="FOLDER")
    parser.add_argument("--kind", default="unjudged")
    parser.add_argument("--about", help="what the model of --add is, in a few words")
    arguments = parser.parse_args()
    work: list[tuple[str, str | Lens, str, str]] = []
    for argument in arguments.models:
        model, _, description = argument.partition("=")
        name, _, source = model.rpartition("@")
        kind, _, about = description.partition(":")
        work.append((name or source, source, kind.strip(), about.strip()))
    for argument in arguments.faults:
        # only here: as a module this page's writer leaves imports alone
        sys.path.insert(0, str(ROOT / "benchmarks"))
        from _faults import FAULTS, sick

        name, _, source = argument.rpartition("@")
        healthy = Lens.load(source)
        for fault, put in FAULTS.items():
            if fault != "none":
                title = f"{name or source}, {fault}"
                work.append((title, sick(healthy, put, title), "ill", f"injected: {fault}"))
    rows = {row.model: row for row in population()}
    for path in arguments.add:
        for row in contributed(path):
            rows[row.model] = replace(row, kind=arguments.kind, about=arguments.about or "")
    for name, source, kind, about in work:
        rows[name] = examined(name, source, kind, about, arguments)
        print(rows[name], flush=True)
        write(list(rows.values()))
    write(list(rows.values()))
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
