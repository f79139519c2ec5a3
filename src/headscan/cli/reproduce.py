"""`headscan reproduce`: claims of the literature as experiments, with verdicts."""

from __future__ import annotations

import shlex
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

import headscan
from headscan.cli.command import Command


def _before(options: dict[str, Any]) -> bool:
    """--list and --dry-run do without the verb."""
    known = headscan.all_claims()
    if options["list"]:
        for number, claim in known.items():
            print(f"{number:4}  {claim.statement}")
    elif options["dry_run"]:
        for number in headscan.wanted_claims(options.get("claims") or ()):
            said = [dry_run(part) for part in known[number].command.split("; ") if part.startswith("headscan ")]
            for sentence in said:
                print(f"{number:4}  {sentence}")
    return bool(options["list"] or options["dry_run"])


class _Checked(Exception):
    """All that can be checked was; its text is what was found."""


def dry_run(command: str) -> str:
    """Everything of a command that can be checked without its model: its options by the verb's own settings, and its slice by
    the model's configuration. A sentence, or BadInput that names the command.
    """
    words = shlex.split(command)[1:]
    try:
        _checking(words[0]).main(words[1:], standalone_mode=False)
    except _Checked as found:
        return f"{words[0]}: {found}"
    except Exception as error:  # typer carries a click of its own, whose exceptions it does not show
        said = getattr(error, "format_message", None)
        if said is None and not isinstance(error, headscan.BadInput):
            raise
        raise headscan.BadInput(f"{command}: {said() if said else error}") from None
    raise headscan.BadInput(f"{command}: it does not reach its verb.")


@cache
def _checking(name: str) -> Any:
    """A verb's command, which checks and runs nothing."""
    real: Command = import_module(f"headscan.cli.{name}").COMMAND
    record: Any = real.verb().verb  # type: ignore[attr-defined]

    def check(*subject: Any, **options: Any) -> headscan.Result:
        left = {key: value for key, value in options.items() if key not in ("progress", "command")}
        made = record.settings(**left)
        cut = made.slice() if hasattr(made, "slice") else None
        named = subject[0] if subject and isinstance(subject[0], list) else subject
        known = [str(one) for one in named if one not in NOT_MODELS]
        raise _Checked("; ".join(headscan.check_original(one, cut) for one in known) or "its options can be read")

    check.verb = record  # type: ignore[attr-defined]
    one = typer.Typer(add_completion=False)
    one.command(name)(Command(lambda: check, real.subject, real.subject_help, real.arguments).function(name))
    return typer.main.get_command(one)


NOT_MODELS = ("gpt", "bert", "multilingual", "MODEL")
"""What stands for a recipe, or for the model that the command before it made."""


def _page(result: headscan.Result, options: dict[str, Any]) -> None:
    if options["page"] is not None and isinstance(result, headscan.ReproduceResult):
        Path(options["page"]).write_text(headscan.ledger_page(result), encoding="utf-8")


COMMAND = Command(
    verb=lambda: headscan.reproduce,
    subject="",
    arguments={"claims": "[CLAIM...]"},
    extra={
        "list": (bool, "List the claims and run none."),
        "dry_run": (
            bool,
            "Check the commands of the claims on larger models against those models' configurations; run none.",
        ),
        "page": (str, "Write the ledger as Markdown into this file, too."),
    },
    figures=False,
    before=_before,
    after=_page,
)
