"""`headscan attribute`: which tokens of a prompt a prediction rests on."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import headscan
from headscan.cli.options import Device, Json, Out, Quantize, Revision, Tokenizer, TrustRemoteCode
from headscan.cli.output import command_line, default_folder, show

__all__ = ["attribute"]


def attribute(
    model: Annotated[str, typer.Argument(help="Hugging Face id, local folder, or an embedded specimen.")],
    prompt: Annotated[str, typer.Option(help="The prompt; - reads it from standard input.")],
    method: Annotated[
        str,
        typer.Option(
            help="gradient-x-input, occlusion, combined, integrated-gradients, leave-one-out, shapley; several with "
            "commas (the first colours the page), or all."
        ),
    ] = "gradient-x-input",
    target: Annotated[
        str, typer.Option(help="What is explained: next (a logit), contrast, logprob, probability, entropy, all.")
    ] = "next",
    token: Annotated[
        str | None, typer.Option(help="The token to explain: its text or #ID. Default: the model's prediction.")
    ] = None,
    against: Annotated[str | None, typer.Option(help="Why the token and not this one: its text or #ID.")] = None,
    continuation: Annotated[str | None, typer.Option(help="Explain every token of this continuation.")] = None,
    generate: Annotated[
        int | None, typer.Option(help="Explain every token of a greedy continuation of so many tokens.")
    ] = None,
    substitute: Annotated[
        str, typer.Option(help="Stands for an absent token: auto, mask, pad, eos, unk, mean, zero, remove, or a token.")
    ] = "auto",
    units: Annotated[str, typer.Option(help="What is scored together: token, word, sentence or span.")] = "token",
    span: Annotated[
        list[str] | None, typer.Option(help="A span: a text of the prompt or FIRST:BEHIND_LAST token; repeat for more.")
    ] = None,
    absolute: Annotated[bool, typer.Option("--absolute", help="Sizes of scores, without signs.")] = False,
    chat: Annotated[bool, typer.Option("--chat", help="Put the prompt into the model's chat template.")] = False,
    special: Annotated[bool, typer.Option(help="Add the tokenizer's own special tokens.")] = True,
    steps: Annotated[
        int | None,
        typer.Option(help="Nodes of integrated gradients. Default: as many as completeness to 0.2 % takes."),
    ] = None,
    samples: Annotated[int, typer.Option(help="Pairs of orders of Shapley values above 12 units.")] = 64,
    check: Annotated[bool, typer.Option(help="Measure faithfulness: curves, comprehensiveness, sufficiency.")] = True,
    memory: Annotated[
        int | None, typer.Option(help="MiB a micro-batch may take. Default: 1,024; half of what is free on a GPU.")
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Rows of a micro-batch, instead.")] = None,
    tokenizer: Tokenizer = None,
    dtype: Annotated[str, typer.Option(help="Weights: auto, float32, bfloat16, float16.")] = "auto",
    device: Device = "auto",
    device_map: Annotated[str | None, typer.Option(help="'auto' spreads a model over all cards.")] = None,
    quantize: Quantize = None,
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
    seed: Annotated[int, typer.Option(help="Seed of sampled orders.")] = 0,
    out: Out = None,
    json: Json = False,
) -> None:
    """Colour a prompt by what its prediction rests on, and measure how far the map can be trusted."""
    if continuation is not None and generate is not None:
        raise headscan.BadInput("Give --continuation or --generate, not both.")
    folder = out or default_folder("attribute", model)
    result = headscan.attribute(
        model,
        sys.stdin.read() if prompt == "-" else prompt,
        method=method,
        target=target,
        token=token,
        against=against,
        continuation=continuation if generate is None else generate,
        substitute=substitute,
        units=units,
        spans=span or None,
        signed=not absolute,
        chat=chat,
        special=special,
        steps=steps,
        samples=samples,
        check=check,
        memory=None if memory is None else memory * 2**20,
        batch=batch,
        tokenizer=tokenizer,
        dtype=dtype,
        device=device,
        device_map=device_map,
        quantize=quantize,
        revision=revision,
        trust_remote_code=trust_remote_code,
        seed=seed,
        out=folder,
        command=command_line(),
    )
    show(result, folder, as_json=json)
