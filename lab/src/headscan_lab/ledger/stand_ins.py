"""The small models that are examined in place of a claim's own, each by its kind and a seed; none
needs a file from outside.

- `specimen`: gpt-vanilla, trained on stories, shipped inside the package (128 wide, 5 blocks, V =
  4,096); one model, whatever the seed, so only prompts and starts differ.
- `taught`, `headless`: Llamas trained here for a minute on a made-up language, one a seed, with a
  head or by contrastive weight tying. All tokens of this language are about equally common.
- `zipf`, `zipf-tied`, `zipf-bias`, `zipf-headless`: the same training on a language whose tokens
  follow Zipf's law, with an untied head, a tied head, an untied head whose bias starts at the
  logarithm of the token frequencies, and without a head.
- `gpt2`, `llama`: random weights, one a seed.

Any other kind is a trained model itself, by its name or folder: what is said of trained models in
general is tried on it, too. `fresh:MODEL` has the same configuration and random weights; MODEL may
also be one that the claims name (`fresh:gpt2`).
"""

import gc
import json
import os
import re
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from headscan.model import Lens
from headscan.model.slicing.specification import SliceSpecification
from headscan.run import BadInput
from headscan.text import documents, tokenise
from headscan.training import cwt_loss
from headscan_lab.ledger.experiment import Experiment, StandIn

TRAINED = ("taught", "headless", "zipf", "zipf-tied", "zipf-bias", "zipf-headless")
SPECIMEN = "gpt-vanilla"
TWIN = "fresh:"
LLAMAS = ("llama", "mistral", "qwen2", "qwen3")  # one block: RMS norm, rotary positions, gated MLP
VOCABULARY = 256
FRESH = 512
TAUGHT_STEPS = 200
# of the 256 commonest words of wikitext-2 (.935 in its test half, .920 in its validation half)
EXPONENT = 0.93

ABOUT: dict[str, StandIn] = {
    "specimen": StandIn(
        f"{SPECIMEN}: GPT-2's architecture, 128 wide, 5 blocks, V = 4,096, trained on stories",
        "It is a trained causal transformer of the same architecture; width, depth and vocabulary "
        "are smaller.",
    ),
    "taught": StandIn(
        f"one Llama a seed, 64 wide, 3 blocks, V = {VOCABULARY}, trained here on a made-up "
        "language",
        "Training is repeated with every seed, and V is small enough to try every token; the "
        "language is a Markov chain.",
    ),
    "headless": StandIn(
        f"one Llama a seed, 64 wide, 3 blocks, V = {VOCABULARY}, trained here without a head on a "
        "made-up language",
        "The same training as its pair with a head, but for the objective.",
    ),
    **{
        kind: StandIn(
            f"one Llama a seed, 64 wide, 3 blocks, V = {VOCABULARY}, trained here {how} on a "
            "made-up language with Zipf's law",
            f"The law's exponent, {EXPONENT}, is that of wikitext-2's 256 commonest words; its "
            "commonest token is 10 % of a text (wikitext-2: 9 % of all words, 15 % of those 256).",
        )
        for kind, how in {
            "zipf": "with an untied head",
            "zipf-tied": "with a tied head",
            "zipf-bias": "with an untied head and a bias that starts at the log frequencies",
            "zipf-headless": "without a head",
        }.items()
    },
    **{
        kind: StandIn(
            f"one {name} with random weights a seed, 64 wide, 3 blocks, V = {FRESH:,}",
            "Random weights need no training; width, depth and vocabulary are smaller.",
        )
        for kind, name in {"gpt2": "GPT-2", "llama": "Llama"}.items()
    },
}


def about(kind: str, width: int = 64, depth: int = 3) -> StandIn:
    """Which model that is, and why it may stand in."""
    if kind.startswith(TWIN):
        name = kind.removeprefix(TWIN)
        name = name if name in _facts() else lens_of(name).name
        return StandIn(
            f"{name} with random weights",
            "It has the model's own configuration; weights are drawn, once a seed.",
        )
    if kind not in ABOUT:
        return StandIn(
            lens_of(kind).name,
            "It is a trained model, as the claim is about; its own size, text and training.",
        )
    found = ABOUT[kind]
    if kind not in ("gpt2", "llama"):
        return found
    return StandIn(
        found.name.replace("64 wide, 3 blocks", f"{width} wide, {depth} blocks"), found.why
    )


