"""`headscan scan`: the shape of a model's representations on a text."""

from __future__ import annotations

from typing import Annotated

import typer

import headscan
from headscan.cli.options import Device, Json, Out, Quantize, Revision, Tokenizer, TrustRemoteCode
from headscan.cli.output import command_line, default_folder, progress_bar, show
from headscan.cli.processes import joined

__all__ = ["scan"]


def scan(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="Hugging Face ids, local folders, or embedded specimens.")
    ],
    text: Annotated[
        str,
        typer.Option(
            help="A .txt, .jsonl or .parquet file (also .gz, .zst), a folder of them, - for standard input, "
            "a datasets id, or an embedded text."
        ),
    ],
    context: Annotated[int, typer.Option(help="Tokens of a window; one window is one row of a forward pass.")] = 128,
    max_tokens: Annotated[int | None, typer.Option(help="Stop after so many tokens (whole windows).")] = None,
    sites: Annotated[
        str | None,
        typer.Option(help="Globs of sites, comma-separated, such as 'block.*,head'. Default: embedding, blocks, norm."),
    ] = None,
    skip_first: Annotated[int, typer.Option(help="Leave out the first so many positions of each window.")] = 0,
    documents: Annotated[
        str, typer.Option(help="How a .txt falls into documents: whole, lines, paragraphs, or a separator.")
    ] = "whole",
    field: Annotated[str, typer.Option(help="The field of a .jsonl or .parquet row that is its document.")] = "text",
    null: Annotated[
        bool, typer.Option("--null", help="Scan a randomly initialised twin and add the Gaussian null.")
    ] = False,
    tokenizer: Tokenizer = None,
    sample: Annotated[int, typer.Option(help="Tokens shown in the 3-D picture.")] = 600,
    token_sums: Annotated[
        bool, typer.Option("--token-sums", help="Keep the sum of the vectors of each token id, too.")
    ] = False,
    measures: Annotated[
        str | None,
        typer.Option(
            help="More measures: globs of names or groups, comma-separated (such as 'rogue,words,spectra'), 'all' but the "
            "expensive ones, or 'expensive' for everything. Expensive ones say their time and memory first."
        ),
    ] = None,
    revisions: Annotated[
        str | None,
        typer.Option(
            help="Revisions of one Hugging Face id, in order, comma-separated: one model each, as checkpoints."
        ),
    ] = None,
    pairs: Annotated[
        list[str] | None,
        typer.Option(
            help="A file of pairs of texts that mean the same, for --measures alignment (again for more): .tsv of two columns, "
            ".csv as STS-B, .json as PUD; FILE or NAME=FILE. Default: a list of English synonyms."
        ),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(help="Windows of a forward pass. Default: about 2,048 tokens, 16,384 on a GPU.")
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="Weights and activations: auto, float32, bfloat16, float16. Sums are float64.")
    ] = "auto",
    device: Device = "auto",
    device_map: Annotated[
        str | None, typer.Option(help="'auto' spreads a model over all cards (needs accelerate).")
    ] = None,
    quantize: Quantize = None,
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
    seed: Annotated[int, typer.Option(help="Seed of the sample, the twin's weights and the Gaussian null.")] = 0,
    out: Out = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the scan that was interrupted in --out.")] = False,
    json: Json = False,
) -> None:
    """Measure the shape of one or more models' representations on a text: cones, spectra, norms, layer by layer."""
    folder = out or default_folder("scan", *models, text)
    with joined() as first, progress_bar(visible=first) as progress:
        result = headscan.scan(
            models,
            text,
            tokenizer=tokenizer,
            context=context,
            max_tokens=max_tokens,
            sites=sites,
            skip_first=skip_first,
            documents=documents,
            field=field,
            null=null,
            sample=sample,
            token_sums=token_sums,
            measures=measures,
            revisions=revisions,
            pairs=pairs,
            batch=batch,
            seed=seed,
            dtype=dtype,
            device=device,
            device_map=device_map,
            quantize=quantize,
            revision=revision,
            trust_remote_code=trust_remote_code,
            out=folder,
            resume=resume,
            command=command_line(),
            progress=progress,
            announce=lambda sentence: typer.echo(sentence, err=True),
        )
    if first:
        show(result, folder, as_json=json)
