"""Options that several verbs share, each worded once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Device", "Json", "Out", "Quantize", "Revision", "Tokenizer", "TrustRemoteCode"]

Tokenizer = Annotated[
    str | None, typer.Option(help="Id or folder of a tokenizer that is not the model's own, or 'bytes'.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]
Quantize = Annotated[str | None, typer.Option(help="8bit or 4bit (needs headscan[quantize]).")]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit of a Hugging Face id.")]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that comes with the model. Off unless asked.")
]
Out = Annotated[Path | None, typer.Option(help="Folder of the result. Default: under headscan-results/.")]
Json = Annotated[bool, typer.Option("--json", help="Print result.json, and nothing else, on standard output.")]