class OnModels(Experiment):
    """An experiment on the one model that its field `model` names. (The field stands in each
    experiment, at its own place: kept answers go by the order of fields.)
    """

    model: str

    def on(self, model: str) -> Experiment | None:
        return replace(self, model=model)

    def stand_ins(self) -> tuple[StandIn, ...]:
        return (about(self.model),)


def lens_of(kind: str, seed: int = 0, width: int = 64, depth: int = 3) -> Lens:
    """The model of a kind and seed; the same object when asked again. Of the models that are given
    one is held at a time.
    """
    if kind == "specimen":
        return _specimen()
    if kind.startswith(TWIN):
        return _fresh(kind.removeprefix(TWIN), seed, depth)
    return _made(kind, seed, width, depth) if kind in ABOUT else _given(kind)


@lru_cache(maxsize=24)
def _made(kind: str, seed: int, width: int, depth: int) -> Lens:
    if kind in TRAINED:
        return _taught(seed, kind)
    return Lens(
        _drawn(kind, seed, FRESH, width, depth, 4, 4 * width),
        name=f"{kind} {depth} x {width}, random weights {seed}",
    )


@cache
def _specimen() -> Lens:
    return Lens.load(SPECIMEN)


@lru_cache(maxsize=1)  # it may be large
def _given(name: str) -> Lens:
    gc.collect()  # the modules of a model that was let go point to one another
    return Lens.load(name)


