"""Text: from files, folders, streams, strings and datasets to documents, tokens, windows and
prompts.

Everything streams: neither the corpus nor a document is ever held whole. `Windows` is what a scan
asks for; `batches` groups windows and shares them among processes; `counts` counts contexts;
`read_prompts` reads prompts of any kind; `TextIdentity` says whether a text is the one that was
read before; `display` makes tokens visible.
"""

from headscan.text.documents import Document, PairSet, documents, read_pair_files, synonyms
from headscan.text.prompts import Limits, Prompt, display, read_prompt, read_prompts
from headscan.text.source import TextIdentity, TextLike, TextMark, check_text, embedded_names
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
