"""The small models that are examined in place of a claim's own, by kind and seed.

None needs a file from outside:

- `specimen`: gpt-vanilla, trained on stories, shipped inside the package (128 wide, 5 blocks, V =
  4,096). It is one model, whatever the seed, so that only prompts and starts differ.
- `taught`, `headless`: Llamas trained here for a minute on a made-up language, one a seed, with a
  head or by contrastive weight tying. All tokens of this language are about equally common.
- `zipf`, `zipf-tied`, `zipf-bias`, `zipf-headless`: the same training on a language whose tokens
  follow Zipf's law, with an untied head, a tied head, an untied head whose bias starts at the
  logarithm of the token frequencies, and without a head.
- `gpt2`, `llama`: random weights, one a seed.

Any other kind is a trained model itself, by its name or folder: claims about trained models in
general are tried on it, too. `fresh:MODEL` has the same configuration and random weights; MODEL may
also be one that the claims name (`fresh:gpt2`).
"""

import gc
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from headscan.model import Lens
from headscan.run import BadInput
from headscan.text import documents, tokenise
from headscan.training import cwt_loss
from headscan_lab.ledger.experiment import Experiment, StandIn
from headscan_lab.ledger.language import VOCABULARY, language
from headscan_lab.ledger.named_models import LLAMAS, RANDOM_TWIN, ModelFacts, all_facts

TRAINED = ("taught", "headless", "zipf", "zipf-tied", "zipf-bias", "zipf-headless")
SPECIMEN = "gpt-vanilla"
RANDOM_VOCABULARY = 512  # of the proxies with random weights
POSITIONS = 64
TRAINING_STEPS = 200
TRAINING_TEXTS = 32  # of a step
TRAINING_LENGTH = 12
LARGE_TABLE = 100_000_000
"""The numbers of an embedding table beyond which a model is called large: few claims are tried on
it.
"""

_MADE_UP_LANGUAGE = f"one Llama a seed, 64 wide, 3 blocks, V = {VOCABULARY}, trained here"
_ZIPF_WHY = (
    "The law's exponent, 0.93, is that of wikitext-2's 256 commonest words; its commonest token "
    "is 10 % of a text (wikitext-2: 9 % of all words, 15 % of those 256)."
)
_ZIPF_HEADS = {
    "zipf": "with an untied head",
    "zipf-tied": "with a tied head",
    "zipf-bias": "with an untied head and a bias that starts at the log frequencies",
    "zipf-headless": "without a head",
}
_RANDOM_ARCHITECTURES = {"gpt2": "GPT-2", "llama": "Llama"}

ABOUT: dict[str, StandIn] = {
    "specimen": StandIn(
        f"{SPECIMEN}: GPT-2's architecture, 128 wide, 5 blocks, V = 4,096, trained on stories",
        "It is a trained causal transformer of the same architecture; width, depth and vocabulary "
        "are smaller.",
    ),
    "taught": StandIn(
        f"{_MADE_UP_LANGUAGE} on a made-up language",
        "Training is repeated with every seed, and V is small enough to try every token; the "
        "language is a Markov chain.",
    ),
    "headless": StandIn(
        f"{_MADE_UP_LANGUAGE} without a head on a made-up language",
        "The same training as its pair with a head, but for the objective.",
    ),
}
for _kind, _head in _ZIPF_HEADS.items():
    ABOUT[_kind] = StandIn(
        f"{_MADE_UP_LANGUAGE} {_head} on a made-up language with Zipf's law", _ZIPF_WHY
    )
for _kind, _architecture in _RANDOM_ARCHITECTURES.items():
    ABOUT[_kind] = StandIn(
        f"one {_architecture} with random weights a seed, 64 wide, 3 blocks, V = "
        f"{RANDOM_VOCABULARY:,}",
        "Random weights need no training; width, depth and vocabulary are smaller.",
    )


def about(kind: str, width: int = 64, depth: int = 3) -> StandIn:
    """Return what a model is, and why it may be examined in place of a claim's own."""
    if kind.startswith(RANDOM_TWIN):
        model = kind.removeprefix(RANDOM_TWIN)
        name = model if model in all_facts() else lens_of(model).name
        return StandIn(
            f"{name} with random weights",
            "It has the model's own configuration; weights are drawn, once a seed.",
        )
    if kind not in ABOUT:
        return StandIn(
            lens_of(kind).name,
            "It is a trained model, as the claim is about; its own size, text and training.",
        )
    proxy = ABOUT[kind]
    if kind not in _RANDOM_ARCHITECTURES:
        return proxy
    size = f"{width} wide, {depth} blocks"
    return replace(proxy, name=proxy.name.replace("64 wide, 3 blocks", size))


