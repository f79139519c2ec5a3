"""A command is made of its verb's settings: every option is there once, and one that is not used is
refused by name.
"""

import inspect
import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal
from unittest import mock

import pytest
from rich.text import Text

import headscan as package
from headscan import cli
from headscan.cli.command import Command
from headscan.run import (
    CommandLine,
    Option,
    Out,
    Progressing,
    Registry,
    Result,
    Run,
    Settings,
    verb,
)
from tests.command_line import headscan

METHODS: Registry[type] = Registry("method")


@METHODS.register("plain")
@dataclass(frozen=True, kw_only=True)
class Plain(Settings):
    pass


@METHODS.register("stepped")
@dataclass(frozen=True, kw_only=True)
class Stepped(Settings):
    steps: Annotated[int | None, Option("Nodes [of the path].", low=1)] = None


@dataclass(frozen=True, kw_only=True, repr=False)
class Worked(Result):
    kind: ClassVar[str] = "test-worked"
    observed: str

    def page(self) -> str:
        return "<p>"

    def table(self) -> Text:
        return Text(self.observed)


@verb("work")
def work(
    run: Run,
    model: str,
    prompt: Annotated[
        list[str] | None, Option("A prompt; again for more.", repeat=True, content=True)
    ] = None,
    *,
    method: Annotated[str | Settings, Option("How.", choices=METHODS)] = "plain",
    verify: Annotated[bool, Option("Whether to check.")] = True,
    null: Annotated[bool, Option("Add a null.")] = False,
    dtype: Annotated[Literal["auto", "float32"], Option("Weights.")] = "auto",
    share: Annotated[float, Option("A share, 0 to 1.", low=0, high=1)] = 0.5,
    out: Out = None,
    command: CommandLine = None,
    progress: Progressing = None,
) -> Worked:
    return Worked(protocol=run.protocol(), observed=repr((model, prompt, method, verify, share)))


def run(*args, status=0):
    out = io.StringIO()
    err = io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["headscan", "work", *args]),
        mock.patch.object(cli, "command_of", return_value=Command(verb=lambda: work)),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as leaving,
    ):
        cli.main()
    code = leaving.value.code or 0
    assert code == status, err.getvalue()
    return out.getvalue() if status == 0 else err.getvalue()


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_what_is_not_given_keeps_the_settings_default():
    assert "('m', None, 'plain', True, 0.5)" in run("m")


def test_options_reach_the_settings_and_the_items():
    arguments = (
        "m",
        "--prompt",
        "a",
        "--prompt",
        "b",
        "--method",
        "stepped:steps=4",
        "--no-verify",
        "--share",
        ".25",
    )
    assert "('m', ['a', 'b'], 'stepped:steps=4', False, 0.25)" in run(*arguments).replace("\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--method", "plain:steps=4"),
            "steps is not a parameter of the method plain; it belongs to stepped.",
        ),
        (("--method", "stepped:steps=0"), "steps must be at least 1"),
        (("--method", "auto"), "no method 'auto'"),
        (("--share", "nan"), "--share must be a finite number"),
        (("--out", "/dev/null/x"), "cannot be written"),
        (("--nosuch", "1"), "nosuch"),
        (("--dtype", "float8"), "float8"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_exit_2(arguments, message):
    err = run("m", *arguments, status=2)
    assert message in " ".join(err.replace("│", " ").split())
    assert "Traceback" not in err


def test_help_shows_brackets_defaults_and_whose_an_option_is():
    text = " ".join(run("--help").replace("│", " ").split())
    assert "stepped: steps= Nodes [of the path]." in text
    assert "Default: 0.5" in text
    assert "--no-verify" in text
    assert "--no-null" not in text
    assert "--command" not in text


def test_json_is_alone_on_standard_output():
    assert json.loads(run("m", "--json"))["kind"] == "test-worked"


def test_a_reader_that_has_seen_enough_is_no_fault():
    code = "from headscan import cli; cli.run = lambda words: print('line\\n' * 10**6); cli.main()"
    line = f'{sys.executable} -c "{code}" | head -1; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "line\n", "")


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (("scna", "gpt-vanilla"), "scan"),
        (("scan", "gpt-vanilla", "--max_token=5"), "--max-tokens"),
        (("scan", "gpt-vanila", "--text", "stories"), "gpt-vanilla"),
        (("train", "gpd", "--text", "stories"), "gpt"),
        (("invert", "gpt-vanilla", "--prompt", "a", "--method", "exakt"), "exact"),
    ],
)
def test_the_nearest_name_is_suggested(arguments, suggestion):
    ended = headscan(*arguments)
    assert ended.status == 2
    assert "Did you mean" in ended.stderr
    assert suggestion in ended.stderr.partition("Did you mean")[2]


def test_every_tool_sees_a_verbs_own_signature():
    """TAB shows the public names alone; a signature has every option with its type; a wrong keyword
    names the verb.
    """
    assert dir(package) == package.__all__
    assert len(package.__all__) <= 32
    signature = inspect.signature(package.scan)
    context = signature.parameters["context"]
    assert signature.parameters["skip_first"].annotation is int
    assert signature.parameters["skip_first"].default == 0
    assert context.annotation.__name__ == "Context"
    assert context.default is None
    options = {option.name: option for option in package.scan.verb.options()}
    assert options["context"].option.help.count("Default: 128;") == 1
    assert "Option(" not in str(signature)
    with pytest.raises(
        TypeError, match=r"scan\(\) has no option 'contxt'. Did you mean 'context'\?"
    ):
        package.scan("gpt-vanilla", "stories", contxt=3)


def test_help_groups_the_options_and_shows_an_example():
    text = headscan("invert", "--help").stdout
    for heading in ("Input", "Limits", "Method", "Output", "Advanced", "Example:", "inversion.md"):
        assert heading in text


def test_the_command_line_has_at_most_365_options():
    """The sum over all verbs; an option that several verbs have is counted in each of them.

    `--overwrite` is an option of each of the 17 verbs, `--fail-on` of each of the 9 with findings,
    `--start` of each of the 9 that read texts from their start token on. `--compress` and
    `--formats` ask two questions of verbs that were there.
    """
    commands = {name: cli.command_of(name) for name in cli.verbs() if name not in cli.BARE}
    flags = {
        (name, argument.names[0])
        for name, command in commands.items()
        for argument in command.app(name).assemble_argument_collection()
        if argument.names and argument.names[0].startswith("--")
    }
    assert 200 < len(flags) <= 365
