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
    prompt: Annotated[list[str], typer.Option(help="A prompt; repeat it to average over several.")],
    at: Annotated[str, typer.Option(help="Globs of sites, comma-separated.")] = "block.*",
    cut: Annotated[
        str,
        typer.Option(
            help="What of the model is left: whole, attention, mlp, no-residual, attention-no-residual, causal, no-mask, "
            "fresh (an untrained twin); joined with +, several with commas."
        ),
    ] = "whole",
    null: Annotated[bool, typer.Option("--null", help="Add an untrained twin of each model.")] = False,
    length: Annotated[int | None, typer.Option(help="Tokens of each prompt. Default: those of the shortest.")] = None,
    trials: Annotated[int, typer.Option(help="Random other tokens put in each place, for the leak.")] = 4,
    candidates: Annotated[
        int | None, typer.Option(help="Tokens tried for recovery. Default: the whole vocabulary.")
    ] = None,
    recover: Annotated[bool, typer.Option(help="Try the vocabulary in each place; else only the leak.")] = True,
    channel: Annotated[
        bool, typer.Option("--channel", help="Add noise, rounding and codebook distances at the deepest site.")
    ] = False,
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
        prompt,
        at=at,
        cuts=cut,
        null=null,
        length=length,
        trials=trials,
        candidates=candidates,
        recover=recover,
        channel=channel,
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
