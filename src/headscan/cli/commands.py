"""How each verb of the instrument is called from the command line: what it is applied to, an
example, its page.
"""

import shlex
import sys
import webbrowser
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from json import dumps
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

import headscan
from headscan.cli.again import bare_app
from headscan.cli.again import rerun_app as rerun_app
from headscan.cli.command import (
    FAIL_ON,
    FAIL_ON_HELP,
    MODEL_HELP,
    SOURCE_HELP,
    Command,
)
from headscan.cli.guard import shown
from headscan.cli.listing import write_index
from headscan.run import write_atomic
from headscan.run.saving import finish_replacement

AsJson = Annotated[bool, Parameter(help="Print the list as JSON on standard output.")]
MODELS_HELP = "Hugging Face ids, local folders, .gguf files, or example models."
TEXT_HELP = (
    "A .txt, .jsonl or .parquet file (also .gz, .zst), a folder of them, - for standard input, a "
    "datasets id, or an embedded text."
)
FOUND = 3
"""The exit status where a finding that --fail-on names is there, or a policy fails."""


def _estimate(module: str, verb: str) -> Callable[[], Any]:
    return lambda: getattr(import_module(f"headscan.{module}"), f"estimate_{verb}")


def _before_checkup(options: dict[str, Any]) -> bool:
    from headscan.diagnosis.publish import check_contribution

    if options["contribute"] is not None:
        check_contribution(options["contribute"], resume=bool(options.get("resume")))
    return False


def _after_checkup(result: headscan.Result, options: dict[str, Any]) -> int | None:
    from headscan.diagnosis import CheckupResult
    from headscan.diagnosis.publish import contribute

    assert isinstance(result, CheckupResult)
    if options["contribute"] is not None and not (file := Path(options["contribute"])).exists():
        contribute(result, file)
    return FOUND if result.failed else None


COMMANDS = {
    "checkup": Command(
        verb=lambda: headscan.checkup,
        subject="SOURCE...",
        subject_help=SOURCE_HELP,
        docs="checkup.md",
        example="gpt-vanilla gpt-headless --text stories --max-tokens 4096",
        before=_before_checkup,
        after=_after_checkup,
        extra={
            "verbose": (bool, "Print all tables and findings of the page, too (-v)."),
            "contribute": (
                str,
                "New file for the models' rows; a pull request can add them to the reference "
                "population.",
            ),
        },
    ),
    "scan": Command(
        verb=lambda: headscan.scan,
        subject="SOURCE...",
        subject_help=SOURCE_HELP,
        distributed=True,
        docs="tutorials/first-scan.md",
        example="gpt-vanilla gpt-headless --text stories --max-tokens 4096",
        estimate=_estimate("scanner.run", "scan"),
    ),
    "compare": Command(
        verb=lambda: headscan.compare,
        subject="SOURCE...",
        subject_help=SOURCE_HELP,
        docs="compare.md",
        example="gpt-vanilla gpt-headless --text stories --max-tokens 4096",
        estimate=_estimate("comparison.run", "compare"),
        after=lambda result, _options: FOUND if getattr(result, "failed", None) else None,
    ),
    "states": Command(
        verb=lambda: headscan.states.run,
        docs="states.md",
        estimate=_estimate("states.writing", "states"),
        example="gpt-vanilla --text stories --sites 'block.*' --out states",
    ),
    "ntp": Command(
        verb=lambda: headscan.ntp.run,
        subject="TEXT",
        subject_help=TEXT_HELP,
        docs="ntp.md",
        example="stories --tokenizer gpt-vanilla --order 2 --max-tokens 4096",
    ),
    "invert": Command(
        verb=lambda: headscan.invert,
        docs="inversion.md",
        example="gpt-vanilla --prompt 'Once upon a time' --at block.1",
    ),
    "privacy": Command(
        verb=lambda: headscan.privacy,
        docs="leaks.md",
        example="gpt-vanilla --text stories --sites block.0 --noise 0,0.8",
        after=lambda result, _: FOUND if getattr(result, "verdict", None) == "fail" else None,
    ),
    "attribute": Command(
        verb=lambda: headscan.attribute,
        docs="attribution.md",
        example="gpt-vanilla --prompt 'Once upon a' --method occlusion",
    ),
    "flow": Command(
        verb=lambda: headscan.flow.run,
        subject="MODEL...",
        subject_help=MODELS_HELP,
        docs="flow.md",
        example="gpt-vanilla --prompt 'Once upon a time' --at block.1",
    ),
    "channel": Command(
        verb=lambda: headscan.flow.channel,
        subject="MODEL...",
        subject_help=MODELS_HELP,
        docs="flow.md",
        example="gpt-vanilla --prompt 'Once upon a time' --at block.1",
    ),
    "weights": Command(
        verb=lambda: import_module("headscan.weights").run, docs="weights.md", example="gpt-vanilla"
    ),
    "train": Command(
        verb=lambda: headscan.train,
        subject="RECIPE",
        subject_help="gpt, bert, multilingual or mixer.",
        docs="training.md",
        example="gpt --text stories --size tiny --objective cwt --steps 20 --out my-model",
        extra={FAIL_ON: (str, FAIL_ON_HELP)},
    ),
    "recover": Command(
        verb=lambda: headscan.training.recover,
        docs="training.md",
        example="gpt-headless --text stories --max-tokens 4096",
    ),
    "remedy": Command(
        verb=lambda: headscan.remedy,
        subject="SOURCE",
        docs="remedies.md",
        subject_help="A sentence encoder (with --pairs) or stored vectors: a file, folder or URL "
        "of a column of embeddings.",
        example="embeddings.npy --export standardise --out remedied",
    ),
}
"""Every verb of the instrument but `figures`, `models` and `open`, which make no result."""


