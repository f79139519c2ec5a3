"""`privacy`: the bits of a text that a release gives away, between proved bounds."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Unpack

import numpy as np

from headscan.leaks.defences import MECHANISMS, Mechanism
from headscan.leaks.findings import privacy_findings
from headscan.leaks.plan import windows_of
from headscan.leaks.policy import read_policy
from headscan.leaks.priors import SENTENCES, PriorName, prior_of
from headscan.leaks.registry import CHANNEL_OPTIONS, CHANNELS, TESTS, Leak, LeakTest
from headscan.leaks.result import PrivacyResult, TrialRow
from headscan.leaks.settings import PrivacySettings
from headscan.leaks.verdict import PriorBits, held_to
from headscan.model.framed import beginning, with_beginning
from headscan.model.lens import Lens, ModelLike, open_model
from headscan.model.settings import Device, Dtype, Loading, TokenizerName
from headscan.model.slicing.cache_slice import CachePart
from headscan.run import BadInput, Run, TextRecord, plain, verb
from headscan.run.settings import (
    FindingOptions,
    Option,
    Seed,
)
from headscan.statistics.information import entropy_bits
from headscan.text import documents as read_documents
from headscan.text.source import (
    TEXT,
    Documents,
    FieldName,
    MaxTokens,
    Reading,
    Start,
    TextLike,
    check_text,
    source_name,
)
from headscan.text.tokens import SpecialStrings, Stretch, encode_text

CHARACTERS = 200_000  # of a document that are read: some windows are taken of it


@verb("privacy")
def privacy(
    run: Run,
    model: ModelLike,
    text: Annotated[TextLike, TEXT],
    *,
    release: Annotated[
        str,
        Option(
            "What leaks: states, cache (keys and values), logits, embedding, gradient.",
            choices=CHANNELS,
            group="Input",
        ),
    ] = "states",
    sites: Annotated[
        str | None,
        Option(
            "Sites whose states (or caches) leak, as globs. Default: all blocks; of many three, "
            "two of a cache, one for several defences.",
            group="Input",
        ),
    ] = None,
    noise: Annotated[
        Sequence[float],
        Option(
            "Gaussian noise, in the rms of the release's centred coordinates; 0 is none.",
            low=0,
            high=1e6,
        ),
    ] = (0.0, 0.4, 0.8, 1.6),
    format: Annotated[
        str | None,
        Option(
            "Number format of the release: fp16, bf16, fp8, int8, int4, int2, int4/32 in "
            "groups. Default: as computed."
        ),
    ] = None,
    defence: Annotated[
        str | Mechanism | Sequence[str | Mechanism] | None,
        Option(
            "Defence applied to the release, known to the attacker; several, comma-separated, or "
            "all, are compared with noise alone. Default: noise alone.",
            choices=MECHANISMS,
        ),
    ] = None,
    stored: Annotated[CachePart, Option("Part of the cache: keys, values, both.")] = "both",
    prior: Annotated[
        PriorName,
        Option(
            "Prior of the attacker: model (what this model expects next), text (how often each "
            "token occurs in this text), uniform."
        ),
    ] = "model",
    windows: Annotated[
        int, Option("Windows of the text that are examined, evenly spaced.", low=1, group="Limits")
    ] = 5,
    length: Annotated[
        int,
        Option(
            "Tokens of each window; the first is taken as known where bits are counted.",
            low=2,
            group="Limits",
        ),
    ] = 21,
    candidates: Annotated[
        int | None,
        Option(
            "Candidate tokens at each position, the likeliest first. Default: the "
            "vocabulary, or fewer where that takes long.",
            low=2,
            group="Limits",
        ),
    ] = None,
    draws: Annotated[
        int,
        Option(
            "Monte Carlo draws a position, for truth and attack.", low=2, high=2**24, group="Limits"
        ),
    ] = 64,
    test: Annotated[
        str | LeakTest | Sequence[str | LeakTest] | None,
        Option(
            "Tests beside the bits, with commas: attacks on caches, margins of layers, "
            "membership, inversion by queries.",
            choices=TESTS,
        ),
    ] = None,
    policy: Annotated[
        str | os.PathLike[str] | None,
        Option(
            "A policy file with limits for the release; the verdict is pass, fail (status 3) "
            "or cannot be shown, with a receipt.",
            content=True,
            metavar="FILE",
        ),
    ] = None,
    documents: Documents = "whole",
    field: FieldName = None,
    max_tokens: MaxTokens = None,
    start: Start = "tokenizer",
    tokenizer: TokenizerName = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    seed: Seed = 0,
    **_run_options: Unpack[FindingOptions],
) -> PrivacyResult:
    """Return how many bits of each token of a text are in what leaked of it, at least and at most,
    and what attacks read off.

    `headscan.leaks.CHANNELS` documents what may leak. The result has one row a site and noise.

    Args:
        model: a Lens, what `Lens.load` takes, or a live model of transformers.
        text: the sample; a batch of texts, one a document, for the release "gradient".

    Raises BadInput for a text too short, a model that is not fit for the release, an option that
    the release does not use.

    >>> import torch
    >>> from headscan.model import ByteTokenizer, Lens
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> _ = torch.manual_seed(0)
    >>> config = GPT2Config(vocab_size=256, n_positions=16, n_embd=32, n_layer=1, n_head=2)
    >>> lens = Lens(GPT2LMHeadModel(config), ByteTokenizer())
    >>> result = privacy(lens, ["Once upon a time"], windows=1, length=8, noise=(0, 1.6))
    >>> clean, noisy = result.rows
    >>> clean.attack_accuracy, clean.bits_upper
    (1.0, None)
    >>> noisy.bits_lower < noisy.bits_truth < noisy.bits_upper < noisy.prior_bits
    True
    """
    # The batch of a training step is what the user gives, without a beginning of ours.
    begins = "none" if release == "gradient" else start
    reading = Reading(documents=documents, field=field, max_tokens=max_tokens, start=begins)
    settings = PrivacySettings(
        release=release,
        sites=sites,
        noise=noise,
        format=format,
        defence=defence,
        stored=stored,
        prior=prior,
        windows=windows,
        length=length,
        candidates=candidates,
        draws=draws,
        seed=seed,
    )
    rules = None
    if policy is not None:
        run.refuse_changed(
            "by --policy; it belongs to the policy's file", **settings.by_option(), test=test
        )
        rules = read_policy(policy)
        settings = rules.over(settings)
    check_text(text)
    channel = CHANNELS[settings.release]()
    tests = _tests(test if rules is None else rules.tests, settings.release)
    _refuse_unused(run, settings)

    lens = open_model(model, Loading(tokenizer=tokenizer, dtype=dtype, device=device))
    lens = beginning(lens, reading.start)
    sample = _read_sample(lens, text, reading)
    record = lens.provenance()
    lens.identify(run)
    run.identify("the text", plain(sample.texts))
    run.identify("the policy", None if rules is None else rules.sha256)
    leak = channel.attack(lens, sample.texts, settings, run)
    trials: list[TrialRow] = []
    for leak_test in tests:
        trials += leak_test.measure(lens, sample.texts, settings, run)
    result = PrivacyResult(
        protocol=run.protocol(
            text=sample.record, device=record.device, dtype=record.dtype, notes=leak.notes
        ),
        models=[record],
        release=settings.release,
        prior=settings.prior,
        what=SENTENCES[settings.prior],
        meaning=channel.meaning,
        rows=leak.rows,
        gradient=leak.gradient,
        trials=trials,
    )
    if rules is not None:
        prior_bits = _prior_bits(lens, sample.texts, settings, leak)
        result = held_to(rules, result, prior_bits, run.folder)
    return replace(result, findings=privacy_findings(result))


def _tests(test: str | LeakTest | Sequence[str | LeakTest] | None, release: str) -> list[LeakTest]:
    """Return the tests, ready to be run; BadInput for one that does not apply to the release."""
    tests: list[LeakTest] = TESTS.build_each(test or ())
    for leak_test in tests:
        if release not in leak_test.releases:
            raise BadInput(
                f"The test {leak_test.name} is of the release {' or '.join(leak_test.releases)}, "
                f"not of {release}."
            )
        leak_test.ready()
    return tests


def _refuse_unused(run: Run, settings: PrivacySettings) -> None:
    """Raise BadInput for an option that was changed and that the release does not read."""
    used = CHANNELS[settings.release].uses
    for name in CHANNEL_OPTIONS:
        if name not in used:
            users = sorted(channel for channel, item in CHANNELS.items() if name in item.uses)
            run.refuse_changed(
                f"by the release {settings.release}; it belongs to {', '.join(users)}",
                **{name: getattr(settings, name)},
            )


@dataclass(frozen=True)
class _Sample:
    """A text that was read: token ids of each document, and its record."""

    texts: list[list[int]]
    record: TextRecord


def _read_sample(lens: Lens, text: TextLike, reading: Reading) -> _Sample:
    """Read the beginning of each document, and tokenize it."""
    tokenizer = lens.require_tokenizer()
    specials = SpecialStrings(tokenizer)
    texts: list[list[int]] = []
    left = reading.max_tokens
    blank = True
    digest = hashlib.sha256()
    for document in read_documents(text, documents=reading.documents, field=reading.field):
        beginning = document.beginning(CHARACTERS)
        blank = blank and beginning.isspace()
        digest.update(beginning.encode("utf-8", "surrogatepass") + b"\xff")
        ids = encode_text(tokenizer, beginning)
        specials.add(Stretch(beginning, ids, begins=True))
        texts.append(ids[:left].tolist())
        if left is not None:
            left -= len(texts[-1])
            if left == 0:
                break
    if blank:
        raise BadInput("The text is empty, or white space alone.")
    record = TextRecord(
        source=source_name(text),
        sha256=digest.hexdigest(),
        documents=len(texts),
        tokens=sum(map(len, texts)),
        specials=dict(specials.counts),
    )
    return _Sample(texts, with_beginning(record, tokenizer, reading.start))


def _prior_bits(
    lens: Lens, texts: list[list[int]], settings: PrivacySettings, leak: Leak
) -> PriorBits | None:
    """Return the prior's entropy where a release without noise has no bits of its own."""
    if not any(row.attack == "exact" and row.bits_upper is None for row in leak.rows):
        return None
    prior = prior_of(settings.prior, lens, texts)
    entropies: list[float] = []
    for window in windows_of(texts, settings.windows, settings.length):
        entropies += [entropy_bits(shares.numpy()) for shares in prior(window[None])[0, :-1]]
    return PriorBits(float(np.mean(entropies)), lens.vocabulary_size)
