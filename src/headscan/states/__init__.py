"""Sources of vectors: a model reading a text, stored states, arrays; what follows does not know which.

`stored_source` opens what a user gives, `ModelSource` is a model with a text; both are a `VectorSource`. One file of
`formats` a format; more come in as plug-ins.
"""

from headscan.states.format import FORMATS, StateFormat, read_states
from headscan.states.live import ModelSource
from headscan.states.opening import SourceLike, SourcesLike, given_sources, stored_source
from headscan.states.source import Each, VectorSource
from headscan.states.stored import StoredSource
from headscan.states.vectors import Vectors

__all__ = [
    "FORMATS",
    "Each",
    "ModelSource",
    "SourceLike",
    "SourcesLike",
    "StateFormat",
    "StoredSource",
    "VectorSource",
    "Vectors",
    "given_sources",
    "read_states",
    "stored_source",
]
