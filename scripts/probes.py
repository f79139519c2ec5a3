"""Write docs/measures/README.md from the probes' own words: every field with formula, range, unit and source.

python scripts/probes.py [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path

from headscan.geometry import PROBES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "measures" / "README.md"
HEAD = """# Tables beyond the core

Written by `scripts/probes.py` from the code. `headscan scan MODEL --text TEXT --measures GLOB,GLOB` takes the names of
tables, of groups, or `all` (whatever is not expensive) or `expensive` (everything). Rows are in `result.json` under the
table's name, in `.frame(NAME)`, in the terminal and in the page. The measures of a site's cloud are in
[../measures.md](../measures.md); what each number is on Gaussian data in [gaussian.md](gaussian.md).

NAME_interval is a 95 % interval: by the jackknife over blocks of consecutive windows of the text, unless the explanation
says otherwise. The last column says where there is none, and why; a reason such as "fewer than 64 rows" names the case in
which it is missing. NAME_without_first and its interval leave position 0 of each window out.
"""


def page() -> str:
    """The whole page as Markdown."""
    parts = [HEAD]
    for group in dict.fromkeys(probe.group for probe in PROBES.values()):
        parts.append(f"## {group.capitalize()}\n")
        for probe in PROBES.values():
            if probe.group != group:
                continue
            cost = " Expensive: it says its time and memory first." if probe.expensive else ""
            parts.append(
                f"### `{probe.name}`: {probe.title}\n\n{probe.sentence}{cost} [Explained]({probe.docs}). "
                f"Code: `{probe.function}`. Source: {probe.literature}.\n\nPosition 0: {probe.position}\n"
            )
            parts.append(
                "| field | what it is | formula | range | undefined | 95 % interval |\n|---|---|---|---|---|---|"
            )
            for name, field in probe.fields.items():
                low, high = ("" if end is None else f"{end:g}" for end in field.range)
                span = f"{low} to {high}".strip() if low or high else ""
                cells = [
                    f"`{name}`",
                    field.sentence,
                    field.formula and f"`{field.formula}`",
                    f"{span} {field.unit}",
                    field.undefined,
                    f"none: {field.interval}" if field.interval else "" if not low and not high else "yes",
                ]
                parts.append("| " + " | ".join(cell.strip().replace("|", "\\|") for cell in cells) + " |")
            parts.append("")
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text() == page() else f"{PAGE.name} is out of date: run python scripts/probes.py")
    PAGE.write_text(page())
