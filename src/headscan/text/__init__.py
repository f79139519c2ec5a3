"""Text: from files, folders, streams, strings and datasets to documents, tokens, windows and
prompts.

Everything streams: neither the corpus nor a document is ever held whole. A scan reads `Windows`;
`batches` groups windows and shares them among processes; `counts` counts contexts; `read_prompts`
reads prompts of any kind; `TextIdentity` tells whether a text is the one that was read before;
`display` makes tokens visible.
"""

from headscan.text.documents import Document, documents
from headscan.text.identity import TextIdentity, TextMark
from headscan.text.pairs import PairSet, read_pair_files, synonyms
from headscan.text.prompts import Limits, Prompt, read_prompt, read_prompts
from headscan.text.source import TextLike, check_text, embedded_names
from headscan.text.spelling import display
from headscan.text.tokens import Stretch, tokenise, tokenizer_identity
from headscan.text.windows import Batch, Window, Windows, batches

__all__ = [
    "Batch",
    "Document",
    "Limits",
    "PairSet",
    "Prompt",
    "Stretch",
    "TextIdentity",
    "TextLike",
    "TextMark",
    "Window",
    "Windows",
    "batches",
    "check_text",
    "display",
    "documents",
    "embedded_names",
    "read_pair_files",
    "read_prompt",
    "read_prompts",
    "synonyms",
    "tokenise",
    "tokenizer_identity",
]


def __dir__() -> list[str]:
    return __all__
