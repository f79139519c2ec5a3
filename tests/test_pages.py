"""The pages that users read: short, in plain English, and true: every command and every snippet
runs, on fewer tokens than the page says so that this takes seconds.
"""

import re
import shlex
import sys
import warnings
from pathlib import Path

import pytest

from headscan import cli
from tests.command_line import headscan

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "scripts"))
import samples  # noqa: E402
import words  # noqa: E402

PAGES = [page for kind in words.USER_KINDS for page in words.pages(kind)]
COMMAND = re.compile(r"^ {4}(\$ )?(?:.*-m |\.venv/bin/)?headscan (\w[^\n]*)$", re.MULTILINE)
NEEDS = re.compile(r"^# needs: ")
"""The first line of a snippet that needs what only a user has; it is compiled and not run."""
TOKENS = "384"
CHEAPER = {
    "checkup": ["--max-tokens", TOKENS, "--context", "64"],
    "scan": ["--max-tokens", TOKENS],
    "states": ["--max-tokens", TOKENS],
    "compare": ["--max-tokens", TOKENS, "--context", "32", "--sample", "64", "--draws", "19"],
    "privacy": ["--candidates", "32", "--length", "4"],
    "attribute": ["--no-faithfulness"],
}
README = (ROOT / "README.md").read_text(encoding="utf-8")
RUN_IN_FULL = {step["shell"] for step in samples.STEP.finditer(README) if step["shell"]}
"""Commands that `test_readme_shows_what_its_command_prints` runs as they are."""
STORED = re.compile(r"\.(?:npy|parquet|pt)\b|^scan states$")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_users_read_at_most_15_000_words():
    total = sum(len(page.read_text(encoding="utf-8").split()) for page in PAGES)
    assert 8_000 < total <= 15_000


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_is_plain_and_describes_the_present(page):
    text = words.prose(page)
    assert words.faults(text) == []
    assert not re.search(r"earlier version|\(tested\)|busy machine|\bload \d", text)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_has_these_options(page):
    known = {}
    for _, line in COMMAND.findall(page.read_text(encoding="utf-8")):
        verb, *options = shlex.split(line, comments=True)
        if verb not in known and verb not in cli.BARE:
            app = cli.command_of(verb).app(verb)
            names = [argument.names for argument in app.assemble_argument_collection()]
            known[verb] = {name for group in names for name in group}
        assert verb in cli.verbs() or verb == "VERB", line
        unknown = {word.partition("=")[0] for word in options if word.startswith("--")}
        assert unknown <= known.get(verb, unknown) | {"--help"}, line


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if samples.STEP.search(page.read_text(encoding="utf-8"))],
    ids=name_of,
)
def test_snippets_and_commands_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for step in samples.STEP.finditer(page.read_text(encoding="utf-8")):
        code = step["python"]
        if code is None and step["shell"] in RUN_IN_FULL:
            continue
        if code is None:
            words_of = cheap(shlex.split(step["shell"])[1:])
            ended = headscan(*words_of)
            assert ended.status == 0, (words_of, ended.stderr)
        elif ">>>" not in code:  # doctests are run by pytest itself
            compiled = compile(code, name_of(page), "exec")
            if not NEEDS.match(code):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    exec(compiled, names)


def test_readme_shows_what_its_command_prints(tmp_path, monkeypatch):
    """In full, as a newcomer types it; scripts/samples.py does the same for all pages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", samples.COLUMNS)
    commands = [step for step in samples.STEP.finditer(README) if step["shell"]]
    assert len(commands) == 1
    for step in commands:
        output = headscan(*shlex.split(step["shell"])[1:]).output
        assert samples.differences(step["printed"], output) == []
        changed = step["printed"].replace("0.449", "0.448")
        assert len(samples.differences(changed, output)) == 1


def cheap(arguments: list[str]) -> list[str]:
    """Return a command that reads less; what it says it reads is left out."""
    verb = arguments[0]
    if STORED.search(" ".join(arguments)):
        return [*arguments, *(["--draws", "19"] if verb == "compare" else [])]
    if verb == "checkup":
        arguments = [word for word in arguments if word != "gpt-vanilla-early"]
    limits = list(CHEAPER.get(verb, []))
    if "--damage" in arguments:
        limits = ["--max-tokens", TOKENS, "--context", "32", "--sample", "64"]
    kept = []
    skip = False
    for word in arguments:
        if not skip and word not in limits:
            kept.append(word)
        skip = word in limits
    return kept + limits


def test_pages_that_the_program_names_exist():
    """`--help` of a verb and messages lead to pages of docs/."""
    from headscan.cli.commands import COMMANDS

    named = {command.docs for command in COMMANDS.values() if command.docs}
    for _, text in words.program_strings():
        named |= set(re.findall(r"\bdocs/([\w/-]+\.md)", text))
    assert [page for page in sorted(named) if not (ROOT / "docs" / page).is_file()] == []
