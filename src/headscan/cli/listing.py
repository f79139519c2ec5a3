"""The list of the results in a folder, as a page: `headscan open FOLDER`."""

from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import headscan
from headscan.cli.guard import shown
from headscan.run.files import write_atomic
from headscan.run.findings import is_alarm

STYLE = (
    "body{font:16px/1.5 Helvetica,Arial,sans-serif;max-width:70em;margin:2em auto;padding:0 1em;"
    "color-scheme:light dark}"
    "table{border-collapse:collapse}"
    "th,td{text-align:left;padding:.3em 1.2em .3em 0;border-bottom:1px solid #8886}"
)
TEMPLATE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
      content="default-src 'none'; style-src 'sha256-{{ digest }}'">
<meta name="viewport" content="width=device-width">
<title>headscan results</title>
<style>{{ style | safe }}</style>
<h1>{{ results | length }} results</h1>
<table>
<thead><tr>
{%- for heading in ("result", "when", "verb", "models", "highest level") -%}
<th scope="col">{{ heading }}</th>
{%- endfor -%}
</tr></thead>
<tbody>
{%- for result in results %}
<tr><td><a href="{{ result.address }}">{{ result.folder }}</a></td><td>{{ result.started }}</td>
<td>{{ result.verb }}</td><td>{{ result.models }}</td><td>{{ result.level }}</td></tr>
{%- endfor %}
</tbody>
</table>
"""


class ListedResult(NamedTuple):
    """One row of the list."""

    folder: str
    address: str
    started: str
    verb: str
    models: str
    level: str


def write_index(folder: Path) -> Path:
    """Write `index.html` into a folder of results, the newest first, and return its path.

    Raises:
        BadInput: where the folder holds no result.
    """
    import jinja2

    files = sorted(folder.glob("*/result.json"), key=lambda file: -file.stat().st_mtime)
    results = [listed for file in files if (listed := _listed(file.parent)) is not None]
    if not results:
        raise headscan.BadInput(f"There is no result in {folder}: run a verb first.")

    template = jinja2.Environment(autoescape=True).from_string(TEMPLATE)
    digest = b64encode(sha256(STYLE.encode()).digest()).decode()
    page = folder / "index.html"
    write_atomic(page, template.render(results=results, style=STYLE, digest=digest).encode())
    return page


def _listed(folder: Path) -> ListedResult | None:
    """Return the row of a result; None for one that cannot be read (of a plug-in that is gone)."""
    try:
        result = headscan.load(folder)
    except headscan.BadInput:
        return None
    codes = {finding.code for finding in result.findings if is_alarm(finding)}
    level = result.highest_level
    if codes:
        level = f"{level}: {', '.join(sorted(codes))}"
    return ListedResult(
        folder=shown(folder.name),
        address=f"{quote(folder.name)}/report.html",
        started=shown(result.protocol.started[:16].replace("T", " ")),
        verb=shown(result.protocol.verb),
        models=shown(", ".join(model.name for model in result.models)),
        level=shown(level),
    )
