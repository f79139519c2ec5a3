"""`headscan models`: which models can be named without a download."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

import headscan


def models(
    json: Annotated[bool, typer.Option("--json", help="Print the list as JSON on standard output.")] = False,
) -> None:
    """List the embedded specimens and the models in the local Hugging Face cache."""
    found = headscan.available_models()
    if json:
        import json as writer

        print(writer.dumps([asdict(entry) for entry in found], indent=1))
        return
    for entry in found:
        print(f"{entry.name:40} {entry.kind:10} {entry.about}")
