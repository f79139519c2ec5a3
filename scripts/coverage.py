"""Write docs/generated/coverage.md: which sites headscan finds in which family, each compared with
the model's own hidden states.

Every family is built from a tiny configuration with random weights, so nothing is downloaded. The
same builders and the same comparison run in tests/model/test_coverage.py, which also fails when
docs/generated/coverage.md is not up to date.

    python scripts/coverage.py            # writes docs/generated/coverage.md
"""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from headscan.model import Lens

PAGE = Path(__file__).resolve().parents[1] / "docs" / "generated" / "coverage.md"
LENGTH = 11
DECODER_LENGTH = 9

SMALL = {"vocab_size": 97, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
WIDE = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
ROPE = {"max_position_embeddings": 64}
GROUPED = {"num_key_value_heads": 2, "head_dim": 8}


@dataclass(frozen=True)
class Family:
    """A row of the table: how to build one tiny model."""

    name: str
    config: str
    model: str
    options: dict[str, Any]

    def build(self, seed: int = 0) -> Any:
        """The model with random weights, large enough that no branch hides behind another."""
        config = getattr(transformers, self.config)(**self.options)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = getattr(transformers, self.model)(config)
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    if parameter.ndim == 1 and "norm" in name.lower() and name.endswith("weight"):
                        parameter.mul_(1 + 0.3 * torch.randn_like(parameter))
                    elif parameter.ndim == 2:
                        parameter.mul_(3)
        return model.eval()


def _bert(name: str, **settings: Any) -> list[Family]:
    """An encoder of BERT's kind with its masked head, and bare."""
    options = SMALL | WIDE | {"max_position_embeddings": 64} | settings
    return [
        Family(f"{name} (masked LM)", f"{name}Config", f"{name}ForMaskedLM", options),
        Family(f"{name} (bare encoder)", f"{name}Config", f"{name}Model", options),
    ]


FAMILIES: list[Family] = [
    Family(
        "GPT-2",
        "GPT2Config",
        "GPT2LMHeadModel",
        SMALL | {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64},
    ),
    Family(
        "GPT-2 (bare)",
        "GPT2Config",
        "GPT2Model",
        SMALL | {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64},
    ),
    Family(
        "GPT-Neo",
        "GPTNeoConfig",
        "GPTNeoForCausalLM",
        SMALL
        | {
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "max_position_embeddings": 64,
            "window_size": 4,
        },
    ),
    Family(
        "GPT-NeoX, Pythia (parallel)", "GPTNeoXConfig", "GPTNeoXForCausalLM", SMALL | WIDE | ROPE
    ),
    Family(
        "GPT-NeoX (sequential)",
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        SMALL | WIDE | ROPE | {"use_parallel_residual": False},
    ),
    Family(
        "GPT-J",
        "GPTJConfig",
        "GPTJForCausalLM",
        SMALL | {"n_embd": 32, "n_layer": 3, "n_head": 4, "rotary_dim": 4, "n_positions": 64},
    ),
    Family(
        "OPT",
        "OPTConfig",
        "OPTForCausalLM",
        SMALL
        | {
            "hidden_size": 32,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "ffn_dim": 48,
            "max_position_embeddings": 64,
            "word_embed_proj_dim": 32,
        },
    ),
    Family(
        "OPT-350m (post-norm, projected embeddings)",
        "OPTConfig",
        "OPTForCausalLM",
        SMALL
        | {
            "hidden_size": 32,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "ffn_dim": 48,
            "do_layer_norm_before": False,
            "max_position_embeddings": 64,
            "word_embed_proj_dim": 16,
        },
    ),
    Family(
        "BLOOM",
        "BloomConfig",
        "BloomForCausalLM",
        SMALL | {"hidden_size": 32, "n_layer": 3, "n_head": 4},
    ),
    Family(
        "Falcon (sequential)",
        "FalconConfig",
        "FalconForCausalLM",
        SMALL | WIDE | {"parallel_attn": False, "alibi": True},
    ),
    Family(
        "Falcon (parallel)",
        "FalconConfig",
        "FalconForCausalLM",
        SMALL | WIDE | {"parallel_attn": True},
    ),
    Family(
        "Falcon (new decoder)",
        "FalconConfig",
        "FalconForCausalLM",
        SMALL | WIDE | {"new_decoder_architecture": True, "num_kv_heads": 2},
    ),
    Family("Llama", "LlamaConfig", "LlamaForCausalLM", SMALL | WIDE | ROPE | GROUPED),
    Family("Llama (bare)", "LlamaConfig", "LlamaModel", SMALL | WIDE | ROPE | GROUPED),
    Family(
        "Mistral",
        "MistralConfig",
        "MistralForCausalLM",
        SMALL | WIDE | ROPE | GROUPED | {"sliding_window": 4},
    ),
    Family(
        "Mixtral (mixture of experts)",
        "MixtralConfig",
        "MixtralForCausalLM",
        SMALL | WIDE | ROPE | GROUPED | {"num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    Family(
        "Qwen 2",
        "Qwen2Config",
        "Qwen2ForCausalLM",
        SMALL | WIDE | ROPE | {"num_key_value_heads": 2},
    ),
    Family("Qwen 3", "Qwen3Config", "Qwen3ForCausalLM", SMALL | WIDE | ROPE | GROUPED),
    Family(
        "Qwen 3 (mixture of experts)",
        "Qwen3MoeConfig",
        "Qwen3MoeForCausalLM",
        SMALL
        | WIDE
        | ROPE
        | GROUPED
        | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    ),
    Family("Gemma", "GemmaConfig", "GemmaForCausalLM", SMALL | WIDE | ROPE | GROUPED),
    Family(
        "Gemma 2 (norms on the branches)",
        "Gemma2Config",
        "Gemma2ForCausalLM",
        SMALL | WIDE | ROPE | GROUPED,
    ),
    Family(
        "Gemma 3",
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        SMALL | WIDE | ROPE | GROUPED | {"sliding_window": 4},
    ),
    Family("Phi (parallel)", "PhiConfig", "PhiForCausalLM", SMALL | WIDE | ROPE),
    Family(
        "Phi-3", "Phi3Config", "Phi3ForCausalLM", SMALL | WIDE | ROPE | {"num_key_value_heads": 2}
    ),
    Family(
        "OLMo 2 (norms on the branches)", "Olmo2Config", "Olmo2ForCausalLM", SMALL | WIDE | ROPE
    ),
    Family("Cohere (parallel)", "CohereConfig", "CohereForCausalLM", SMALL | WIDE | ROPE),
    Family(
        "StableLM",
        "StableLmConfig",
        "StableLmForCausalLM",
        SMALL | WIDE | ROPE | {"num_key_value_heads": 4},
    ),
    Family(
        "MPT",
        "MptConfig",
        "MptForCausalLM",
        SMALL | {"d_model": 32, "n_heads": 4, "n_layers": 3, "max_seq_len": 64},
    ),
    *_bert("Bert"),
    *_bert("Roberta"),
    *_bert("XLMRoberta"),
    Family(
        "DistilBert (masked LM)",
        "DistilBertConfig",
        "DistilBertForMaskedLM",
        SMALL
        | {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 64},
    ),
    Family(
        "DistilBert (bare encoder)",
        "DistilBertConfig",
        "DistilBertModel",
        SMALL
        | {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 64},
    ),
    Family(
        "ELECTRA (generator)",
        "ElectraConfig",
        "ElectraForMaskedLM",
        SMALL | WIDE | {"embedding_size": 16, "max_position_embeddings": 64},
    ),
    Family(
        "ELECTRA (bare encoder)",
        "ElectraConfig",
        "ElectraModel",
        SMALL | WIDE | {"embedding_size": 16, "max_position_embeddings": 64},
    ),
    Family(
        "ALBERT (one shared block)",
        "AlbertConfig",
        "AlbertForMaskedLM",
        SMALL | WIDE | {"embedding_size": 16, "max_position_embeddings": 64},
    ),
    Family(
        "ModernBERT",
        "ModernBertConfig",
        "ModernBertForMaskedLM",
        SMALL | WIDE | ROPE | {"cls_token_id": 0, "sep_token_id": 2, "local_attention": 8},
    ),
    Family(
        "T5 (both stacks)",
        "T5Config",
        "T5ForConditionalGeneration",
        SMALL
        | {
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 48,
            "num_layers": 2,
            "num_decoder_layers": 3,
            "num_heads": 4,
            "decoder_start_token_id": 1,
        },
    ),
    Family(
        "T5 (encoder alone)",
        "T5Config",
        "T5EncoderModel",
        SMALL | {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 3, "num_heads": 4},
    ),
    Family(
        "BART (both stacks)",
        "BartConfig",
        "BartForConditionalGeneration",
        SMALL
        | {
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 3,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "max_position_embeddings": 64,
            "decoder_start_token_id": 2,
            "forced_eos_token_id": None,
        },
    ),
    Family(
        "mBART (both stacks)",
        "MBartConfig",
        "MBartForConditionalGeneration",
        SMALL
        | {
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 3,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "max_position_embeddings": 64,
            "decoder_start_token_id": 2,
            "forced_eos_token_id": None,
        },
    ),
    Family(
        "Mamba",
        "MambaConfig",
        "MambaForCausalLM",
        SMALL | {"hidden_size": 32, "num_hidden_layers": 3, "state_size": 4},
    ),
    Family(
        "Mamba 2",
        "Mamba2Config",
        "Mamba2ForCausalLM",
        SMALL
        | {
            "hidden_size": 32,
            "num_hidden_layers": 3,
            "state_size": 4,
            "num_heads": 8,
            "head_dim": 8,
            "n_groups": 2,
            "chunk_size": 8,
        },
    ),
    Family(
        "RWKV (stream halved every 2 blocks)",
        "RwkvConfig",
        "RwkvForCausalLM",
        SMALL
        | {
            "hidden_size": 32,
            "num_hidden_layers": 4,
            "attention_hidden_size": 32,
            "rescale_every": 2,
            "context_length": 64,
        },
    ),
]


@dataclass(frozen=True)
class Comparison:
    """One model against its own hidden states.

    Attributes:
        lens: the Lens over it.
        compared: the sites that were compared with something of the model's own.
        worst: the largest absolute difference among them.
    """

    lens: Lens
    compared: tuple[str, ...]
    worst: float


def compare(model: Any) -> Comparison:
    """Compare embedding, every block, final norm and logits with what the model itself returns.

    transformers' `hidden_states` of most families are: embedding, block.0 ... block.N-2, and last
    the final norm's output (block.N-1's where there is no final norm). Mamba and RWKV leave the
    embedding out and have all blocks. What is not among them is compared in another way: the last
    block by sending it through the model's final norm.
    """
    lens = Lens(model)
    ids = torch.randint(3, 97, (2, LENGTH), generator=torch.Generator().manual_seed(3))
    inputs: dict[str, Any] = {"input_ids": ids}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = ids[:, :DECODER_LENGTH].flip(1)
    # The Lens runs without cache; in GPT-J and GPT-Neo the cache changes the order of additions and
    # so the last bit.
    cacheless = (
        {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}
    )
    with torch.no_grad():
        output = model(**inputs, **cacheless, output_hidden_states=True)
    sites = [site for site in lens.sites if site.count(".") < 2 or site.split(".")[-1].isdigit()]
    mine = lens.run(**inputs, sites=sites)
    differences: dict[str, float] = {}
    for stack in lens.stacks:
        names = {
            "": "hidden_states",
            "encoder.": "encoder_hidden_states",
            "decoder.": "decoder_hidden_states",
        }
        states = output[names[stack.prefix]]
        differences |= _compare_stack(stack, mine, list(states))
    if "head" in mine:
        differences["head"] = _distance(mine["head"], output.logits)
    return Comparison(lens, tuple(differences), max(differences.values()))


def _compare_stack(stack: Any, mine: dict[str, Tensor], states: list[Tensor]) -> dict[str, float]:
    prefix = stack.prefix
    depth = stack.depth
    blocks = [f"{prefix}block.{index}" for index in range(depth)]
    norm = f"{prefix}final_norm"
    if len(states) != depth + 1:
        raise AssertionError(f"{len(states)} hidden states for {depth} blocks")
    embedding_first = _distance(mine[f"{prefix}embedding"], states[0]) == 0
    if embedding_first:
        expected = dict(zip([f"{prefix}embedding", *blocks], states, strict=True))
        if norm in mine:
            expected[norm] = expected.pop(blocks[-1])
        elif expected[blocks[-1]].shape != mine[blocks[-1]].shape:
            # OPT-350m projects the last block's output down to the embeddings' width and calls that
            # a hidden state.
            with torch.no_grad():
                mine = mine | {blocks[-1]: stack.module.project_out(mine[blocks[-1]])}
    else:
        expected = dict(zip([*blocks, norm], states, strict=True))
    differences = {site: _distance(mine[site], state) for site, state in expected.items()}
    if norm in mine and blocks[-1] not in differences:
        with torch.no_grad():
            again = stack.taps[norm].module(mine[blocks[-1]])
        differences[blocks[-1]] = _distance(again, mine[norm])
    return differences


def _distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max()) if a.shape == b.shape else float("inf")


def row(family: Family, result: Comparison) -> str:
    """One line of the table."""
    lens = result.lens
    cells = [family.name, f"`{family.model}`"]
    kinds = []
    for kind in ("attention", "cross_attention", "mixer", "mlp"):
        sites = [site for site in lens.sites if site.endswith(f".{kind}")]
        if len(sites) == lens.depth or (sites and kind == "cross_attention"):
            kinds.append(kind)
        elif sites:
            kinds.append(f"{kind} ({len(sites)})")
    cells.append(", ".join(kinds))
    cells.append("yes" if any(site.endswith("final_norm") for site in lens.sites) else "no")
    cells.append("yes" if "head" in lens.sites else "no")
    plain = list(chain.from_iterable(stack.plain for stack in lens.stacks))
    if all(plain):
        cells.append("every")
    elif any(plain):
        cells.append(f"{sum(plain)} of {len(plain)}")
    else:
        cells.append("none")
    if result.worst == 0:
        cells.append("equal")
    else:
        cells.append("within 1e-5" if result.worst < 1e-5 else "different")
    return "| " + " | ".join(cells) + " |"


HEADER = """# Coverage

Written by `scripts/coverage.py`; a test fails when it is not up to date. Each row is a tiny model
of the family, built from a configuration with random weights. headscan knows none of these classes:
it finds the sites by running the model once (see `headscan.model.recording`), so families that are
not listed work too wherever blocks run one after another.

All have `embedding` and every `block.I`. *Branches* are the sites `block.I.attention` and so on:
what the branch adds to the residual stream, before the addition and before any norm of the sum.
*Plain* tells for how many blocks the block's output is its input plus its branches; elsewhere a
norm acts on the sum (BERT) or on the input (RWKV's first block). *Compared* tells how headscan's
embedding, blocks, final norm and logits compare with the model's own: equal means to the last bit.

| family | class | branches | final_norm | head | plain | compared |
|---|---|---|---|---|---|---|
"""

FOOTER = """
What to know when reading the numbers:

- transformers' `hidden_states[-1]` is the output of the final norm where there is one. `block.N-1`
  is *before* that norm; both are sites. Mamba and RWKV leave the embedding out of their hidden
  states; headscan has it.
- `embedding` is what the first block is given: with positions, norm, scale or projection where the
  model has them.
- Encoder-decoders prefix their sites with `encoder.` and `decoder.`.
- ALBERT runs the same block again and again: `block.3` is the fourth pass through the same weights.
- RWKV halves the stream every `rescale_every` blocks in evaluation mode. The sites carry the halved
  values, as the model's own hidden states do; `Lens.notes` says after which blocks.
- Mamba and RWKV have no attention, hence no such site. What mixes tokens there is `block.I.mixer`.
- Not covered, with a clear error: models that keep attention and MLPs in separate lists instead of
  blocks (XLM, Flaubert), and models that need more than token ids.
"""


def page(results: list[tuple[Family, Comparison]]) -> str:
    """The whole of docs/generated/coverage.md."""
    return HEADER + "\n".join(row(family, result) for family, result in results) + "\n" + FOOTER


def main(write: Callable[[str], Any] = PAGE.write_text) -> None:
    """Build every family, compare it, write the page."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    PAGE.parent.mkdir(exist_ok=True)
    write(page([(family, compare(family.build())) for family in FAMILIES]))


if __name__ == "__main__":
    main()
