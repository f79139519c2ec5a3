"""Recipes: the settings of a training run, at the published size and at sizes for a CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Literal, get_args

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    BertConfig,
    DistilBertConfig,
    GPTNeoXConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
)

from headscan.run import BadInput
from headscan.run.errors import nearest
from headscan.text import Document

Size = Literal["tiny", "small", "paper"]
PYTHIA = "EleutherAI/pythia-70m-deduped"

Architecture = Callable[[int, int], PreTrainedConfig]
"""A function of the vocabulary and the context that returns a model's configuration."""


@dataclass(frozen=True, kw_only=True)
class RecipeRecord:
    """The settings of a training run.

    Attributes:
        masked: hide 15 % of the tokens and predict those (a BERT); else predict the next token.
        context: tokens of a window.
        batch: windows of a step on one process.
        accumulation: micro-batches before the weights move.
        rate: peak learning rate.
        warmup: steps of linear warm-up.
        schedule: "linear" (triangular), "cosine" or "constant".
        tokenizer: a tokenizer on the Hub; None: one is fitted.
    """

    name: str
    size: Size
    masked: bool
    vocabulary: int
    context: int
    batch: int
    accumulation: int
    steps: int
    rate: float
    warmup: int
    schedule: Literal["linear", "cosine", "constant"]
    weight_decay: float
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    clip: float = 1.0
    tokenizer: str | None = None
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class Recipe(RecipeRecord):
    """One training run, as data: its settings, and the model's architecture."""

    architecture: Architecture = field(repr=False)

    def config(self, vocabulary: int | None = None) -> PreTrainedConfig:
        """Return the transformers configuration, for the tokenizer's real number of tokens."""
        return self.architecture(vocabulary or self.vocabulary, self.context)

    def but(self, **changes: Any) -> Recipe:
        """Return this recipe with some fields changed; None means unchanged."""
        changed = {name: value for name, value in changes.items() if value is not None}
        return replace(self, **changed)

    def mixing(self, mixing: str | None, kernels: int | None) -> Recipe:
        """Return this recipe of a mixer with another way of mixing tokens.

        Args:
            mixing: "flat", "expanded", "parallel" or "heads"; None: as the recipe does.
            kernels: matrices that are summed (parallel), hidden units a position (expanded) or
                heads; None: the configuration's own.

        Raises:
            BadInput: for a recipe that is no mixer, or a flat mixing of several kernels.
        """
        if mixing is None and kernels is None:
            return self
        if self.name != "mixer":
            raise BadInput("--mixing and --kernels belong to the recipe mixer.")
        if kernels is not None and mixing not in _KERNELS:
            raise BadInput(f"--kernels belongs to --mixing {', '.join(_KERNELS)}.")
        changes: dict[str, Any] = {"mixing": mixing}
        if kernels is not None:
            changes[_KERNELS[str(mixing)]] = kernels
        return replace(self, architecture=partial(_changed, self.architecture, changes))

    @property
    def tokens_a_step(self) -> int:
        return self.context * self.batch * self.accumulation

    def record(self) -> RecipeRecord:
        """Return its settings, for the protocol."""
        names = [setting.name for setting in fields(RecipeRecord)]
        return RecipeRecord(**{name: getattr(self, name) for name in names})


_KERNELS = {
    "parallel": "mixing_branches",
    "expanded": "mixing_expansion",
    "heads": "mixing_heads",
}
"""The field of a mixer's configuration that counts its kernels, by its mixing."""


def _changed(
    architecture: Architecture, changes: dict[str, Any], vocabulary: int, context: int
) -> PreTrainedConfig:
    """Return the configuration of an architecture with some fields changed."""
    config = architecture(vocabulary, context)
    return type(config)(**(config.to_dict() | changes))


def _gpt(size: Size, vocabulary: int, context: int) -> PreTrainedConfig:
    width, depth, heads = {"tiny": (128, 4, 4), "small": (256, 6, 4), "paper": (512, 6, 8)}[size]
    return GPTNeoXConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        max_position_embeddings=context,
        bos_token_id=0,
        eos_token_id=0,
    )


def _bert(size: Size, vocabulary: int, context: int) -> PreTrainedConfig:
    width, depth, heads = {"tiny": (128, 4, 4), "small": (512, 4, 8), "paper": (768, 12, 12)}[size]
    # Dropout is for many epochs over little text with a large model; the small ones never get
    # there.
    dropout = 0.1 if size == "paper" else 0.0
    return BertConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        max_position_embeddings=max(512, context) if size == "paper" else context,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )


def _multilingual(size: Size, vocabulary: int, context: int) -> PreTrainedConfig:
    width, depth, heads = {"tiny": (128, 2, 4), "small": (384, 4, 6), "paper": (768, 6, 12)}[size]
    dropout = 0.1 if size == "paper" else 0.0
    return DistilBertConfig(
        vocab_size=vocabulary,
        dim=width,
        n_layers=depth,
        n_heads=heads,
        hidden_dim=4 * width,
        dropout=dropout,
        max_position_embeddings=max(512, context) if size == "paper" else context,
        attention_dropout=dropout,
    )


def _mixer(size: Size, vocabulary: int, context: int) -> PreTrainedConfig:
    from headscan.model.mixer import MixerConfig

    width, depth = {"tiny": (128, 4), "small": (256, 8), "paper": (1024, 8)}[size]
    return MixerConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=depth,
        max_position_embeddings=context,
        final_norm=size != "paper",
    )


@dataclass(frozen=True)
class Schedule:
    """The settings of a recipe that differ between its sizes."""

    vocabulary: int
    context: int
    batch: int
    accumulation: int
    steps: int
    rate: float
    warmup: int


