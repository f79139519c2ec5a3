"""The verbs that the laboratory adds to the command line, by entry points of `headscan.verbs`."""

from importlib import import_module
from pathlib import Path
from typing import Any

import headscan
from headscan.cli.command import Command

LAB = "https://github.com/headscan/headscan/blob/main/lab/docs/"


def _verb(module: str, name: str) -> Any:
    return getattr(import_module(f"headscan_lab.{module}"), name)


def _list(options: dict[str, Any]) -> bool:
    """Do what --list asks for; return whether the verb is not needed then."""
    from headscan_lab.ledger.run import all_statements

    if options["list"]:
        for id, statement in all_statements().items():
            print(f"{id:4}  {statement.statement}")
    return bool(options["list"])


def _write_page(result: headscan.Result, options: dict[str, Any]) -> None:
    """Write the ledger as Markdown, where --page asks for it."""
    from headscan_lab.ledger.page import ledger_page
    from headscan_lab.ledger.run import ReproduceResult

    if options["page"] is not None and isinstance(result, ReproduceResult):
        Path(options["page"]).write_text(ledger_page(result), encoding="utf-8")


EVALUATE = Command(
    verb=lambda: _verb("evaluation.run", "evaluate"),
    about="Try a model on sets of tasks in a folder, offline.",
    example="gpt-vanilla --text tasks --limit 100",
    docs=f"{LAB}tournament.md",
)
TOURNAMENT = Command(
    verb=lambda: _verb("tournament.run", "tournament"),
    subject="",
    docs=f"{LAB}tournament.md",
    about="Compare ways of training side by side, at equal tokens and loss: a leaderboard.",
    example="--text stories --arms ce,headless --seeds 1",
)
REPRODUCE = Command(
    verb=lambda: _verb("ledger.run", "reproduce"),
    subject="",
    arguments={"claims": "[CLAIM...]"},
    about="Try statements of the literature as experiments, with verdicts.",
    example="S3 P4",
    docs=f"{LAB}ledger.md",
    before=_list,
    after=_write_page,
    extra={
        "list": (bool, "List the statements and try none."),
        "page": (str, "Write the ledger as Markdown into this file, too."),
    },
)