def figures_app() -> App:
    """The command `figures`: the figures of a saved result's page, as files for a paper."""
    app = bare_app("figures", "Write the figures of a saved result as SVG and PDF.")

    @app.default
    def written(
        result: Annotated[str, Parameter(help="Folder of a saved result.")],
        folder: Annotated[
            str,
            Parameter(
                help="Folder for the files (needs headscan[figures] and Chrome or Chromium)."
            ),
        ],
        /,
    ) -> None:
        saved = headscan.load(result)
        try:
            paths = saved.save_figures(folder)
        except (
            ArithmeticError,
            AssertionError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:
            if isinstance(error, headscan.BadInput):
                raise
            raise headscan.BadInput(
                f"{result} holds a result whose parts do not go together: {error}."
            ) from error
        for path in paths:
            print(path)

    return app


def models_app() -> App:
    """Return the command `models`: example models, and those in the local Hugging Face cache."""
    app = bare_app("models", "List the models available offline.")

    @app.default
    def listed(
        *,
        json: AsJson = False,
    ) -> None:
        entries = headscan.available_models()
        if json:
            print(dumps([asdict(entry) for entry in entries], indent=1))
            return
        for entry in entries:
            print(f"{entry.name:40} {entry.kind:10} {entry.about}")
        print("next: headscan checkup MODEL --text TEXT")

    return app


def sites_app() -> App:
    """Return the command `sites`: the names that --sites and --at take, before a text is read."""
    app = bare_app(
        "sites", "List the sites of a model: name, width, module, parameters. No text is read."
    )

    @app.default
    def listed(
        model: Annotated[str, Parameter(help=MODEL_HELP)],
        /,
        *,
        json: AsJson = False,
    ) -> None:
        lens = headscan.Lens.load(model)
        rows = lens.describe_sites()
        if json:
            print(dumps([asdict(row) for row in rows], indent=1))
            return
        print(f"{lens!r}; a state has the shape [windows, tokens, width].")
        print(f"{'site':28} {'width':>7} {'parameters':>12}  read at")
        for row in rows:
            parameters = "" if row.parameters is None else f"{row.parameters:,}"
            print(f"{row.site:28} {row.width:7,} {parameters:>12}  {row.place}")
        print(f"next: headscan scan {shlex.quote(model)} --text TEXT --sites 'block.*'")

    return app


def open_app() -> App:
    """The command `open`: a saved result's page in the browser, where one can be started; else its
    address.
    """
    app = bare_app("open", "Show the page of a saved result, or a list of the results in a folder.")

    @app.default
    def opened(
        result: Annotated[
            str, Parameter(help="Folder of a result, or of several. Default: headscan-results.")
        ] = "headscan-results",
        /,
    ) -> None:
        folder = Path(result)
        if not folder.is_dir():
            raise headscan.BadInput(
                f"There is no folder {result}: run a verb first, or name a result's folder."
            )
        finish_replacement(folder)
        page = folder / "report.html"
        if (folder / "result.json").is_file():
            if not page.is_file():
                write_atomic(page, headscan.load(folder).page().encode())
        else:
            page = write_index(folder)
        address = page.resolve().as_uri()
        print(f"page: {shown(address)}")
        if sys.stdout.isatty():
            webbrowser.open(address)

    return app
