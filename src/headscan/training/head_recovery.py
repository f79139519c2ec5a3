"""From a headless model's folder to a causal language model with a head: `headscan recover`."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Annotated, Literal

from headscan.model.settings import Device, Loading, TokenizerName
from headscan.run import BadInput, CommandLine, Option, Out, Progressing, Resume, Seed, running, verb
from headscan.text import Windows
from headscan.text.source import TEXT, Documents, FieldName, MaxTokens, TextLike, check_text
from headscan.training.checkpoints import load_trained
from headscan.training.data import PackedText
from headscan.training.likelihood import perplexity
from headscan.training.recovery import RECOVERIES, HeadRecovery, recover_head, recovery_of
from headscan.training.result import RecoverResult

REPLACED = (
    "The model has a head of its own, and this one replaces it: recovering is for models that were trained without. "
    "headscan.decone keeps a head, and its logits, and takes the cone out of what it reads."
)


@verb("recover")
def recover(
    model: str | os.PathLike[str], text: Annotated[TextLike, TEXT], *,
    mode: Annotated[str | HeadRecovery, Option("How the head is made.", choices=RECOVERIES)] = "bias",
    temperature: Annotated[float, Option("The one that the model was trained with.", above=0)] = 1.0,
    context: Annotated[int | None, Option("Tokens of a window. Default: the model's, at most 128.", low=1)] = None,
    held_out: Annotated[float, Option("Share of the windows that is held out.", above=0, high=1)] = 0.05,
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        Option("Weights and activations; auto is as the weights were saved."),
    ] = "float32",
    documents: Documents = "whole", field: FieldName = "text", max_tokens: MaxTokens = None,
    tokenizer: TokenizerName = None, device: Device = "auto",
    out: Out = None, resume: Resume = False, seed: Seed = 0, progress: Progressing = None, command: CommandLine = None,
) -> RecoverResult:  # fmt: skip
    """Give the headless model in a folder a head, by `mode` (see `recover_head`), and write the whole to `out`/model.

    text: what counts tokens, trains the head ("probe", "finetune") and, its last `held_out` share, measures it. Give
    the text that the body was trained on: the unigram bias is a property of the training data. Raises BadInput where model,
    tokenizer or text cannot be used.
    """
    asked, run = running()
    if run.folder is None:
        raise BadInput("The recovered model is written to a folder: give --out.")
    how = recovery_of(mode)
    check_text(text)
    trained = load_trained(model, asked.chosen(Loading), run, bare=True)
    notes = [REPLACED] if trained.beheaded else []
    for note in notes:
        run.announce(note)
    body, words = trained.model, trained.tokenizer
    context = context or min(128, getattr(body.config, "max_position_embeddings", None) or 128)
    windows = Windows(
        text, words, context, documents=documents, field=field,
        max_tokens=max_tokens,
    )  # fmt: skip
    data, kept = PackedText.of(windows).split(held_out)
    counts = data.counts(body.config.vocab_size)
    whole = recover_head(body, how, counts=counts, temperature=temperature, copied=False)
    before = perplexity(whole, kept.rows, words, begins=kept.begins)
    curve = how.train(whole, data.rows, seed=seed, progress=run.progress)
    after = perplexity(whole, kept.rows, words, begins=kept.begins)
    whole.save_pretrained(run.folder / "model")
    if hasattr(words, "save_pretrained"):  # that of bytes has no files: it is named again where the model is used
        words.save_pretrained(run.folder / "model")
    steps, batch = how.budget
    parameters = sum(parameter.numel() for parameter in whole.parameters())
    record = replace(windows.record(), tokenizer=getattr(words, "name_or_path", None) or None)
    return RecoverResult(
        protocol=run.protocol(
            text=record, device=str(whole.device), dtype=str(whole.dtype).removeprefix("torch."), notes=notes
        ),
        models=[trained.record],
        recovery=next((name for name, item in RECOVERIES.items() if item is type(how)), type(how).__name__),
        parameters=parameters,
        steps=steps,
        tokens=steps * batch * context,
        loss=curve[-1].loss if curve else None,
        before=before,
        after=after,
        curve=curve,
    )