@lru_cache(maxsize=2)
def _fresh(name: str, seed: int, depth: int) -> Lens:
    """Random weights in the configuration of a model that was given, or that a claim names: of it
    `depth` blocks at most.
    """
    gc.collect()
    if name not in _facts():
        return lens_of(name).random_init(seed, first_block=depth == 1)
    facts = _facts()[name]
    if facts.family not in ("gpt2", "llama"):
        raise BadInput(
            f"{TWIN}{name} cannot be made here: only models of the families gpt2 and llama can."
        )
    inner = 256 * -(-8 * facts.width // 3 // 256)  # as Llama's own: 11,008 at 4,096
    model = _drawn(
        facts.family,
        seed,
        facts.vocabulary,
        facts.width,
        min(depth, facts.blocks),
        facts.heads,
        inner,
    )
    return Lens(model, name=f"{name} with random weights {seed}")


def _drawn(
    family: str, seed: int, vocabulary: int, width: int, depth: int, heads: int, inner: int
) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if family == "llama":
            return LlamaForCausalLM(_llama(vocabulary, width, depth, heads, inner))
        return GPT2LMHeadModel(
            GPT2Config(
                vocab_size=vocabulary,
                n_embd=width,
                n_layer=depth,
                n_head=heads,
                n_positions=64,
                bos_token_id=0,
                eos_token_id=0,
            )
        )


def _llama(vocabulary: int, width: int, depth: int, heads: int, inner: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        max_position_embeddings=64,
        bos_token_id=0,
        eos_token_id=0,
    )


def _taught(seed: int, kind: str) -> Lens:
    """Next-token training on a language, 32 texts of 12 tokens a step, with a head or against the
    input embeddings.
    """
    headless = kind.endswith("headless")
    zipf = kind.startswith("zipf")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(_llama(VOCABULARY, 64, 3, 4, 256))
        if kind == "zipf-tied":
            model.lm_head.weight = model.model.embed_tokens.weight
        if kind == "zipf-bias":
            counts = torch.bincount(
                language(seed + 90_000_000, 1000, 12, zipf=True).flatten(), minlength=VOCABULARY
            )
            model.lm_head.bias = torch.nn.Parameter(((counts + 1.0) / (counts + 1.0).sum()).log())
        optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
        for step in range(TAUGHT_STEPS):
            ids = language(seed * 100_000 + step, 32, 12, zipf=zipf)
            hidden = model.model(input_ids=ids[:, :-1]).last_hidden_state.flatten(0, 1)
            targets = ids[:, 1:].flatten()
            if headless:
                loss = cwt_loss(hidden, model.model.embed_tokens.weight, targets)
            else:
                loss = torch.nn.functional.cross_entropy(model.lm_head(hidden), targets)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    words = (
        "without a head"
        if headless
        else "with a head" + ("" if kind in ("taught", "zipf") else f" ({kind[5:]})")
    )
    law = ", Zipf's law" if zipf else ""
    return Lens(
        model.eval().requires_grad_(False), name=f"llama 3 x 64, trained {words}{law}, seed {seed}"
    )


def language(seed: int, rows: int, length: int, *, zipf: bool = False) -> Tensor:
    """Texts [rows, length] of a language in which each token allows 8 others, some far more often.

    With `zipf` the first tokens and the followers are drawn by Zipf's law over the vocabulary;
    without, all tokens are followers about equally often.
    """
    table = torch.Generator().manual_seed(12_345)
    law = torch.arange(1.0, VOCABULARY + 1) ** -EXPONENT
    drawn = [
        torch.multinomial(law, 8, generator=table)
        if zipf
        else torch.randperm(VOCABULARY, generator=table)[:8]
        for _ in range(VOCABULARY)
    ]
    followers = torch.stack(drawn)
    odds = 1.0 / torch.arange(1, 9)
    generator = torch.Generator().manual_seed(seed)
    found = [
        torch.multinomial(law, rows, replacement=True, generator=generator)
        if zipf
        else torch.randint(VOCABULARY, (rows,), generator=generator)
    ]
    for _ in range(length - 1):
        pick = torch.multinomial(odds.expand(rows, -1), 1, generator=generator)[:, 0]
        found.append(followers[found[-1], pick])
    return torch.stack(found, 1)


@lru_cache(maxsize=2)
def _stories(kind: str) -> Tensor:
    """The shipped stories as ids of the specimen, or of a model."""
    parts = [
        torch.as_tensor(one.ids, dtype=torch.int64)
        for one in tokenise(documents("stories"), lens_of(kind).tokenizer)
    ]
    return torch.cat(parts)


def prompts(kind: str, seed: int, count: int, length: int) -> Tensor:
    """Ids [count, length]: pieces of the stories, texts of the language, or random ids, as the
    model's kind is.
    """
    if kind in TRAINED:
        return language(seed + 50_000_000, count, length, zipf=kind.startswith("zipf"))
    generator = torch.Generator().manual_seed(seed)
    if kind.startswith(TWIN) and (name := kind.removeprefix(TWIN)) in _facts():
        return torch.randint(_facts()[name].vocabulary, (count, length), generator=generator)
    kind = kind.removeprefix(TWIN)
    if kind == "specimen" or kind not in ABOUT:
        starts = torch.randint(len(_stories(kind)) - length, (count, 1), generator=generator)
        return _stories(kind)[starts + torch.arange(length)]
    return torch.randint(FRESH, (count, length), generator=generator)


# ---- The trained family: small GPT-2s whose width, depth, vocabulary, head and text vary by a fractional design.
#
# `lab/scripts/train_family.py` trains them into the user's cache; here stand the design and what is
# found there. Claims about width, depth and vocabulary become trends over the members; where the
# family is not cached they say so.

HeadKind: TypeAlias = Literal["tied", "untied", "headless"]
WIDTHS = (32, 64, 128, 256)
DEPTHS = (1, 2, 4, 8)
VOCABULARIES = (256, 1024, 4096, 8192)
HEADS: tuple[HeadKind, ...] = ("tied", "untied", "headless")
TEXTS: tuple[Literal["first", "second"], ...] = ("first", "second")
REPEATED = 4  # members trained under two more seeds: what a seed alone changes


@dataclass(frozen=True, order=True)
class Member:
    """One model of the family; all are trained on the same number of tokens.

    >>> Member(64, 2, 1024, "tied", "first", 0).name
    'w64-d2-v1024-tied-first-s0'
    """

    width: int
    depth: int
    vocabulary: int
    head: HeadKind
    text: Literal["first", "second"]
    seed: int

    @property
    def name(self) -> str:
        return (
            f"w{self.width}-d{self.depth}-v{self.vocabulary}-{self.head}-{self.text}-s{self.seed}"
        )


def design(half: int = 0) -> list[Member]:
    """The 40 members of one half (0 or 1): 32 of which every two factors show all pairs of their
    levels, and 8 repetitions.

    Width and depth are crossed in full, twice; vocabulary is a Latin square over them, shifted in
    the second round, and head and text follow from both, so that no factor is a copy of another.
    The other half takes other vocabularies, heads and texts in the same cells and other seeds: what
    a second run of the ledger looks at.

    >>> len(design()), len(set(design(0)) & set(design(1)))
    (40, 0)
    """
    found = []
    for turn in range(2):
        for i, width in enumerate(WIDTHS):
            for j, depth in enumerate(DEPTHS):
                vocabulary = VOCABULARIES[(i + j + 2 * turn + half) % 4]
                head = HEADS[(i + 2 * j + turn + half) % 3]
                found.append(
                    Member(
                        width,
                        depth,
                        vocabulary,
                        head,
                        TEXTS[(i // 2 + j + turn + half) % 2],
                        10 * half,
                    )
                )
    corners = [found[index] for index in (5, 6, 21, 26)[:REPEATED]]
    again = [
        Member(one.width, one.depth, one.vocabulary, one.head, one.text, one.seed + extra)
        for one in corners
        for extra in (1, 2)
    ]
    return found + again


def family_folder() -> Path:
    """Where the members are: `HEADSCAN_CACHE`, else `~/.cache/headscan`, then `family`."""
    return Path(os.environ.get("HEADSCAN_CACHE") or Path.home() / ".cache" / "headscan") / "family"


def cached(half: int | None = None) -> list[Member]:
    """Members of the design (of one half, or of both) whose training has ended, as their card says."""
    halves = (0, 1) if half is None else (half,)
    return [
        one
        for each in halves
        for one in design(each)
        if (family_folder() / one.name / "README.md").is_file()
    ]


# ---- The models that the claims name, as facts, and whether a slice of one of them can be.


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What a model's configuration says: family, blocks, width, heads, vocabulary, longest context."""

    family: str
    blocks: int
    width: int
    heads: int
    vocabulary: int
    context: int


@cache
def _facts() -> dict[str, ModelFacts]:
    text = (resources.files("headscan_lab.ledger") / "data" / "models.json").read_text(
        encoding="utf-8"
    )
    return {name: ModelFacts(**facts) for name, facts in json.loads(text).items()}


def facts_of(model: str) -> ModelFacts:
    """Of a model that a claim names; BadInput where none does.

    >>> facts_of("gpt2").width
    768
    """
    if model not in _facts():
        raise BadInput(f"No claim names the model {model!r}; there are: {', '.join(_facts())}.")
    return _facts()[model]


def twin_of(given: str, family: str) -> str | None:
    """The kind of a given model's configuration with random weights; None where it is of another
    family.
    """
    if lens_of(given, depth=1).model.config.model_type not in (
        LLAMAS if family == "llama" else (family,)
    ):
        return None
    return given if given.startswith(TWIN) else TWIN + given


def decides(claimed: str, given: str) -> bool:
    """Whether a given model decides a claim about a named one (its words): it is of the family that
    is named, and was trained by others where the claim is about trained weights. The project's own
    specimens are stand-ins, whoever gives them.

    >>> decides("gpt2, untrained", "fresh:gpt2"), decides("gpt2", "fresh:gpt2"), decides("gpt2", "gpt-vanilla")
    (True, False, False)
    """
    name = claimed.split(",")[0]
    untrained = "untrained" in claimed
    if (
        name not in _facts()
        or (given.startswith(TWIN) and not untrained)
        or not (given.startswith(TWIN) or Path(given).exists())
    ):
        return False
    return (
        twin_of(given, "llama" if _facts()[name].family in LLAMAS else _facts()[name].family)
        is not None
    )


def check_original(model: str, cut: SliceSpecification | None = None) -> str:
    """A sentence on the model, or BadInput where it has no such block or feature.

    >>> check_original("gpt2")
    'gpt2: 12 blocks of width 768, V = 50,257'
    """
    facts = facts_of(model)
    for site in cut.sites if cut is not None else ():
        found = re.match(r"block\.(\d+)", site)
        if found and int(found[1]) >= facts.blocks:
            raise BadInput(f"{model} has the blocks 0 to {facts.blocks - 1}; there is no {site}.")
    if cut is not None:
        for end in (
            re.findall(r"\d+", cut.features) if not cut.features.startswith("random") else ()
        ):
            if int(end) > facts.width:
                raise BadInput(
                    f"{model} is {facts.width} wide; there are no features {cut.features}."
                )
    return f"{model}: {facts.blocks} blocks of width {facts.width}, V = {facts.vocabulary:,}"
