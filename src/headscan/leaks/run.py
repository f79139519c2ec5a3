"""`privacy`: how much of a text what leaked of it gives away, in bits between proved bounds."""

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from headscan.inversion.assess import multiplications
from headscan.inversion.run import refuse_unused
from headscan.leaks.mechanisms import MECHANISMS, Mechanism, read_format
from headscan.leaks.policy import held_to, read_policy
from headscan.leaks.positions import SENTENCES, prior_of
from headscan.leaks.result import LeakedGradient, LeakRow, PrivacyResult, TrialRow
from headscan.model.lens import Lens, ModelLike, open_model
from headscan.model.settings import Device, Dtype, Loading, TokenizerName
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.cache_slice import CachePart
from headscan.run import (
    BadInput,
    Given,
    Named,
    Registry,
    Run,
    Settings,
    TextRecord,
    plain,
    verb,
)
from headscan.run.settings import CommandLine, Option, Out, Overwrite, Progressing, Resume, Seed
from headscan.statistics.information import entropy_bits
from headscan.text import documents as read_documents
from headscan.text.source import (
    TEXT,
    Documents,
    FieldName,
    MaxTokens,
    Reading,
    TextLike,
    check_text,
    source_name,
)

# ---- What may leak of a model's work on a text, and what `headscan privacy` can be asked for.

PriorName = Literal["model", "uniform", "text"]


@dataclass(frozen=True, kw_only=True)
class Leak:
    """What leaked: rows, of a gradient its tokens, and what was left out, as sentences."""

    rows: list[LeakRow]
    gradient: LeakedGradient | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class LeakChannel(Named, ABC):
    """Something that leaks."""

    uses: ClassVar[
        tuple[str, ...]
    ] = ()  # the options in `SHARED` that mean something for it; the others are refused
    meaning: ClassVar[str] = ""  # what the bits in its rows are bits of, in a sentence

    @abstractmethod
    def attack(self, lens: Lens, texts: list[list[int]], asked: Given, run: Run) -> Leak:
        """Let it leak from the token ids of each document; bound it, and read off what can be read.
        Raises BadInput where the model or the text is not fit for it.
        """


CHANNELS: Registry[type[LeakChannel]] = Registry(
    "release", "headscan.leaks.channels", "headscan.leaks.gradient"
)
"""All releases by name."""


@dataclass(frozen=True, kw_only=True)
class LeakTest(Settings, Named, ABC):
    """A test of a release beside the bits: an attack by name, margins, membership. Its fields are
    its parameters.
    """

    releases: ClassVar[tuple[str, ...]]  # that it can be asked of

    def ready(self) -> None:
        """Raise BadInput, before any work, where what it reads is not there."""
        return None

    @abstractmethod
    def measure(self, lens: Lens, texts: list[list[int]], asked: Given, run: Run) -> list[TrialRow]:
        """Its numbers, from the token ids of each document. Raises BadInput where model or text are
        not fit for it.
        """


TESTS: Registry[type[LeakTest]] = Registry(
    "test", "headscan.leaks.channels", "headscan.leaks.trials"
)
"""All tests by name."""

SHARED = (
    "sites",
    "noise",
    "format",
    "defence",
    "stored",
    "prior",
    "windows",
    "length",
    "candidates",
    "draws",
)


def check(asked: Given) -> None:
    """Raise BadInput where options do not fit together."""
    check_text(asked["text"])
    if asked["format"] is not None:
        read_format(asked["format"])
    protections(asked)
    for test in tests_of(asked):
        if asked["release"] not in test.releases:
            raise BadInput(
                f"The test {test.name} is of the release {' or '.join(test.releases)}, not of "
                f"{asked['release']}."
            )
        test.ready()
    for name in SHARED:
        if name not in CHANNELS[asked["release"]].uses:
            users = [other for other, item in CHANNELS.items() if name in item.uses]
            refuse_unused("privacy", asked, [name], f"the release {asked['release']}", users)


def protections(asked: Given) -> list[Mechanism | None]:
    """The defences, with their defaults where only names were given; None is noise alone, which is
    put before several.
    """
    found: list[Mechanism] = MECHANISMS.build_each(asked["defence"] or ())
    return [*found] if len(found) == 1 else [None, *found]


