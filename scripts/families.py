"""Tiny models of families whose settings change the wiring, each compared with its own states.

tests/model/test_coverage.py runs them, and other tests take their models. scripts/architectures.py
builds a model of every entry of transformers' mappings and writes docs/generated/coverage.md.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor

from headscan.model import Lens

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
