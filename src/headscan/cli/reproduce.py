"""`headscan reproduce`: claims of the literature as experiments, with verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headscan
from headscan.cli.command import Command

__all__ = ["COMMAND"]


def _listed(options: dict[str, Any]) -> bool:
    if options["list"]:
        for number, entry in headscan.all_claims().items():
            print(f"{number:4}  {entry.statement}")
    return bool(options["list"])


def _page(result: headscan.Result, options: dict[str, Any]) -> None:
    if options["page"] is not None and isinstance(result, headscan.ReproduceResult):
        Path(options["page"]).write_text(headscan.ledger_page(result), encoding="utf-8")


COMMAND = Command(
    verb=lambda: headscan.reproduce,
    subject="",
    arguments={"claims": "[CLAIM...]"},
    extra={
        "list": (bool, "List the claims and run none."),
        "page": (str, "Write the ledger as Markdown into this file, too."),
    },
    before=_listed,
    after=_page,
)
