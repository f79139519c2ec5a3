"""The verbs that the laboratory adds to the command line, by entry points of the group
`headscan.verbs`.
"""

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


def _before(options: dict[str, Any]) -> bool:
    """--list and --dry-run do without the verb."""
    from headscan_lab.ledger.run import all_claims, wanted_claims

    known = all_claims()
    if options["list"]:
        for number, claim in known.items():
            print(f"{number:4}  {claim.statement}")
    elif options["dry_run"]:
        for number in wanted_claims(options.get("claims") or ()):
            for command in known[number].command.split("; "):
                if command.startswith("headscan "):
                    print(f"{number:4}  {dry_run(command)}")
    return bool(options["list"] or options["dry_run"])


def dry_run(command: str) -> str:
    """Check everything of a command that can be checked without its model: its options by
    themselves, and its slice by the model's configuration. Returns a sentence; raises BadInput that
    names the command.
    """
    from cyclopts import CycloptsError

    from headscan.model.slicing import Slice
    from headscan_lab.ledger.named_models import check_original

    name, *words = shlex.split(command)[1:]
    real = command_of(name)
    record: Any = real.verb().verb  # type: ignore[attr-defined]
    said: list[str] = []

    def check(*subject: Any, **options: Any) -> headscan.Result:
        options = {
            key: value for key, value in options.items() if key not in ("progress", "command")
        }
        given = record.arguments(subject, options)
        cut = Slice.parse(given["at"]) if name == "invert" else None
        models = subject[0] if subject and isinstance(subject[0], list) else subject
        said.append(
            "; ".join(check_original(str(one), cut) for one in models if one not in NOT_MODELS)
        )
        raise _Checked

    check.verb = record  # type: ignore[attr-defined]
    checking = Command(verb=lambda: check, subject=real.subject, arguments=real.arguments)
    try:
        checking.app(name)(words, exit_on_error=False, print_error=False)
    except _Checked:
        return f"{name}: {said[0] or 'its options can be read'}"
    except (CycloptsError, headscan.BadInput) as error:
        raise headscan.BadInput(f"{command}: {error}") from None
    raise headscan.BadInput(f"{command}: it does not reach its verb.")


class _Checked(Exception):
    """All that can be checked was."""


NOT_MODELS = ("gpt", "bert", "multilingual", "MODEL")
"""Words that stand for a recipe, or for the model that the command before it made."""


def _page(result: headscan.Result, options: dict[str, Any]) -> None:
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
    before=_before,
    after=_page,
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
