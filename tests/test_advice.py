"""Advice can be followed: every command, option, function, extra and page that the program names
is there.
"""

import importlib
import re
import sys
import tomllib
from pathlib import Path

import pytest

import headscan
from headscan.cli import BARE, command_of, verbs
from headscan.cli.command import DOCS
from headscan.cli.commands import COMMANDS
from headscan.diagnosis import CONDITIONS
from headscan.run import VERBS
from headscan.run.kinds import KINDS

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "scripts"))
import words  # noqa: E402
from registries import ADVICE  # noqa: E402

# What no signature of a verb has: options of the command line itself, and of torchrun.
OTHERS = {"help", "version", "json", "dry-run", "resume", "overwrite", "out", "verbose", "-"}
OTHERS |= {"nproc-per-node", "nnodes", "no-deps", "contribute", "install-completion"}
# Options of llama.cpp's llama-quantize, in the commands that `compare --damage` writes for it.
OTHERS |= {"tensor-type", "token-embedding-type", "output-tensor-type"}
COMMAND = re.compile(r"`headscan ([a-z]+)([^`]*)`")
BARE_COMMAND = re.compile(r"(?<![`\w./])headscan ([a-z]+)")
"""A command as advice names it, without marks: "compare with headscan compare"."""
ENGLISH = {"reads", "does", "cannot", "follows", "runs", "can", "has"}
"""What the program says of itself."""
OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*[a-z])")


@pytest.fixture(scope="module")
def strings():
    """Return (place, string) of all that the program and the laboratory can print."""
    laboratory = words.program_strings(ROOT / "lab" / "src" / "headscan_lab")
    return [*ADVICE.items(), *words.program_strings(), *laboratory]


@pytest.fixture(scope="module")
def options():
    """Return the options of each verb, as the command line spells them."""
    by_verb = {}
    for name in verbs():
        if name in BARE:
            continue
        command = command_of(name)
        command.verb()  # imports it, which registers it
        flags = {option.flag.removeprefix("--") for option in VERBS[name].options()}
        by_verb[name] = flags | {option.replace("_", "-") for option in command.extra}
    return by_verb


def options_that_are_not_there(strings, options):
    known = set().union(OTHERS, *options.values())
    known |= {f"no-{name}" for name in known}
    unknown = []
    for place, text in strings:
        if "python scripts/" not in text and "python lab/scripts/" not in text:
            unknown += [f"{place}: --{name}" for name in OPTION.findall(text) if name not in known]
    return unknown


def commands_that_are_not_there(strings, options):
    wrong = []
    for place, text in strings:
        for verb in BARE_COMMAND.findall(text):
            if verb not in options and verb not in BARE and verb not in ENGLISH:
                wrong.append(f"{place}: headscan {verb}")
        for verb, rest in COMMAND.findall(text):
            if verb not in options and verb not in BARE:
                wrong.append(f"{place}: headscan {verb}")
            for name in OPTION.findall(rest):
                if name not in options.get(verb, set()) | OTHERS:
                    wrong.append(f"{place}: headscan {verb} --{name}")
    return wrong


def test_every_option_that_is_named_is_there(options, strings):
    assert options_that_are_not_there(strings, options) == []


def test_every_command_that_is_named_is_there(options, strings):
    assert commands_that_are_not_there(strings, options) == []


def _is_there(dotted: str) -> bool:
    """Tell whether a name such as `remedies.RemedyTransformer.load` leads somewhere."""
    found = headscan
    for name in dotted.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            try:
                found = importlib.import_module(f"{found.__name__}.{name}")
            except (ModuleNotFoundError, AttributeError):
                return False
    return True


def functions_that_are_not_there(strings):
    wrong = []
    for place, text in strings:
        for dotted in re.findall(r"(?<![\w./])headscan\.((?:\w+\.)*\w+)\(", text):
            if not _is_there(dotted):
                wrong.append(f"{place}: headscan.{dotted}")
    return wrong


def extras_that_are_not_there(strings):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    wrong = []
    for place, text in strings:
        for names in re.findall(r"headscan\[([\w,]+)\]", text):
            wrong += [f"{place}: {name}" for name in names.split(",") if name not in extras]
    return wrong


def pages_that_are_not_there(strings):
    named = []
    for place, text in strings:
        named += [(place, path) for path in re.findall(r"(?:lab/)?docs/[\w/.-]+\.md", text)]
    return [f"{place}: {path}" for place, path in named if not (ROOT / path).is_file()]


def test_every_function_that_is_named_is_there(strings):
    assert functions_that_are_not_there(strings) == []


def test_every_extra_that_is_named_is_there(strings):
    assert extras_that_are_not_there(strings) == []


def test_every_page_that_is_named_is_there(strings):
    named = [(name, f"docs/{command.docs}") for name, command in COMMANDS.items()]
    blob = DOCS.removesuffix("docs/")
    for name in verbs():
        address = "" if name in BARE else command_of(name).docs
        if address.startswith(blob):
            named.append((name, address.removeprefix(blob)))
    assert [f"{place}: {path}" for place, path in named if not (ROOT / path).is_file()] == []
    assert pages_that_are_not_there(strings) == []
    assert DOCS.endswith("/blob/main/docs/")


def test_advice_that_cannot_be_followed_is_found(options):
    planted = [
        ("a", "use --no-such-option"),
        ("b", "see `headscan scna x`"),
        ("c", "`headscan scan x --keep 3`"),
        ("d", "compare with headscan comprae"),
        ("e", "headscan.decone_all(model)"),
        ("f", "pip install 'headscan[nothing]'"),
        ("g", "docs/anatomy.md has it"),
    ]
    assert options_that_are_not_there(planted, options) == ["a: --no-such-option"]
    assert commands_that_are_not_there(planted, options) == [
        "b: headscan scna",
        "c: headscan scan --keep",
        "d: headscan comprae",
    ]
    assert functions_that_are_not_there(planted) == ["e: headscan.decone_all"]
    assert extras_that_are_not_there(planted) == ["f: nothing"]
    assert pages_that_are_not_there(planted) == ["g: docs/anatomy.md"]


def test_the_advice_of_every_finding_is_among_the_strings(strings):
    texts = {text for _, text in strings}
    assert [code for code, item in CONDITIONS.items() if item.todo not in texts] == []
    without = [
        code
        for code in KINDS
        if not code.startswith("HS5") and code not in CONDITIONS and not ADVICE.get(code)
    ]
    assert without == []
