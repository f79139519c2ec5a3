"""Sources of vectors: a model reading a text, stored states, arrays; what follows does not know
which.

`stored_source` opens what a user gives, `ModelSource` is a model with a text; both are a
`VectorSource`. One file of `formats` a format; more come in as plug-ins.
"""

from headscan.run.verbs import make_callable
from headscan.states.formats.folders import verify
from headscan.states.source import Each, ModelSource, VectorSource
from headscan.states.stored import (
    SourceLike,
    SourcesLike,
    StoredSource,
    given_sources,
    stored_source,
)
from headscan.states.vectors import FORMATS, StateFormat, Vectors, read_states
from headscan.states.writing import StatesResult, run

__all__ = [
    "FORMATS",
    "Each",
    "ModelSource",
    "SourceLike",
    "SourcesLike",
    "StateFormat",
    "StatesResult",
    "StoredSource",
    "VectorSource",
    "Vectors",
    "given_sources",
    "read_states",
    "run",
    "stored_source",
    "verify",
]


def __dir__() -> list[str]:
    return __all__


make_callable(__name__)
