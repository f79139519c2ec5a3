"""`headscan flow`: what one token's output knows of another token."""

from __future__ import annotations

from typing import Annotated

import typer

import headscan
from headscan.cli.options import Device, Json, Out, Quantize, Revision, TrustRemoteCode
from headscan.cli.output import command_line, default_folder, show

__all__ = ["flow"]


def flow(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="Hugging Face ids, local folders, or embedded specimens.")
    ],
    prompt: Annotated[list[str] | None, typer.Option(help="A prompt; repeat it to average over several.")] = None,
    text: Annotated[
        str | None,
        typer.Option(help="Average over prompts from this text instead: a file, a folder, or a `datasets` id."),
    ] = None,
    prompts: Annotated[int, typer.Option(help="Windows of --length tokens taken from the text.")] = 8,
    at: Annotated[str, typer.Option(help="Globs of sites, comma-separated.")] = "block.*",
    cut: Annotated[
        str,
        typer.Option(
            help="What of the model is left: whole, attention, mlp, no-residual, attention-no-residual, causal, no-mask, "
            "fresh (an untrained twin); joined with +, several with commas."
        ),
    ] = "whole",
    null: Annotated[bool, typer.Option("--null", help="Add an untrained twin of each model.")] = False,
    wider: Annotated[
        list[int] | None, typer.Option(help="Add an untrained twin so many times as wide; repeat for more.")
    ] = None,
    revisions: Annotated[
        str | None, typer.Option(help="Checkpoints of one Hugging Face id in order, comma-separated.")
    ] = None,
    length: Annotated[
        int | None, typer.Option(help="Tokens of each prompt. Default: those of the shortest; 16 of a text.")
    ] = None,
    trials: Annotated[int, typer.Option(help="Random other tokens put in each place, for the leak.")] = 4,
    candidates: Annotated[
        int | None, typer.Option(help="Tokens tried for recovery. Default: the whole vocabulary.")
    ] = None,
    recover: Annotated[bool, typer.Option(help="Try the vocabulary in each place; else only the leak.")] = True,
    channel: Annotated[
        bool, typer.Option("--channel", help="Add noise, rounding, codebook distances and widths at the deepest site.")
    ] = False,
    search: Annotated[
        str, typer.Option(help="How --channel looks for tokens: exact, adam, zeros, noise; several with commas.")
    ] = "exact,adam",
    tokenizer: Annotated[
        str | None, typer.Option(help="Id or folder of a tokenizer that is not the models' own, or 'bytes'.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Weights: auto, float32, bfloat16, float16.")] = "auto",
    device: Device = "auto",
    quantize: Quantize = None,
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
    seed: Annotated[int, typer.Option(help="Seed of replacements, noise and random features.")] = 0,
    out: Out = None,
    json: Json = False,
) -> None:
    """Measure which outputs move with which tokens, and which tokens a single output gives away."""
    folder = out or default_folder("flow", *models)
    result = headscan.flow.run(
        models,
        prompt or None,
        text=text,
        prompts=prompts,
        at=at,
        cuts=cut,
        null=null,
        wider=wider or (),
        revisions=revisions,
        length=length,
        trials=trials,
        candidates=candidates,
        recover=recover,
        channel=channel,
        searches=search,
        tokenizer=tokenizer,
        dtype=dtype,
        device=device,
        quantize=quantize,
        revision=revision,
        trust_remote_code=trust_remote_code,
        seed=seed,
        out=folder,
        command=command_line(),
    )
    show(result, folder, as_json=json)
