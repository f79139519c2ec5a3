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
from headscan.run import VERBS

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "scripts"))
import words  # noqa: E402

# What no signature of a verb has: options of the command line itself, and of torchrun.
OTHERS = {"help", "version", "json", "dry-run", "resume", "overwrite", "out", "verbose", "-"}
OTHERS |= {"nproc-per-node", "nnodes", "no-deps", "contribute", "install-completion"}
# Options of llama.cpp's llama-quantize, in the commands that `compare --damage` writes for it.
OTHERS |= {"tensor-type", "token-embedding-type", "output-tensor-type"}
COMMAND = re.compile(r"`headscan ([a-z]+)([^`]*)`")
OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*[a-z])")


@pytest.fixture(scope="module")
def strings():
    """Return (place, string) of all that the program and the laboratory can print."""
    laboratory = words.program_strings(ROOT / "lab" / "src" / "headscan_lab")
    return [*words.program_strings(), *laboratory]


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


def test_every_option_that_is_named_is_there(options, strings):
    known = set().union(OTHERS, *options.values())
    known |= {f"no-{name}" for name in known}
    unknown = []
    for place, text in strings:
        if "python scripts/" not in text and "python lab/scripts/" not in text:
            unknown += [f"{place}: --{name}" for name in OPTION.findall(text) if name not in known]
    assert unknown == []


def test_every_command_that_is_named_is_there(options, strings):
    wrong = []
    for place, text in strings:
        for verb, rest in COMMAND.findall(text):
            if verb not in options and verb not in BARE:
                wrong.append(f"{place}: headscan {verb}")
            for name in OPTION.findall(rest):
                if name not in options.get(verb, set()) | OTHERS:
                    wrong.append(f"{place}: headscan {verb} --{name}")
    assert wrong == []


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


def test_every_function_that_is_named_is_there(strings):
    wrong = []
    for place, text in strings:
        for dotted in re.findall(r"(?<![\w./])headscan\.((?:\w+\.)*\w+)\(", text):
            if not _is_there(dotted):
                wrong.append(f"{place}: headscan.{dotted}")
    assert wrong == []


def test_every_extra_that_is_named_is_there(strings):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    wrong = []
    for place, text in strings:
        for names in re.findall(r"headscan\[([\w,]+)\]", text):
            wrong += [f"{place}: {name}" for name in names.split(",") if name not in extras]
    assert wrong == []


def test_every_page_that_is_named_is_there(strings):
    named = [(name, f"docs/{command.docs}") for name, command in COMMANDS.items()]
    blob = DOCS.removesuffix("docs/")
    for name in verbs():
        address = "" if name in BARE else command_of(name).docs
        if address.startswith(blob):
            named.append((name, address.removeprefix(blob)))
    for place, text in strings:
        named += [(place, path) for path in re.findall(r"(?:lab/)?docs/[\w/.-]+\.md", text)]
    assert [f"{place}: {path}" for place, path in named if not (ROOT / path).is_file()] == []
    assert DOCS.endswith("/blob/main/docs/")
