"""What every verb shares: settings, the run with its folder, identity, progress and stored parts,
results, registries.

- `Option`: what may be asked for, said once in a parameter's type, for Python and the command line
- `verb`: a function whose parameters are the options of a command; `running` gives it its arguments
  and its `Run`
- `Settings`: a frozen dataclass whose fields are options: the parameters of a method or an
  objective
- `Run`: the folder (locked), identity, progress, stored parts and protocol of a run that may be
  interrupted
- `Result`, `Row`, `Protocol`, `Finding`, `ModelRecord`, `TextRecord`: what comes out
- `Term`, `terms_of`: the words of a number, said once in its type
- `Registry`: named things, plug-ins included
- `BadInput`: the input is at fault

This is the lowest floor: it imports nothing of headscan's but itself, and no library that computes.
"""

from headscan.run.errors import BadInput, MachineLimit, disk_is_full
from headscan.run.exhaustion import exhausted, halving
from headscan.run.files import FolderLock, check_writable, uninterrupted, write_atomic
from headscan.run.parts import Part, Parts
from headscan.run.registry import Named, Registry
from headscan.run.result import DataFrame, Presenter, Result, dataframe, read_document, tidy
from headscan.run.rows import (
    Cell,
    Finding,
    FindingDetails,
    Interval,
    Json,
    Level,
    ModelRecord,
    Protocol,
    Row,
    TextRecord,
    plain,
)
from headscan.run.run import PENDING, Run, fingerprint
from headscan.run.settings import (
    Baseline,
    CommandLine,
    FindingOptions,
    Ignore,
    Option,
    OptionField,
    Out,
    Overwrite,
    Progress,
    Progressing,
    Resume,
    RunOptions,
    Seed,
    Settings,
    names_in,
    no_progress,
    options_of,
)
from headscan.run.verbs import VERBS, estimates, verb
from headscan.run.vocabulary import Term, terms_of

__all__ = [
    "PENDING",
    "VERBS",
    "BadInput",
    "Baseline",
    "Cell",
    "CommandLine",
    "DataFrame",
    "Finding",
    "FindingDetails",
    "FindingOptions",
    "FolderLock",
    "Ignore",
    "Interval",
    "Json",
    "Level",
    "MachineLimit",
    "ModelRecord",
    "Named",
    "Option",
    "OptionField",
    "Out",
    "Overwrite",
    "Part",
    "Parts",
    "Presenter",
    "Progress",
    "Progressing",
    "Protocol",
    "Registry",
    "Result",
    "Resume",
    "Row",
    "Run",
    "RunOptions",
    "Seed",
    "Settings",
    "Term",
    "TextRecord",
    "check_writable",
    "dataframe",
    "disk_is_full",
    "estimates",
    "exhausted",
    "fingerprint",
    "halving",
    "names_in",
    "no_progress",
    "options_of",
    "plain",
    "read_document",
    "terms_of",
    "tidy",
    "uninterrupted",
    "verb",
    "write_atomic",
]


def __dir__() -> list[str]:
    return __all__
