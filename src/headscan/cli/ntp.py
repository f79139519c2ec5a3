"""`headscan ntp`: the geometry that next-token prediction on a text leads to, and models held against it."""

from __future__ import annotations

from typing import Annotated

import typer

import headscan
from headscan.cli.options import Json, Out
from headscan.cli.output import command_line, default_folder, progress_bar, show

__all__ = ["ntp"]


def ntp(
    text: Annotated[
        str,
        typer.Argument(
            help="A .txt, .jsonl or .parquet file (also .gz, .zst), a folder of them, - for standard input, "
            "a datasets id, or an embedded text."
        ),
    ],
    order: Annotated[int, typer.Option(help="Tokens of a context, K (with --prefixes: of the longest prefix).")],
    tokenizer: Annotated[
        str | None, typer.Option(help="Id or folder of a tokenizer, or 'bytes'. Default: that of the first model.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help="A model to hold against the prediction; give it again for checkpoints, in their order."),
    ] = None,
    prefixes: Annotated[
        bool, typer.Option("--prefixes", help="A context is all that stands before a token in its document.")
    ] = False,
    documents: Annotated[
        str, typer.Option(help="How a .txt falls into documents: whole, lines, paragraphs, or a separator.")
    ] = "whole",
    field: Annotated[str, typer.Option(help="The field of a .jsonl or .parquet row that is its document.")] = "text",
    max_tokens: Annotated[int | None, typer.Option(help="Stop reading after so many tokens.")] = None,
    min_count: Annotated[int, typer.Option(help="Leave out contexts seen fewer times.")] = 1,
    memory: Annotated[
        str, typer.Option(help="What counting may hold at once, such as 512MiB; the rest goes to disk.")
    ] = ("4GiB"),
    engine: Annotated[str, typer.Option(help="What counts: sort (built in), duckdb, or spark.")] = "sort",
    master: Annotated[str | None, typer.Option(help="URL of the Spark master, such as spark://host:7077.")] = None,
    gap: Annotated[float, typer.Option(help="Certified relative gap of the predicted logits, between 0 and 1.")] = 1e-6,
    budget: Annotated[
        float, typer.Option(help="Seconds that the certified solution may take by estimate; else a proxy stands in.")
    ] = 300.0,
    train: Annotated[
        int, typer.Option(help="Steps of gradient descent on unconstrained features, to see how fast they get there.")
    ] = 0,
    width: Annotated[int | None, typer.Option(help="Width of those features. Default: the vocabulary's size.")] = None,
    reading: Annotated[
        str, typer.Option(help="How models meet the contexts: where they stand in the 'text', or each one 'alone'.")
    ] = "text",
    max_contexts: Annotated[int, typer.Option(help="Compare models on at most so many contexts.")] = 20_000,
    groups: Annotated[int, typer.Option(help="Groups of documents for the bootstrap; 0 for none.")] = 20,
    dtype: Annotated[str, typer.Option(help="The models' weights: auto, float32, bfloat16, float16.")] = "auto",
    device: Annotated[str, typer.Option(help="Where models run: auto, cpu, cuda, cuda:N or mps.")] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of samples, bootstrap and the trained features.")] = 0,
    out: Out = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the count that was interrupted in --out.")] = False,
    json: Json = False,
) -> None:
    """Predict from a text alone what geometry training reaches: entropy bound, supports, the growing part of the logits."""
    folder = out or default_folder("ntp", text, *(model or []))
    with progress_bar() as progress:
        result = headscan.ntp.run(
            text,
            order=order,
            tokenizer=tokenizer,
            model=model or None,
            prefixes=prefixes,
            documents=documents,
            field=field,
            max_tokens=max_tokens,
            min_count=min_count,
            memory=memory,
            engine=engine,
            master=master,
            gap=gap,
            budget=budget,
            train=train,
            width=width,
            reading=reading,
            max_contexts=max_contexts,
            groups=groups,
            dtype=dtype,
            device=device,
            seed=seed,
            out=folder,
            resume=resume,
            command=command_line(),
            progress=progress,
        )
    show(result, folder, as_json=json)
