"""The verbs that the laboratory adds to the command line, by entry points of `headscan.verbs`."""

import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

import headscan
from headscan.cli import command_of
from headscan.cli.command import Command

LAB = "https://github.com/headscan/headscan/blob/main/lab/docs/"


def _verb(module: str, name: str) -> Any:
    return getattr(import_module(f"headscan_lab.{module}"), name)


def _list_or_check(options: dict[str, Any]) -> bool:
    """Do what --list and --dry-run ask for; return whether the verb is not needed then."""
    from headscan_lab.ledger.run import all_statements, wanted_statements

    ledger = all_statements()
    if options["list"]:
        for id, statement in ledger.items():
            print(f"{id:4}  {statement.statement}")
    elif options["dry_run"]:
        for id in wanted_statements(options.get("claims") or ()):
            for command in ledger[id].command.split("; "):
                if command.startswith("headscan "):
                    print(f"{id:4}  {dry_run(command)}")
    return bool(options["list"] or options["dry_run"])


def dry_run(command: str) -> str:
    """Check what can be checked of a command without its model; return a sentence.

    Raises:
        BadInput: for a command that cannot be run; the message names it.
    """
    from cyclopts import CycloptsError

    name, *words = shlex.split(command)[1:]
    real = command_of(name)
    record: Any = real.verb().verb  # type: ignore[attr-defined]

    def check(*subject: Any, **options: Any) -> headscan.Result:
        for option in ("progress", "command"):
            options.pop(option, None)
        record.arguments(subject, options)
        raise _Checked

    check.verb = record  # type: ignore[attr-defined]
    checking = Command(verb=lambda: check, subject=real.subject, arguments=real.arguments)
    try:
        checking.app(name)(words, exit_on_error=False, print_error=False)
    except _Checked:
        return f"{name}: its options can be read"
    except (CycloptsError, headscan.BadInput) as error:
        raise headscan.BadInput(f"{command}: {error}") from None
    raise headscan.BadInput(f"{command}: it does not reach its verb.")


class _Checked(Exception):
    """Raised in place of running a verb whose arguments were checked."""


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
    about="Compare ways of training side by side, at equal tokens, time and loss: a leaderboard.",
    example="--text stories --arms ce,headless --seeds 1",
)
REPRODUCE = Command(
    verb=lambda: _verb("ledger.run", "reproduce"),
    subject="",
    arguments={"claims": "[CLAIM...]"},
    about="Try statements of the literature as experiments, with verdicts.",
    example="S3 P4",
    docs=f"{LAB}ledger.md",
    before=_list_or_check,
    after=_write_page,
    extra={
        "list": (bool, "List the statements and try none."),
        "dry_run": (
            bool,
            "Check the commands of the statements on larger models; run none.",
        ),
        "page": (str, "Write the ledger as Markdown into this file, too."),
    },
)
