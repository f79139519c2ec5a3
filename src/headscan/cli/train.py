"""`headscan train`: a recipe, a text and an objective to a model, its curves and its shape."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from headscan import BadInput, Result
from headscan.cli.options import Json, Out
from headscan.cli.output import command_line, default_folder, progress_bar, show

__all__ = ["train"]


def train(
    recipe: Annotated[
        str,
        typer.Argument(
            help="gpt, bert, multilingual or mixer; 'recover' gives a headless model a head, 'evaluate' tests."
        ),
    ],
    text: Annotated[
        str,
        typer.Option(help="A file, folder, -, datasets id or embedded text, as for scan; evaluate: a folder of sets."),
    ],
    objective: Annotated[
        str,
        typer.Option(
            help="cwt, cwt-dense, cwt-chunked, cwt-fused, ce, ce-full, ce-chunked, ce-fused, ce+cwt, nce, sampled, "
            "adaptive."
        ),
    ] = "cwt",
    size: Annotated[str, typer.Option(help="tiny (minutes), small (hours on a CPU) or paper (as published).")] = "tiny",
    model: Annotated[str | None, typer.Option(help="recover, evaluate: the folder or id of the model.")] = None,
    mode: Annotated[str, typer.Option(help="recover: tied, bias (no training), probe or finetune.")] = "bias",
    tasks: Annotated[
        str | None,
        typer.Option(
            help="evaluate: lambada,blimp,cola,sst2,stsb,paraphrase,rte,pud,synonyms or lm-eval:NAME. Default: all."
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="evaluate: at most so many items of a set.")] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Id or folder. Default: one is fitted on the text.")] = None,
    tied: Annotated[bool | None, typer.Option(help="Tie the head of a model that has one.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of the optimizer, in place of the recipe's.")] = None,
    batch: Annotated[int | None, typer.Option(help="Windows a step and process.")] = None,
    accumulation: Annotated[int | None, typer.Option(help="Micro-batches before the weights move.")] = None,
    context: Annotated[int | None, typer.Option(help="Tokens of a window.")] = None,
    rate: Annotated[float | None, typer.Option(help="Peak learning rate.")] = None,
    vocabulary: Annotated[int | None, typer.Option(help="Tokens of the tokenizer that is fitted.")] = None,
    temperature: Annotated[float, typer.Option(help="Of the contrastive loss.")] = 1.0,
    normalize: Annotated[bool, typer.Option("--normalize", help="Compare directions only.")] = False,
    extra_negatives: Annotated[int, typer.Option(help="Tokens drawn by frequency and added to the negatives.")] = 0,
    regulariser: Annotated[
        str | None,
        typer.Option(
            help="Added to the loss: cosine:STRENGTH, cosine-states:STRENGTH or isoscore:STRENGTH, by commas."
        ),
    ] = None,
    pool: Annotated[str, typer.Option(help="Negatives from: batch, accumulation, devices or all.")] = "batch",
    masking: Annotated[str, typer.Option(help="bert (80/10/10) or published.")] = "bert",
    held_out: Annotated[float, typer.Option(help="Share of the windows that is held out, 0 to 1.")] = 0.05,
    documents: Annotated[
        str, typer.Option(help="How a .txt falls into documents: whole, lines, paragraphs, or a separator.")
    ] = "whole",
    field: Annotated[str, typer.Option(help="The field of a .jsonl or .parquet row that is its document.")] = "text",
    max_tokens: Annotated[int | None, typer.Option(help="Read at most so many tokens.")] = None,
    streaming: Annotated[bool, typer.Option("--streaming", help="Read the text as training goes on.")] = False,
    geometry_every: Annotated[
        int | None, typer.Option(help="Steps between measurements of the geometry; 0: none. Default: a tenth.")
    ] = None,
    save_every: Annotated[
        int | None, typer.Option(help="Steps between checkpoints; 0: none. Default: a fifth.")
    ] = None,
    precision: Annotated[str, typer.Option(help="float32, bfloat16 or float16 (mixed).")] = "float32",
    seed: Annotated[int, typer.Option(help="Of weights, order and masks.")] = 0,
    seconds: Annotated[float | None, typer.Option(help="Stop after so many seconds of training.")] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Log to TensorBoard under --out.")] = False,
    push_to_hub: Annotated[
        str | None, typer.Option(help="Id under which the model goes to the Hub at the end.")
    ] = None,
    out: Out = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last whole checkpoint in --out.")] = False,
    json: Json = False,
) -> None:
    """Train a language model, without a prediction head unless --objective says otherwise, and watch its shape."""
    from headscan.training import Objective, evaluate_model, recover_model
    from headscan.training import train as run

    folder = out or default_folder("train", recipe, {"recover": mode, "evaluate": ""}.get(recipe, objective), text)
    result: Result
    if recipe == "evaluate":
        if model is None:
            raise BadInput("'headscan train evaluate' needs --model, the model to evaluate.")
        wanted = [task.strip() for task in tasks.split(",")] if tasks else None
        result = evaluate_model(model, text, folder, tasks=wanted, limit=limit, command=command_line())
    elif recipe == "recover":
        if model is None:
            raise BadInput("'headscan train recover' needs --model, the headless model to give a head to.")
        result = recover_model(
            model, text, folder, mode=mode, steps=steps, batch=batch, rate=rate, held_out=held_out, context=context,
            documents=documents, field=field, max_tokens=max_tokens, seed=seed, temperature=temperature,
            command=command_line(),
        )  # fmt: skip
    else:
        with progress_bar(visible=os.environ.get("RANK", "0") == "0") as progress:
            result = run(
                recipe,
                text,
                folder,
                objective=Objective(objective, temperature, normalize, extra_negatives, regulariser),
                size=size,
                tokenizer=tokenizer,
                tied=tied,
                held_out=held_out,
                documents=documents,
                field=field,
                max_tokens=max_tokens,
                streaming=streaming,
                masking=masking,
                pool=pool,
                steps=steps,
                batch=batch,
                accumulation=accumulation,
                context=context,
                rate=rate,
                vocabulary=vocabulary,
                seed=seed,
                precision=precision,
                geometry_every=geometry_every,
                save_every=save_every,
                resume=resume,
                seconds=seconds,
                tensorboard=tensorboard,
                push_to_hub=push_to_hub,
                command=command_line(),
                progress=progress,
            )
    if os.environ.get("RANK", "0") == "0":  # under torchrun or accelerate launch, one process speaks
        show(result, folder, as_json=json)
