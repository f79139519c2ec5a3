"""Text: from files, folders, streams and datasets to documents, tokens and windows.

Everything streams: neither the corpus nor a document is ever held whole. `Windows` is what a scan asks for;
`batches` groups windows and shares them among processes; `display` makes tokens visible.
"""

from headscan.text.batches import Batch, batches
from headscan.text.display import display
from headscan.text.documents import Document, documents
from headscan.text.pairs import PairSet, read_pairs, synonyms
from headscan.text.shipped import embedded, embedded_names
from headscan.text.tokens import Stretch, tokenise
from headscan.text.windows import Window, Windows

__all__ = [
    "Batch",
    "Document",
    "PairSet",
    "Stretch",
    "Window",
    "Windows",
    "batches",
    "display",
    "documents",
    "embedded",
    "embedded_names",
    "read_pairs",
    "synonyms",
    "tokenise",
]
