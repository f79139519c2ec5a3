"""What every verb shares: settings, the run with its folder, identity, progress and stored parts, results, registries.

- `Option`: what may be asked for, said once in a parameter's type, for Python and the command line
- `verb`: a function whose parameters are the options of a command; `running` gives it its arguments and its `Run`
- `Settings`: a frozen dataclass whose fields are options: the parameters of a method or an objective
- `Run`: the folder (locked), identity, progress, stored parts and protocol of a run that may be interrupted
- `Result`, `Row`, `Protocol`, `Finding`, `ModelRecord`, `TextRecord`: what comes out
- `Term`, `terms_of`: the words of a number, said once in its type
- `Registry`: named things, plug-ins included
- `BadInput`: the input is at fault

This is the lowest floor: it imports nothing of headscan's but itself. Its names are loaded when first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headscan.run.errors import BadInput, disk_is_full

if TYPE_CHECKING:
    from headscan.run.files import check_writable, write_atomic
    from headscan.run.interruption import uninterrupted
    from headscan.run.lock import FolderLock
    from headscan.run.memory import exhausted, halving
    from headscan.run.parts import Part, Parts
    from headscan.run.plaindata import Json, plain
    from headscan.run.presenter import Presenter, present_with
    from headscan.run.progress import Progress, no_progress
    from headscan.run.records import Finding, ModelRecord, Protocol, TextRecord
    from headscan.run.registry import Registry
    from headscan.run.result import Result, read_document
    from headscan.run.rows import Cell, Interval, Row
    from headscan.run.run import Run, fingerprint
    from headscan.run.settings import (
        CommandLine,
        Option,
        OptionField,
        Out,
        Progressing,
        Resume,
        Seed,
        Settings,
        options_of,
    )
    from headscan.run.verbs import VERBS, Given, estimates, running, verb
    from headscan.run.vocabulary import Term, terms_of

__all__ = [
    "VERBS", "BadInput", "Cell", "CommandLine", "Finding", "FolderLock", "Given", "Interval", "Json", "ModelRecord", "Option",
    "OptionField", "Out", "Part", "Parts", "Presenter", "Progress", "Progressing", "Protocol", "Registry", "Result", "Resume",
    "Row", "Run", "Seed", "Settings", "Term", "TextRecord", "check_writable", "disk_is_full", "estimates", "exhausted",
    "fingerprint", "halving", "no_progress", "options_of", "plain", "present_with", "read_document", "running", "terms_of",
    "uninterrupted", "verb", "write_atomic",
]  # fmt: skip

_HOMES = {
    "check_writable": "files", "write_atomic": "files", "uninterrupted": "interruption", "FolderLock": "lock",
    "exhausted": "memory", "halving": "memory", "Part": "parts", "Parts": "parts", "Json": "plaindata", "plain": "plaindata",
    "Progress": "progress", "no_progress": "progress", "Finding": "records", "ModelRecord": "records", "Protocol": "records",
    "TextRecord": "records", "Registry": "registry", "Presenter": "presenter", "Result": "result",
    "present_with": "presenter", "read_document": "result", "Cell": "rows", "Interval": "rows", "Row": "rows", "Run": "run",
    "fingerprint": "run", "Option": "settings", "OptionField": "settings", "Settings": "settings", "options_of": "settings",
    "CommandLine": "settings", "Out": "settings", "Progressing": "settings", "Resume": "settings", "Seed": "settings",
    "Given": "verbs", "estimates": "verbs", "running": "verbs", "Term": "vocabulary", "VERBS": "verbs",
    "terms_of": "vocabulary", "verb": "verbs",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headscan.run' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"headscan.run.{_HOMES[name]}"), name)