class OnModels(Experiment):
    """An experiment on the one model that its field `model` names.

    Each experiment declares the field itself, at its own position: stored answers are found by the
    order of fields.
    """

    model: str

    def on(self, model: str) -> Experiment | None:
        return replace(self, model=model)

    def stand_ins(self) -> tuple[StandIn, ...]:
        return (about(self.model),)


def lens_of(kind: str, seed: int = 0, width: int = 64, depth: int = 3) -> Lens:
    """Return the model of a kind and seed; the same object for the same arguments.

    Of the models that users name one is held at a time.
    """
    if kind == "specimen":
        return _specimen()
    if kind.startswith(RANDOM_TWIN):
        return _randomised(kind.removeprefix(RANDOM_TWIN), seed, depth)
    return _proxy(kind, seed, width, depth) if kind in ABOUT else _loaded(kind)


@lru_cache(maxsize=24)
def _proxy(kind: str, seed: int, width: int, depth: int) -> Lens:
    if kind in TRAINED:
        return _trained(seed, kind)
    facts = ModelFacts(
        family=kind,
        blocks=depth,
        width=width,
        heads=4,
        vocabulary=RANDOM_VOCABULARY,
        context=POSITIONS,
    )
    model = _random_model(facts, seed, inner_width=4 * width)
    return Lens(model, name=f"{kind} {depth} x {width}, random weights {seed}")


@cache
def _specimen() -> Lens:
    return Lens.load(SPECIMEN)


@lru_cache(maxsize=1)  # it may be large
def _loaded(name: str) -> Lens:
    gc.collect()  # the modules of a model that was dropped point to one another
    return Lens.load(name)