@dataclass(frozen=True)
class Design:
    """A recipe at all its sizes.

    Attributes:
        architecture: a function of size, vocabulary and context.
        shared: settings that all sizes have.
        published: settings that only the published size has besides.
        sizes: the settings of each size.
    """

    architecture: Callable[[Size, int, int], PreTrainedConfig]
    shared: dict[str, Any]
    published: dict[str, str]
    sizes: dict[Size, Schedule]


_LINEAR: dict[str, Any] = {"schedule": "linear", "weight_decay": 0.01}

RECIPES: dict[str, Design] = {
    # A Pythia-like GPT for English; paper: pythia-70m, AdamW (0.9, 0.95), cosine, clip 1.
    "gpt": Design(
        _gpt,
        {"masked": False, "schedule": "cosine", "weight_decay": 0.1, "betas": (0.9, 0.95)},
        {
            "tokenizer": PYTHIA,
            "source": "Godey et al. 2024, appendix D (device batch 8, the only one consistent "
            "with its figures)",
        },
        {
            "tiny": Schedule(4_096, 64, 16, 1, 1000, 2e-3, 100),
            "small": Schedule(16_000, 256, 16, 1, 3000, 1e-3, 150),
            "paper": Schedule(50_304, 2048, 8, 128, 143_000, 1e-3, 1_430),
        },
    ),
    # A BERT for English; paper: bert-base, 110 M parameters, triangular.
    "bert": Design(
        _bert,
        _LINEAR | {"masked": True},
        {
            "tokenizer": PYTHIA,
            "source": "Godey et al. 2024, appendix D (8 GPUs of 64 windows: here 8 accumulated "
            "micro-batches)",
        },
        {
            "tiny": Schedule(4_096, 64, 16, 1, 600, 2e-3, 60),
            "small": Schedule(20_000, 128, 32, 1, 3000, 5e-4, 150),
            "paper": Schedule(50_277, 128, 64, 8, 1_000_000, 1e-4, 10_000),
        },
    ),
    # A DistilBERT-like model for ten languages (ar de en es fr hi it ja ko zh); paper: 137 M
    # parameters, on Wikipedia.
    "multilingual": Design(
        _multilingual,
        _LINEAR | {"masked": True},
        {
            "tokenizer": "distilbert-base-multilingual-cased",
            "source": "Godey et al. 2024, appendix D",
        },
        {
            "tiny": Schedule(8_192, 64, 16, 1, 600, 2e-3, 60),
            "small": Schedule(30_000, 128, 32, 1, 4000, 5e-4, 200),
            "paper": Schedule(119_547, 128, 64, 1, 400_000, 2e-4, 10_000),
        },
    ),
    # A flat masked mixer (Badger 2024, arXiv:2409.01482); paper: d = 1024, 8 blocks, 512 slots,
    # TinyStories' tokenizer.
    "mixer": Design(
        _mixer,
        _LINEAR | {"masked": False},
        {"source": "Badger 2024"},
        {
            "tiny": Schedule(4_096, 64, 16, 1, 1000, 2e-3, 100),
            "small": Schedule(4_096, 256, 16, 1, 4000, 1e-3, 200),
            "paper": Schedule(4_096, 512, 16, 1, 500_000, 5e-4, 500),
        },
    ),
}


def recipe_of(name: str, size: Size = "tiny") -> Recipe:
    """Return the recipe of a name; BadInput lists the names.

    >>> recipe_of("gpt").context, recipe_of("gpt", "paper").config().hidden_size
    (64, 512)
    >>> recipe_of("bert", "paper").tokens_a_step
    65536
    """
    if name not in RECIPES:
        raise BadInput(
            f"There is no recipe {name!r}; there are {', '.join(RECIPES)}.{nearest(name, RECIPES)}"
        )
    if size not in get_args(Size):
        raise BadInput(f"The size must be one of {', '.join(get_args(Size))}, not {size!r}.")
    design = RECIPES[name]
    settings = vars(design.sizes[size]) | design.shared
    if size == "paper":
        settings |= design.published
    return Recipe(name=name, size=size, architecture=partial(design.architecture, size), **settings)


END = "<|endoftext|>"
MASK = "<|mask|>"
PAD = "<|pad|>"
SMALLEST_VOCABULARY = 256 + 3
"""Tokens for all bytes and the special tokens."""


def fit_tokenizer(
    texts: Iterable[str | Document],
    vocabulary: int,
    *,
    masked: bool = False,
    context: int | None = None,
) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE of at most `vocabulary` tokens, fitted on texts (strings or
    documents), in their order.

    Token 0 is <|endoftext|>, which joins documents; with `masked` there are <|mask|> and <|pad|>
    too. A text too short for so many merges gives fewer. Deterministic: same texts, same tokens.
    Raises BadInput below 259 tokens, too few for all bytes.

    >>> tokenizer = fit_tokenizer(["the cat sat on the mat"] * 3, 300)
    >>> tokenizer.decode(tokenizer.encode("the café")), tokenizer.eos_token_id
    ('the café', 0)
    """
    if vocabulary < SMALLEST_VOCABULARY:
        raise BadInput(
            f"A byte-level vocabulary needs at least {SMALLEST_VOCABULARY} tokens, not "
            f"{vocabulary}."
        )
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe_trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END, MASK, PAD] if masked else [END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(_pieces(texts), bpe_trainer)

    options: dict[str, Any] = {"bos_token": END, "eos_token": END, "pad_token": END}
    if masked:
        options |= {"mask_token": MASK, "pad_token": PAD}
    if context is not None:
        options["model_max_length"] = context
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, clean_up_tokenization_spaces=False, **options
    )


def _pieces(texts: Iterable[str | Document]) -> Iterator[str]:
    """Yield the texts one by one, and documents piece by piece."""
    for text in texts:
        if isinstance(text, str):
            yield text
        else:
            yield from text
