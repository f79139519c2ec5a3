"""`privacy`: how much of a text what leaked of it gives away."""

from __future__ import annotations

from headscan.inversion.privacy_result import PrivacyResult
from headscan.inversion.release import RELEASES, Auditing
from headscan.model.opening import ModelLike, open_model
from headscan.run import BadInput, Run, TextRecord, plain, verb
from headscan.text import documents
from headscan.text.source import source_name

__all__ = ["privacy"]

# Of one document more is not needed: some windows are taken.
CHARACTERS = 200_000


@verb("privacy", Auditing)
def privacy(model: ModelLike, settings: Auditing, run: Run) -> PrivacyResult:
    """How many tokens of a text can be read off what leaked of it, clean or damaged.

    `Auditing` documents the options, `headscan.inversion.RELEASES` what may leak.

    Args:
        model: a Lens, what `Lens.load` takes, or a live model of transformers.
        text: the sample; a batch of texts, one a document, for the release "gradient".

    Returns:
        A `PrivacyResult` with one row a site, damage and attack.

    Raises:
        BadInput: a text too short, a model that is not fit for the release, an option that the release does not use.

    >>> import torch
    >>> from headscan.model import ByteTokenizer, Lens
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> _ = torch.manual_seed(0)
    >>> config = GPT2Config(vocab_size=256, n_positions=16, n_embd=32, n_layer=1, n_head=2)
    >>> lens = Lens(GPT2LMHeadModel(config), ByteTokenizer())
    >>> privacy(lens, ["Once upon a time"], windows=1, noise=(), rounding=(), weights=()).rows[0].token_accuracy
    1.0
    """
    lens = open_model(model, settings)
    tokenizer = lens.require_tokenizer()
    texts: list[list[int]] = []
    left = settings.max_tokens
    for document in documents(settings.text, documents=settings.documents, field=settings.field):
        ids = tokenizer(document.beginning(CHARACTERS), add_special_tokens=False)["input_ids"]
        texts.append(ids if left is None else ids[:left])
        left = None if left is None else left - len(texts[-1])
        if left == 0:
            break
    if not texts:
        raise BadInput("The text is empty.")
    record = lens.provenance()
    run.identify(f"the weights of {lens.name}", lens.identity())
    run.identify("the text", plain(texts))
    release = RELEASES[settings.release]()
    settings, left_out = release.plan(lens, settings)
    for sentence in left_out:
        run.announce(sentence)
    rows, gradient = release.attack(lens, texts, settings, run)
    text = TextRecord(source=source_name(settings.text), documents=len(texts), tokens=sum(map(len, texts)))
    protocol = run.protocol(text=text, device=record.device, dtype=record.dtype, notes=left_out)
    return PrivacyResult(protocol=protocol, models=[record], release=settings.release, rows=rows, gradient=gradient)