def tests_of(asked: Given) -> list[LeakTest]:
    """The tests asked for."""
    found: list[LeakTest] = TESTS.build_each(asked["test"] or ())
    return found


CHARACTERS = 200_000  # of one document more is not needed: some windows are taken


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
            "two of a cache, one for several "
            "defences.",
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
            "Number format in which it leaks: fp16, bf16, fp8, int8, int4, int2, int4/32 in "
            "groups. Default: as computed."
        ),
    ] = None,
    defence: Annotated[
        str | Mechanism | Sequence[str | Mechanism] | None,
        Option(
            "Defence applied to the release, known to the attacker; several, comma-separated, or "
            "all, are compared with noise "
            "alone. Default: noise alone.",
            choices=MECHANISMS,
        ),
    ] = None,
    stored: Annotated[CachePart, Option("Part of the cache: keys, values, both.")] = "both",
    prior: Annotated[
        PriorName,
        Option(
            "Prior of the attacker: model (what this model expects next), text (how often each "
            "token occurs in this "
            "text), uniform."
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
            "Candidates of a position, the likeliest first. Default: the vocabulary; fewer, "
            "where that takes long.",
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
            "A file of limits that the release is held to: pass, fail (status 3) or cannot be "
            "shown, and a receipt.",
            content=True,
            metavar="FILE",
        ),
    ] = None,
    documents: Documents = "whole",
    field: FieldName = "text",
    max_tokens: MaxTokens = None,
    tokenizer: TokenizerName = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    progress: Progressing = None,
    command: CommandLine = None,
) -> PrivacyResult:
    """How many bits of each token of a text are in what leaked of it, at least and at most, and
    what attacks read off.

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
    >>> clean, noisy = privacy(lens, ["Once upon a time"], windows=1, length=8, noise=(0, 1.6)).rows
    >>> clean.attack_accuracy, clean.bits_upper, noisy.bits_lower < noisy.bits_truth < noisy.bits_upper < noisy.prior_bits
    (1.0, None, True)
    """
    asked = Given(locals())
    asked.chosen(Reading)  # which checks them
    rules = None
    if policy is not None:
        refuse_unused(
            "privacy", asked, [*SHARED, "release", "test"], "--policy", ["the policy's file"]
        )
        rules = read_policy(policy)
        asked = rules.over(asked)
    check(asked)
    lens = open_model(model, asked.chosen(Loading))
    tokenize = lens.require_tokenizer()
    texts = list[list[int]]()
    left = max_tokens
    blank = True
    digest = hashlib.sha256()
    for document in read_documents(text, documents=documents, field=field):
        blank &= (beginning := document.beginning(CHARACTERS)).isspace()
        digest.update(beginning.encode("utf-8", "surrogatepass") + b"\xff")
        ids = tokenize(beginning, add_special_tokens=False, verbose=False)["input_ids"]
        texts.append(ids[:left])
        if left is not None and (left := left - len(texts[-1])) == 0:
            break
    if blank:
        raise BadInput("The text is empty, or white space alone.")
    record = lens.provenance()
    lens.identify(run)
    run.identify("the text", plain(texts))
    run.identify("the policy", None if rules is None else rules.sha256)
    channel = CHANNELS[asked["release"]]()
    leak = channel.attack(lens, texts, asked, run)
    trials = list[TrialRow]()
    for one in tests_of(asked):
        trials += one.measure(lens, texts, asked, run)
    tokens = sum(map(len, texts))
    read = TextRecord(
        source=source_name(text), sha256=digest.hexdigest(), documents=len(texts), tokens=tokens
    )
    result = PrivacyResult(
        protocol=run.protocol(
            text=read, device=record.device, dtype=record.dtype, notes=leak.notes
        ),
        models=[record],
        release=asked["release"],
        prior=asked["prior"],
        what=SENTENCES[asked["prior"]],
        meaning=channel.meaning,
        rows=leak.rows,
        gradient=leak.gradient,
        trials=trials,
    )
    if rules is not None:
        return held_to(rules, result, prior_bits(lens, texts, asked, leak), run.folder)
    return result


