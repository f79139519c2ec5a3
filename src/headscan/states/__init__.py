"""Sources of vectors: a model reading a text, stored states, arrays; what follows does not know which.

`stored_source` opens what a user gives, `ModelSource` is a model with a text; both are a `VectorSource`. One file of
`formats` a format; more come in as plug-ins.
"""

from headscan.states.format import FORMATS, StateFormat, read_states
from headscan.states.layout import verify
from headscan.states.live import ModelSource
from headscan.states.opening import SourceLike, SourcesLike, given_sources, stored_source
from headscan.states.result import StatesResult
from headscan.states.source import Each, VectorSource
from headscan.states.spooled import counted_source
from headscan.states.stored import StoredSource
from headscan.states.vectors import Vectors
from headscan.states.writing import run

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
    "counted_source",
    "given_sources",
    "read_states",
    "run",
    "stored_source",
    "verify",
]
