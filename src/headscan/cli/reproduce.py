"""`headscan reproduce`: claims of the literature as experiments, with verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import headscan
from headscan.cli.options import Json, Out
from headscan.cli.output import command_line, default_folder, progress_bar, show

__all__ = ["reproduce"]


def reproduce(
    claims: Annotated[
        list[str] | None, typer.Argument(metavar="[CLAIM...]", help="Numbers or ranges, such as 7 or 10-12.")
    ] = None,
    only_list: Annotated[bool, typer.Option("--list", help="List the claims and run none.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the experiments.")] = 0,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the ledger as Markdown into this file, too.")
    ] = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Run claims of the literature as experiments: reproduced, artefact, not reproduced, or needs a larger model."""
    if only_list:
        for number, entry in headscan.all_claims().items():
            print(f"{number:4}  {entry.statement}")
        return
    folder = out or default_folder("reproduce", *(claims or ["all"]))
    with progress_bar() as progress:
        result = headscan.reproduce(claims or (), seed=seed, out=folder, command=command_line(), progress=progress)
    if page is not None:
        page.write_text(headscan.ledger_page(result.document), encoding="utf-8")
    show(result, folder, as_json=json)