def prior_bits(
    lens: Lens, texts: list[list[int]], asked: Given, leak: Leak
) -> tuple[float, int] | None:
    """The prior's entropy in bits a token, and its tokens, where a release without noise has no
    bits of its own.
    """
    if not any(row.attack == "exact" and row.bits_upper is None for row in leak.rows):
        return None
    expected = prior_of(asked["prior"], lens, texts)
    found = list[float]()
    for window in windows_of(texts, asked["windows"], asked["length"]):
        found += [entropy_bits(shares.numpy()) for shares in expected(window[None])[0, :-1]]
    return float(np.mean(found)), lens.vocabulary_size


# ---- How much of a text is looked at, so that what was not asked for by name ends in minutes.

# multiplications that candidates may take unless their number was asked for: some minutes of two
# cores
LIMIT = 6e12
MOST = (
    2048  # candidates up to which all are run unasked: their pairs are compared at every position
)


@dataclass(frozen=True)
class AuditPlan:
    """What of the settings is done."""

    windows: Int[Tensor, "B T"]
    candidates: int | None  # of a position; None: all
    budget: int | None  # candidates of a search at one position; None: the vocabulary
    notes: list[str] = field(default_factory=list)  # what was left out, as sentences


def plan_of(
    cut: SlicedModel,
    texts: list[list[int]],
    asked: Given,
    run: Run,
    *,
    sites: int = 1,
    whole_rows: bool = False,
) -> AuditPlan:
    """What is done at the sites of a slice: all candidates where that is affordable, else the
    likeliest, in fewer windows.

    `whole_rows`: every candidate costs its whole window, at every position (embeddings).

    Raises BadInput for a text shorter than one window, or windows longer than the model's context.
    """
    context = cut.lens.context_length
    vocabulary = cut.vocabulary_size
    length = asked["length"]
    windows = asked["windows"]
    wanted = asked["candidates"]
    if context and length > context:
        raise BadInput(
            f"--length {length} is more than the {context} tokens that '{cut.lens.name}' takes."
        )
    # Whole texts are run in small batches, at half the speed of candidates behind one prefix.
    rounds = len(protections(asked))  # each defence takes as much again
    affordable = (
        LIMIT
        / rounds
        / (multiplications(cut, 1) / vocabulary * (2 * length**2 if whole_rows else length))
    )
    few = min(wanted or (MOST // 4 if whole_rows else MOST), vocabulary)
    if wanted is not None or (
        few * windows * sites <= affordable and (whole_rows or few == vocabulary)
    ):
        rows = windows_of(texts, windows, length)
        every = few == vocabulary and not whole_rows
        return AuditPlan(
            rows, None if every else few, None if whole_rows or wanted is None else few
        )
    least, room, times = (16, 64, 1) if whole_rows else (64, 256 * sites, max(sites, 2))
    windows = max(1, min(windows, int(affordable / room)))
    few = max(least, min(few, int(affordable / (windows * times))))
    rows = windows_of(texts, windows, length)
    what = (
        f"windows of {length} tokens: {len(rows)}, candidates of a position: the {few:,} "
        f"likeliest, sites: {sites}"
    )
    what += f", defences beside none: {rounds - 1}" * (rounds > 1)
    note = (
        f"So that this ends in minutes it looked at fewer ({what}; --windows, --candidates, "
        "--sites). "
    )
    note += "The bounds count what other candidates may add."
    run.announce(note)
    return AuditPlan(rows, few, None if whole_rows else few, [note])


def windows_of(texts: list[list[int]], windows: int, length: int) -> Int[Tensor, "B T"]:
    """Token ids of windows that are evenly spaced over the text; BadInput where the text is shorter
    than one.
    """
    ids = [token for text in texts for token in text]
    if len(ids) < length:
        raise BadInput(f"The text has {len(ids)} tokens, fewer than one window of {length}.")
    starts = torch.linspace(0, len(ids) - length, min(windows, len(ids) // length)).long()
    return torch.stack([torch.tensor(ids[int(start) : int(start) + length]) for start in starts])
