"""`headscan recover`: from a headless model in a folder to the same model with a head."""

import os
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal, Unpack

from transformers import AutoModelForCausalLM, PreTrainedModel

from headscan.model import Lens
from headscan.model.settings import Device, Loading, TokenizerName
from headscan.model.source import quiet
from headscan.run import BadInput, Run, verb
from headscan.run.exhaustion import FittingSize
from headscan.run.settings import (
    Option,
    RunOptions,
    Seed,
)
from headscan.text import Windows
from headscan.text.source import TEXT, Documents, FieldName, MaxTokens, TextLike, check_text
from headscan.training.checkpoints import Trained, load_trained
from headscan.training.data import PackedText
from headscan.training.likelihood import perplexity
from headscan.training.recovery import RECOVERIES, HeadRecovery, recover_head, recovery_of
from headscan.training.result import RecoverResult

DEFAULT_CONTEXT = 128
"""Tokens of a window by default, where the model reads as many."""

REPLACED = (
    "This model already has a head; it is ignored and rebuilt from the text. Models without a head "
    "come from `headscan train gpt --objective cwt`; headscan.decone(model) removes a cone and "
    "keeps the head's logits."
)


@verb("recover")
def recover(
    run: Run,
    model: str | os.PathLike[str],
    text: Annotated[TextLike, TEXT],
    *,
    mode: Annotated[str | HeadRecovery, Option("Method of recovery.", choices=RECOVERIES)] = "bias",
    temperature: Annotated[
        float, Option("Objective that the model was trained with.", above=0)
    ] = 1.0,
    context: Annotated[
        int | None,
        Option("Tokens of a window. Default: the model's, at most 128.", low=1, group="Limits"),
    ] = None,
    held_out: Annotated[
        float, Option("Share of the windows that is held out.", above=0, high=1)
    ] = 0.05,
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        Option("Weights and activations; auto is as the weights were saved.", group="Advanced"),
    ] = "float32",
    documents: Documents = "whole",
    field: FieldName = None,
    max_tokens: MaxTokens = None,
    tokenizer: TokenizerName = None,
    device: Device = "auto",
    seed: Seed = 0,
    **_run_options: Unpack[RunOptions],
) -> RecoverResult:
    """Give the headless model in a folder a head, by `mode` (see `recover_head`), and write the
    whole to `out`/model.

    text: the text that counts tokens, trains the head ("probe", "finetune") and, its last
    `held_out` share, measures it. Give the text that the body was trained on: the unigram bias is a
    property of the training data. Raises BadInput where model, tokenizer or text cannot be used.
    """
    if run.folder is None:
        raise BadInput("The recovered model is written to a folder: give --out.")
    method = recovery_of(mode)
    check_text(text)
    loading = Loading(tokenizer=tokenizer, dtype=dtype, device=device)
    trained = load_trained(model, loading, run, bare=True)
    _check_causal(trained)
    notes = [REPLACED] if trained.beheaded else []
    for note in notes:
        run.announce(note)

    body = trained.model
    if context is None:
        longest = getattr(body.config, "max_position_embeddings", None)
        context = min(DEFAULT_CONTEXT, longest or DEFAULT_CONTEXT)
    windows = Windows(
        text, trained.tokenizer, context, documents=documents, field=field, max_tokens=max_tokens
    )
    training, validation = PackedText.of(windows).split(held_out)
    counts = training.counts(body.config.vocab_size)

    limit = FittingSize()
    run.limits.append(limit)
    measured = partial(
        perplexity,
        rows=validation.rows,
        tokenizer=trained.tokenizer,
        begins=validation.begins,
        limit=limit,
    )
    tied = recover_head(body, "tied", temperature=temperature)
    before = measured(tied)
    del tied
    whole = recover_head(body, method, counts=counts, temperature=temperature, copied=False)
    curve = method.train(whole, training.rows, seed=seed, progress=run.progress)
    after = measured(whole)
    _save(whole, trained, os.fspath(run.folder / "model"))

    steps, batch = method.budget
    tokenizer_name = getattr(trained.tokenizer, "name_or_path", None) or None
    record = replace(windows.record(), tokenizer=tokenizer_name)
    precision = str(whole.dtype).removeprefix("torch.")
    return RecoverResult(
        protocol=run.protocol(text=record, device=str(whole.device), dtype=precision, notes=notes),
        models=[trained.record],
        recovery=RECOVERIES.name_of(method),
        parameters=sum(parameter.numel() for parameter in whole.parameters()),
        steps=steps,
        tokens=steps * batch * context,
        loss=curve[-1].loss if curve else None,
        before=before,
        after=after,
        curve=curve,
    )


def _check_causal(trained: Trained) -> None:
    """Raise BadInput for a model whose states see later tokens: no head predicts the next token of
    them.
    """
    name = trained.record.name
    config = trained.model.config
    if type(config) not in AutoModelForCausalLM._model_mapping:
        raise BadInput(
            f"'{name}' reads both ways ({config.model_type} has no causal form), so no head can "
            "predict its next token: recover is for causal models."
        )
    if not Lens(trained.model).traits.causal:
        raise BadInput(
            f"{name} is no causal model: every state sees all tokens, so that no head on them "
            "predicts the next. `headscan recover` is for causal bodies that were trained without "
            "a head, such as gpt-headless."
        )


def _save(whole: PreTrainedModel, trained: Trained, folder: str) -> None:
    with quiet():
        whole.save_pretrained(folder)
    # The tokenizer of bytes has no files: it is named again where the model is used.
    if hasattr(trained.tokenizer, "save_pretrained"):
        trained.tokenizer.save_pretrained(folder)
