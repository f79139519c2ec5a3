"""The models that statements are tried on: by name, with random weights, or trained here.

- `taught`, `headless`: Llamas trained here on a made-up language, with a head or by contrastive
  weight tying. All tokens of this language are about equally common.
- `zipf`, `zipf-tied`, `zipf-bias`, `zipf-headless`: the same training on a language whose tokens
  follow Zipf's law, with an untied head, a tied head, an untied head whose bias starts at the
  logarithm of the token frequencies, and without a head.
- `llama`, `gpt2`: random weights, one model a seed.
- `fresh:MODEL`: a model's configuration with random weights.
- Any other kind is a trained model, by its name or folder.
"""

import gc
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from headscan.model import Lens
from headscan.run import BadInput
from headscan.text import documents, tokenise
from headscan.training import cwt_loss
from headscan_lab.ledger.language import VOCABULARY, language

TRAINED_HERE = ("taught", "headless", "zipf", "zipf-tied", "zipf-bias", "zipf-headless")
DEFAULT_MODEL = "gpt-vanilla"
RANDOM_TWIN = "fresh:"
EIGHT_BITS = "8bit:"
RANDOM_VOCABULARY = 512  # of the models with random weights that are made here
POSITIONS = 64
TRAINING_TEXTS = 32  # of a step
TRAINING_LENGTH = 12
LARGE_TABLE = 100_000_000
"""The numbers of an embedding table beyond which a model is called large: few statements are
tried on it.
"""
LLAMAS = ("llama", "mistral", "qwen2", "qwen3")  # one block: RMS norm, rotary positions, gated MLP


@lru_cache(maxsize=1)  # it may be large
def lens_of(kind: str, seed: int = 0) -> Lens:
    """Return a trained model, or with `fresh:` its configuration with random weights."""
    gc.collect()  # the modules of a model that was dropped point to one another
    if kind.startswith(RANDOM_TWIN):
        make_twin = lens_of(kind.removeprefix(RANDOM_TWIN)).twin(seed)
        lens_of.cache_clear()  # two large models need not be in memory at once
        gc.collect()
        return make_twin()
    if kind.startswith(EIGHT_BITS):
        return Lens.load(kind.removeprefix(EIGHT_BITS), dtype="8bit")
    return Lens.load(kind)


@lru_cache(maxsize=8)
def random_lens(
    family: Literal["llama", "gpt2"], seed: int, width: int = 64, depth: int = 3
) -> Lens:
    """Return a Llama or a GPT-2 with random weights, of 512 tokens."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel
        if family == "llama":
            model = LlamaForCausalLM(_llama_config(RANDOM_VOCABULARY, width, depth))
        else:
            model = GPT2LMHeadModel(
                GPT2Config(
                    vocab_size=RANDOM_VOCABULARY,
                    n_embd=width,
                    n_layer=depth,
                    n_head=4,
                    n_positions=POSITIONS,
                    bos_token_id=0,
                    eos_token_id=0,
                )
            )
    return Lens(model, name=f"{family} {depth} x {width}, random weights {seed}")


def _llama_config(vocabulary: int, width: int, depth: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=depth,
        num_attention_heads=4,
        max_position_embeddings=POSITIONS,
        bos_token_id=0,
        eos_token_id=0,
    )


@lru_cache(maxsize=32)
def trained_here(kind: str, seed: int, steps: tuple[int, ...]) -> dict[int, LlamaForCausalLM]:
    """Return copies of a small Llama after some steps of training on the made-up language."""
    zipf = kind.startswith("zipf")
    copies = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(_llama_config(VOCABULARY, 64, 3))
        if kind == "zipf-tied":
            model.lm_head.weight = model.model.embed_tokens.weight
        if kind == "zipf-bias":
            model.lm_head.bias = _log_frequencies(seed)
        optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
        for step in range(1, max(steps) + 1):
            ids = language(seed * 100_000 + step, TRAINING_TEXTS, TRAINING_LENGTH, zipf=zipf)
            states = model.model(input_ids=ids[:, :-1]).last_hidden_state.flatten(0, 1)
            targets = ids[:, 1:].flatten()
            if kind.endswith("headless"):
                loss = cwt_loss(states, model.model.embed_tokens.weight, targets)
            else:
                loss = torch.nn.functional.cross_entropy(model.lm_head(states), targets)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if step in steps:
                copies[step] = _copy_of(model)
    return copies


def _copy_of(model: LlamaForCausalLM) -> LlamaForCausalLM:
    copy = LlamaForCausalLM(model.config)
    if model.lm_head.bias is not None:
        copy.lm_head.bias = torch.nn.Parameter(torch.zeros(VOCABULARY))
    copy.load_state_dict(model.state_dict())
    copy.eval().requires_grad_(False)
    return copy


def _log_frequencies(seed: int) -> torch.nn.Parameter:
    """Return the logarithms of the smoothed token frequencies of the language with Zipf's law."""
    ids = language(seed + 90_000_000, 1000, TRAINING_LENGTH, zipf=True)
    counts = torch.bincount(ids.flatten(), minlength=VOCABULARY)
    return torch.nn.Parameter(((counts + 1.0) / (counts + 1.0).sum()).log())


@lru_cache(maxsize=4)
def _text_ids(tokenizer_of: str, text: str) -> Tensor:
    """Return a text as ids of a model's tokenizer; "stories" or "reference" (Python's own)."""
    if text == "stories":
        source = documents("stories")
    else:
        from pydoc_data.topics import topics

        source = documents(["\n".join(topics.values())])
    parts = []
    for document in tokenise(source, lens_of(tokenizer_of).require_tokenizer()):
        parts.append(torch.as_tensor(document.ids, dtype=torch.int64))
    return torch.cat(parts)


def prompts(kind: str, seed: int, count: int, length: int, *, text: str = "stories") -> Tensor:
    """Return ids [count, length]: pieces of a text in a model's tokens."""
    generator = torch.Generator().manual_seed(seed)
    ids = _text_ids(kind.removeprefix(RANDOM_TWIN).removeprefix(EIGHT_BITS), text)
    starts = torch.randint(len(ids) - length, (count, 1), generator=generator)
    return ids[starts + torch.arange(length)]


def require_family(kind: str, family: Literal["llama", "gpt2"]) -> Lens:
    """Return the model; raise BadInput where it is of another family."""
    lens = lens_of(kind)
    types = LLAMAS if family == "llama" else ("gpt2",)
    if lens.model.config.model_type not in types:
        raise BadInput(f"{lens.name} is no {'Llama' if family == 'llama' else 'GPT-2'}.")
    return lens


def require_small(kind: str) -> Lens:
    """Return the model; raise BadInput where its table is so large that this takes hours."""
    lens = lens_of(kind)
    if lens.input_embeddings.numel() > LARGE_TABLE:
        raise BadInput(f"{lens.name} is too large for this in minutes.")
    return lens
