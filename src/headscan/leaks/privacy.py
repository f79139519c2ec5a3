"""`privacy`: how much of a text what leaked of it gives away, in bits between proved bounds."""

from __future__ import annotations

from headscan.leaks.priors import SENTENCES
from headscan.leaks.release import RELEASES, Auditing
from headscan.leaks.result import PrivacyResult
from headscan.model.opening import ModelLike, open_model
from headscan.run import BadInput, Run, TextRecord, plain, verb
from headscan.text import documents
from headscan.text.source import source_name

__all__ = ["privacy"]

# Of one document more is not needed: some windows are taken.
CHARACTERS = 200_000


@verb("privacy", Auditing)
def privacy(model: ModelLike, settings: Auditing, run: Run) -> PrivacyResult:
    """How many bits of each token of a text are in what leaked of it, at least and at most, and what attacks read off.

    `Auditing` documents the options, `headscan.leaks.RELEASES` what may leak.

    Args:
        model: a Lens, what `Lens.load` takes, or a live model of transformers.
        text: the sample; a batch of texts, one a document, for the release "gradient".

    Returns:
        A `PrivacyResult` with one row a site and noise.

    Raises:
        BadInput: a text too short, a model that is not fit for the release, an option that the release does not use.

    >>> import torch
    >>> from headscan.model import ByteTokenizer, Lens
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> _ = torch.manual_seed(0)
    >>> config = GPT2Config(vocab_size=256, n_positions=16, n_embd=32, n_layer=1, n_head=2)
    >>> lens = Lens(GPT2LMHeadModel(config), ByteTokenizer())
    >>> clean, noisy = privacy(lens, ["Once upon a time"], windows=1, length=8, noise=(0, 1.6), particles=0).rows
    >>> clean.attack_accuracy, clean.bits_upper, noisy.bits_lower < noisy.bits_truth < noisy.bits_upper < noisy.prior_bits
    (1.0, None, True)
    """
    lens = open_model(model, settings)
    tokenizer = lens.require_tokenizer()
    texts: list[list[int]] = []
    left = settings.max_tokens
    for document in documents(settings.text, documents=settings.documents, field=settings.field):
        ids = tokenizer(document.beginning(CHARACTERS), add_special_tokens=False, verbose=False)["input_ids"]
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
    leak = release.attack(lens, texts, settings, run)
    text = TextRecord(source=source_name(settings.text), documents=len(texts), tokens=sum(map(len, texts)))
    protocol = run.protocol(text=text, device=record.device, dtype=record.dtype, notes=leak.notes)
    return PrivacyResult(
        protocol=protocol, models=[record], release=settings.release, prior=settings.prior, what=SENTENCES[settings.prior],
        meaning=release.meaning, rows=leak.rows, whole=leak.whole, gradient=leak.gradient, outside=leak.outside,
    )  # fmt: skip
