"""From a headless model's folder to a causal language model with a head: `headscan recover`."""

from __future__ import annotations

import os
from dataclasses import replace

from safetensors.torch import load_file

from headscan.run import Run, verb
from headscan.text import Windows
from headscan.text.source import check_text
from headscan.training.checkpoints import EXTRA, load_trained
from headscan.training.data import PackedText
from headscan.training.likelihood import perplexity
from headscan.training.recovery import RECOVERIES, recover_head, recovery_of
from headscan.training.result import RecoverResult
from headscan.training.settings import Recovering

REPLACED = (
    "The model has a head of its own, and this one replaces it: recovering is for models that were trained without. "
    "headscan.decone keeps a head, and its logits, and takes the cone out of what it reads."
)


@verb("recover", Recovering)
def recover(model: str | os.PathLike[str], settings: Recovering, run: Run) -> RecoverResult:
    """Give the headless model in a folder a head, by `mode` (see `recover_head`), and write the whole to `out`/model.

    text: what counts tokens, trains the head ("probe", "finetune") and, its last `held_out` share, measures it. Give
    the text that the body was trained on: the unigram bias is a property of the training data. A body trained by "nce"
    brings its own table along. Raises BadInput where model, tokenizer or text cannot be used.
    """
    check_text(settings.text)
    assert run.folder is not None
    how = recovery_of(settings.mode)
    trained = load_trained(model, settings, run, bare=True)
    notes = [REPLACED] if trained.beheaded else []
    for note in notes:
        run.announce(note)
    body, words = trained.model, trained.tokenizer
    context = settings.context or min(128, getattr(body.config, "max_position_embeddings", None) or 128)
    windows = Windows(
        settings.text, words, context, documents=settings.documents, field=settings.field,
        max_tokens=settings.max_tokens,
    )  # fmt: skip
    data, kept = PackedText.of(windows).split(settings.held_out)
    rows = None
    if trained.folder and (own := trained.folder / EXTRA).exists() and "weight" in (saved := load_file(own)):
        rows = saved["weight"].to(body.device)
    counts = data.counts(body.config.vocab_size)
    whole = recover_head(body, how, counts=counts, temperature=settings.temperature, rows=rows, copied=False)
    before = perplexity(whole, kept.rows, words, begins=kept.begins)
    curve = how.train(whole, data.rows, seed=settings.seed, progress=run.progress)
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