@lru_cache(maxsize=2)
def _randomised(name: str, seed: int, depth: int) -> Lens:
    """Return random weights in a model's configuration; of a named one at most `depth` blocks."""
    gc.collect()
    if name not in all_facts():
        return lens_of(name).random_init(seed, first_block=depth == 1)
    facts = all_facts()[name]
    if facts.family not in ("gpt2", "llama"):
        raise BadInput(
            f"{RANDOM_TWIN}{name} cannot be made here: only models of the families gpt2 and llama "
            "can."
        )
    # Llama's own rule: 8/3 of the width, rounded up to a multiple of 256 (11,008 at 4,096).
    inner_width = 256 * -(-8 * facts.width // 3 // 256)
    shallow = replace(facts, blocks=min(depth, facts.blocks))
    model = _random_model(shallow, seed, inner_width)
    return Lens(model, name=f"{name} with random weights {seed}")


def _random_model(facts: ModelFacts, seed: int, inner_width: int) -> PreTrainedModel:
    """Return a Llama or a GPT-2 with random weights, for POSITIONS positions.

    Args:
        inner_width: of a Llama's MLP; a GPT-2's is four times its width.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if facts.family == "llama":
            return LlamaForCausalLM(_llama_config(facts, inner_width))
        return GPT2LMHeadModel(
            GPT2Config(
                vocab_size=facts.vocabulary,
                n_embd=facts.width,
                n_layer=facts.blocks,
                n_head=facts.heads,
                n_positions=POSITIONS,
                bos_token_id=0,
                eos_token_id=0,
            )
        )


def _llama_config(facts: ModelFacts, inner_width: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=facts.vocabulary,
        hidden_size=facts.width,
        intermediate_size=inner_width,
        num_hidden_layers=facts.blocks,
        num_attention_heads=facts.heads,
        max_position_embeddings=POSITIONS,
        bos_token_id=0,
        eos_token_id=0,
    )


def _trained(seed: int, kind: str) -> Lens:
    """Return a small Llama that was trained to predict next tokens of the made-up language.

    It is trained with a head, or against its input embeddings.
    """
    headless = kind.endswith("headless")
    zipf = kind.startswith("zipf")
    facts = ModelFacts(
        family="llama", blocks=3, width=64, heads=4, vocabulary=VOCABULARY, context=POSITIONS
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(_llama_config(facts, inner_width=256))
        if kind == "zipf-tied":
            model.lm_head.weight = model.model.embed_tokens.weight
        if kind == "zipf-bias":
            model.lm_head.bias = _log_frequencies(seed)
        optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
        for step in range(TRAINING_STEPS):
            ids = language(seed * 100_000 + step, TRAINING_TEXTS, TRAINING_LENGTH, zipf=zipf)
            hidden_states = model.model(input_ids=ids[:, :-1]).last_hidden_state.flatten(0, 1)
            targets = ids[:, 1:].flatten()
            if headless:
                loss = cwt_loss(hidden_states, model.model.embed_tokens.weight, targets)
            else:
                logits = model.lm_head(hidden_states)
                loss = torch.nn.functional.cross_entropy(logits, targets)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    name = f"llama 3 x 64, trained {_head_in_words(kind)}"
    if zipf:
        name += ", Zipf's law"
    return Lens(model.eval().requires_grad_(False), name=f"{name}, seed {seed}")


def _head_in_words(kind: str) -> str:
    if kind.endswith("headless"):
        return "without a head"
    if kind in ("taught", "zipf"):
        return "with a head"
    return f"with a head ({kind.removeprefix('zipf-')})"


def _log_frequencies(seed: int) -> torch.nn.Parameter:
    """Return the logarithms of the smoothed token frequencies of the language with Zipf's law."""
    ids = language(seed + 90_000_000, 1000, TRAINING_LENGTH, zipf=True)
    counts = torch.bincount(ids.flatten(), minlength=VOCABULARY)
    return torch.nn.Parameter(((counts + 1.0) / (counts + 1.0).sum()).log())


@lru_cache(maxsize=2)
def _stories(kind: str) -> Tensor:
    """Return the shipped stories as ids of a model's tokenizer."""
    parts = []
    for document in tokenise(documents("stories"), lens_of(kind).tokenizer):
        parts.append(torch.as_tensor(document.ids, dtype=torch.int64))
    return torch.cat(parts)


def prompts(kind: str, seed: int, count: int, length: int) -> Tensor:
    """Return the ids [count, length] of prompts for a model.

    They are pieces of the stories, texts of the made-up language, or random ids, as the model's
    kind asks for.
    """
    if kind in TRAINED:
        return language(seed + 50_000_000, count, length, zipf=kind.startswith("zipf"))
    generator = torch.Generator().manual_seed(seed)
    model = kind.removeprefix(RANDOM_TWIN)
    if kind.startswith(RANDOM_TWIN) and model in all_facts():
        vocabulary = all_facts()[model].vocabulary
        return torch.randint(vocabulary, (count, length), generator=generator)
    if model == "specimen" or model not in ABOUT:
        stories = _stories(model)
        starts = torch.randint(len(stories) - length, (count, 1), generator=generator)
        return stories[starts + torch.arange(length)]
    return torch.randint(RANDOM_VOCABULARY, (count, length), generator=generator)


def random_twin(model: str, family: str) -> str | None:
    """Return the kind of a model's configuration with random weights.

    It is None where the model is of another family.
    """
    types = LLAMAS if family == "llama" else (family,)
    if lens_of(model, depth=1).model.config.model_type not in types:
        return None
    return model if model.startswith(RANDOM_TWIN) else RANDOM_TWIN + model


def decides(claimed: str, model: str) -> bool:
    """Return whether a model decides a claim about a named one.

    It must be of the family of the named model, and trained by others where the claim is about
    trained weights. The project's own models are proxies, whoever names them.

    Args:
        claimed: the claim's words for its model.

    >>> decides("gpt2, untrained", "fresh:gpt2"), decides("gpt2", "fresh:gpt2")
    (True, False)
    >>> decides("gpt2", "gpt-vanilla")
    False
    """
    name = claimed.split(",")[0]
    about_untrained = "untrained" in claimed
    is_random = model.startswith(RANDOM_TWIN)
    if name not in all_facts() or (is_random and not about_untrained):
        return False
    if not is_random and not Path(model).exists():
        return False
    family = all_facts()[name].family
    return random_twin(model, "llama" if family in LLAMAS else family) is not None
