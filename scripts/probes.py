"""Write docs/generated/tables.md from the probes' own words: every field with formula, range, unit
and source.

python scripts/probes.py [--check]
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

from headscan.scanner.selection import ordered_probes

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.reference.gaussian import KNOWN, Shape

GAUSSIAN = Path(__file__).resolve().parents[1] / "docs" / "generated" / "gaussian.md"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "generated" / "tables.md"
HEAD = """# Tables beyond the core

Written by `scripts/probes.py` from the code. `headscan scan MODEL --text TEXT --measures GLOB,GLOB`
takes the names of tables, of groups or `all` (both: whatever is not expensive), or `expensive`
(everything). Rows are in `result.json` under the table's name, in `.frame(NAME)`, in the terminal
and in the page. The measures of a site's cloud are in [../measures.md](../measures.md); what each
number is on Gaussian data in [gaussian.md](gaussian.md).

NAME_interval is a 95 % interval: blocks of consecutive windows are left out, as pieces of a text
that runs on, unless the explanation says otherwise; those of the measures of a site's cloud are
made [another way](../intervals.md). The last column says where there is none, and why; a reason
such as "fewer than 64 rows" names the case in which it is missing. NAME_without_first and its
interval leave position 0 of each window out.
"""


def page() -> str:
    """The whole page as Markdown."""
    parts = [HEAD]
    probes = [probe.words for probe in ordered_probes()]
    for group in dict.fromkeys(probe.group for probe in probes):
        parts.append(f"## {group.capitalize()}\n")
        for probe in (probe for probe in probes if probe.group == group):
            cost = " Expensive: it says its time and memory first." if probe.expensive else ""
            parts.append(
                f"### `{probe.name}`: {probe.title}\n\n{probe.sentence}{cost} "
                f"[Explained](../../lab/docs/methods/measures/{probe.docs}). "
                f"Code: `{probe.function}`. Source: {probe.literature}.\n\nPosition 0: "
                f"{probe.position}\n"
            )
            parts.append(
                "| field | what it is | formula | range | undefined | 95 % interval "
                "|\n|---|---|---|---|---|---|"
            )
            for name, field in probe.fields.items():
                low, high = ("" if end is None else f"{end:g}" for end in field.range)
                span = f"{low} to {high}".strip() if low or high else ""
                interval = "yes" if span else ""
                if field.interval:
                    interval = f"none: {field.interval}"
                cells = [
                    f"`{name}`",
                    field.sentence,
                    field.formula and f"`{field.formula}`",
                    f"{span} {field.unit}",
                    field.undefined,
                    interval,
                ]
                parts.append(_row(cells))
            parts.append("")
    return "\n".join(parts) + "\n"


def _row(cells: list[str]) -> str:
    """Return one row of a Markdown table."""
    escaped = [cell.strip().replace("|", "\\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"


GAUSSIAN_HEAD = """# What every number is on Gaussian data

Written by `scripts/probes.py` from `tests/reference/gaussian.py`. n independent draws of N(0, I) in
d dimensions, where there is nothing to find: the value that is known, its derivation, and how far
from it a test lets a number be ("within": four standard deviations, or a stated bias). Where no
value is known, the reason. A measure that leaves this page is wrong;
`tests/measures/test_gaussian.py` holds each line against the code.

"Here" is {shape}.

| number | known value | why | here | within |
|---|---|---|---|---|
"""


def gaussian_page() -> str:
    """The known values as Markdown."""
    shape = Shape()
    description = (
        f"n = {shape.n:,}, d = {shape.d}, windows of {shape.window}, {shape.classes} classes, "
        f"tables of {shape.rows:,} rows of scale {shape.scale}, samples of {shape.sample:,}"
    )
    lines = []
    for name, known in KNOWN.items():
        value = None if known.value is None else known.value(shape)
        expected = "" if value is None or math.isnan(value) else f"{value:.4g}"
        within = f"{known.within(shape):.1g}" if expected else ""
        cells = [f"`{name}`", known.formula, known.why, expected, within]
        lines.append(_row(cells))
    return GAUSSIAN_HEAD.format(shape=description) + "\n".join(lines) + "\n"


if __name__ == "__main__":
    for path, text in ((PAGE, page()), (GAUSSIAN, gaussian_page())):
        if "--check" not in sys.argv:
            path.write_text(text)
        elif path.read_text() != text:
            sys.exit(f"{path.name} is out of date: run python scripts/probes.py")
