"""The verbs that the laboratory adds to the command line, by entry points of `headscan.verbs`."""

import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

import headscan
from headscan.cli import command_of
from headscan.cli.command import Command

LAB = "https://github.com/headscan/headscan/blob/main/lab/docs/"
NOT_MODELS = ("gpt", "bert", "multilingual", "MODEL")
"""Words that stand for a recipe, or for the model that an earlier command made."""


def _verb(module: str, name: str) -> Any:
    return getattr(import_module(f"headscan_lab.{module}"), name)


def _list_or_check(options: dict[str, Any]) -> bool:
    """Do what --list and --dry-run ask for; return whether the verb is not needed then."""
    from headscan_lab.ledger.run import all_claims, wanted_claims

    ledger = all_claims()
    if options["list"]:
        for number, claim in ledger.items():
            print(f"{number:4}  {claim.statement}")
    elif options["dry_run"]:
        for number in wanted_claims(options.get("claims") or ()):
            for command in ledger[number].command.split("; "):
                if command.startswith("headscan "):
                    print(f"{number:4}  {dry_run(command)}")
    return bool(options["list"] or options["dry_run"])


def dry_run(command: str) -> str:
    """Check what can be checked of a command without its model; return a sentence.

    Its options are checked by themselves, and its slice by the model's configuration.

    Raises:
        BadInput: for a command that cannot be run; the message names it.
    """
    from cyclopts import CycloptsError

    name, *words = shlex.split(command)[1:]
    real = command_of(name)
    record: Any = real.verb().verb  # type: ignore[attr-defined]

    def check(*subject: Any, **options: Any) -> headscan.Result:
        raise _Checked(_checked_sentence(name, record, subject, options))

    check.verb = record  # type: ignore[attr-defined]
    checking = Command(verb=lambda: check, subject=real.subject, arguments=real.arguments)
    try:
        checking.app(name)(words, exit_on_error=False, print_error=False)
    except _Checked as checked:
        return f"{name}: {checked.sentence or 'its options can be read'}"
    except (CycloptsError, headscan.BadInput) as error:
        raise headscan.BadInput(f"{command}: {error}") from None
    raise headscan.BadInput(f"{command}: it does not reach its verb.")


def _checked_sentence(
    name: str, record: Any, subject: tuple[Any, ...], options: dict[str, Any]
) -> str:
    """Return a sentence on the models of a verb's call, whose arguments are checked."""
    from headscan.model.slicing import Slice
    from headscan_lab.ledger.named_models import check_original

    for option in ("progress", "command"):
        options.pop(option, None)
    arguments = record.arguments(subject, options)
    cut = Slice.parse(arguments["at"]) if name == "invert" else None
    models = subject[0] if subject and isinstance(subject[0], list) else subject
    return "; ".join(check_original(str(m), cut) for m in models if m not in NOT_MODELS)


class _Checked(Exception):
    """Raised in place of running a verb whose arguments were checked."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


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
    about="Test claims of the literature as experiments, with verdicts.",
    example="7 15",
    docs=f"{LAB}ledger.md",
    before=_list_or_check,
    after=_write_page,
    extra={
        "list": (bool, "List the claims and run none."),
        "dry_run": (
            bool,
            "Check the commands of the claims on larger models against those models' "
            "configurations; run none.",
        ),
        "page": (str, "Write the ledger as Markdown into this file, too."),
    },
)
