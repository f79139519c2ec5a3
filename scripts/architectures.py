"""Compare headscan with every architecture of transformers, and write docs/coverage.md.

Every entry of transformers' own mappings (causal, masked, sequence to sequence, encoders, and
multimodal models by their text part) is built from its configuration, shrunk to three blocks of
width 32, with random weights in float64. The Lens reads windows of 64 tokens at every site, and its
states and logits are compared with `output_hidden_states` and `logits` of the same model before the
Lens saw it.

    python scripts/architectures.py                 # all of them; writes docs/coverage.md
    python scripts/architectures.py --check         # fails where the page would change
    python scripts/architectures.py --only bert t5  # prints the rows of these model types
"""

from __future__ import annotations

import argparse
import copy
import inspect
import logging
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
import transformers
from torch import Tensor
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from headscan import BadInput
from headscan.model import Lens

PAGE = Path(__file__).resolve().parents[1] / "docs" / "coverage.md"

MAPPINGS = {
    "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "masked": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "sequence to sequence": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    "encoder": modeling_auto.MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES,
    "multimodal": modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
}

VOCABULARY = 512
POSITIONS = 256
WINDOW = 64
TOLERANCE = 1e-9
LARGEST = 30_000_000
"""Entries of a tiny model; where a configuration cannot be shrunk below, it is not built."""

SIZES = {
    32: "hidden_size d_model n_embd dim embedding_size word_embed_proj_dim emb_dim embed_dim "
    "encoder_hidden_size decoder_hidden_size attention_hidden_size d_embed projection_dim "
    "lru_width q_lora_rank embed_proj_dim entity_emb_size d_latents mm_hidden_size out_hidden_size",
    48: "intermediate_size d_ff ffn_dim n_inner encoder_ffn_dim decoder_ffn_dim ffn_hidden_size "
    "mlp_dim hidden_dim moe_intermediate_size shared_expert_intermediate_size d_inner "
    "shared_intermediate_size moe_shared_expert_intermediate_size dense_intermediate_size "
    "intermediate_size_mlp dim_ff expert_ffn_hidden_size ffn_intermediate_size",
    3: "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers "
    "num_encoder_layers num_decoder_layers depth num_blocks num_self_attends_per_block",
    4: "num_attention_heads n_head num_heads n_heads encoder_attention_heads "
    "decoder_attention_heads num_encoder_attention_heads num_decoder_attention_heads "
    "num_experts num_local_experts n_routed_experts moe_num_experts num_latents block_size",
    2: "num_key_value_heads num_experts_per_tok moe_k num_kv_heads moe_topk top_k_experts",
    8: "head_dim d_kv attention_head_dim kv_channels global_head_dim v_head_dim qk_nope_head_dim "
    "qk_rope_head_dim qk_head_dim entity_vocab_size",
    16: "kv_lora_rank mamba_d_state ssm_state_size state_size patch_size attention_window",
    1: "n_group topk_group n_shared_experts num_nextn_predict_layers first_k_dense_replace",
    VOCABULARY: "vocab_size vocab_size_per_layer_input src_vocab_size tgt_vocab_size "
    "encoder_hash_byte_group_vocab",
    POSITIONS: "max_position_embeddings n_positions max_source_positions max_target_positions",
}
SIZE_OF = {name: size for size, names in SIZES.items() for name in names.split()}

MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 2, "mamba_chunk_size": 8}
FULL_LAST = {"layer_types": ["linear_attention", "linear_attention", "full_attention"]}
MLA = {"num_key_value_heads": 4, "qk_head_dim": 16}
MROPE = {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 1, 1], "rope_theta": 1e4}}
SETTINGS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(
        ["axk1", "axk2", "deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa", "kimi_k2", "minicpm3", "mistral_large4", "youtu", "dots3_note", "dots3_note_text", "esmc", "glm5_next", "longcat_flash"],
        MLA,
    ),
    **dict.fromkeys(["qwen3_5_text", "qwen3_5_moe_text", "qwen4_exp_text", "qwen3_next"], FULL_LAST),
    **dict.fromkeys(
        ["glm4v_text", "glm46v_text", "glm4v_moe_text", "glm_ocr_text", "qwen2_vl_text", "paddleocr_vl_text", "qwen2_5_vl_text", "qwen2_5_omni_text"],
        MROPE,
    ),
    "gptj": {"rotary_dim": 4},
    "codegen": {"rotary_dim": 4},
    "xmod": {"default_language": "en_XX"},
    "kimi_linear": {"n_group": 1, "num_experts": 4, "num_expert_group": 1},
    "bamba": MAMBA,
    "granitemoehybrid": MAMBA,
    "falcon_h1": MAMBA,
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 8},
    "gpt_neo": {"attention_types": [[["global", "local", "global"], 1]], "window_size": 8},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8},
    "nemotron": {"head_dim": 8},
    "ministral": {"head_dim": 8},
    "big_bird": {"num_random_blocks": 1},
    "bigbird_pegasus": {"num_random_blocks": 1},
    "esm": {"vocab_size": 512, "pad_token_id": 1, "mask_token_id": 4},
    "reformer": {"axial_pos_embds_dim": (8, 24), "axial_pos_shape": (8, 8), "is_decoder": True},
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv"]},
    "roc_bert": {"pronunciation_vocab_size": 20, "shape_vocab_size": 20},
}
"""Fields that are no plain sizes, by model type."""


class Entry(NamedTuple):
    """An entry of transformers' mappings."""

    kind: str
    model_type: str
    model: str


def entries() -> list[Entry]:
    """Return all entries, a class of a model type once."""
    known: dict[tuple[str, str], Entry] = {}
    for kind, mapping in MAPPINGS.items():
        for model_type, model in mapping.items():
            known.setdefault((model_type, model), Entry(kind, model_type, model))
    return list(known.values())


def tiny_settings(config: Any) -> dict[str, Any]:
    """Return small values of a configuration's sizes, and token ids within the vocabulary."""
    settings: dict[str, Any] = {}
    token = 3
    for name, value in vars(config).items():
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            settings[name] = {"model_type": value.model_type, **tiny_settings(value)}
        elif name in SIZE_OF and type(value) is int and value > 0:
            settings[name] = min(value, SIZE_OF[name])
        elif name == "attention_window" and isinstance(value, list):
            settings[name] = 16
        elif name.endswith(("token_id", "token_index")) and type(value) is int:
            if value >= VOCABULARY:
                settings[name] = token
                token += 1
    return settings | SETTINGS.get(config.model_type, {})


def build(entry: Entry) -> Any:
    """Return the tiny model of an entry, in float64 and in evaluation mode.

    Its matrices are three times as large as at first, so that no branch hides behind another.
    """
    config_class = CONFIG_MAPPING[entry.model_type]
    config = config_class(**tiny_settings(config_class()))
    model_class = getattr(transformers, entry.model)
    if not isinstance(config, model_class.config_class):
        config = config.get_text_config()
    with torch.device("meta"):
        entry_count = sum(tensor.numel() for tensor in make(model_class, config).parameters())
    if entry_count > LARGEST:
        raise ValueError(f"{entry_count:,} weights")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = make(model_class, copy.deepcopy(config))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.ndim == 1 and "norm" in name.lower() and name.endswith("weight"):
                    parameter.mul_(1 + 0.3 * torch.randn_like(parameter))
                elif parameter.ndim >= 2:
                    parameter.mul_(3)
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")  # the others have no float64
    return model.double().eval()


def make(model_class: Any, config: Any) -> Any:
    """Return a model with fresh weights in float32."""
    if hasattr(model_class, "_from_config"):
        return model_class._from_config(config, dtype=torch.float32)
    return model_class(config)


@dataclass(frozen=True)
class Row:
    """What became of one entry.

    Attributes:
        state: whether the states and logits are equal to the model's own, wrong, refused with a
            sentence, or raised; "unbuilt" where transformers could not build it here.
        text: the sites with the largest difference, the sentence, or the error.
        lens: the classes of sites, for the table.
    """

    entry: Entry
    state: Literal["equal", "wrong", "refused", "raised", "unbuilt"]
    text: str = ""
    sites: str = ""
    compared: int = 0


def examine(entry: Entry) -> Row:
    """Return what becomes of an entry."""
    quieten()
    try:
        model, inputs, own = model_with_states(entry)
    except NoPass as error:
        return examine_refusal(entry, error)
    except Exception as error:  # a model's own code raises what it likes
        return Row(entry, "unbuilt", first_line(error))
    before = copy.deepcopy(own)
    try:
        lens = Lens(model)
        row = compare(entry, lens, inputs, own)
        lens.run(**{name: ids[:, :5] for name, ids in inputs.items()}, sites="**")
        again = own_states(model, inputs)
    except BadInput as error:
        return Row(entry, "refused", str(error))
    except Exception as error:
        return Row(entry, "raised", first_line(error) + traceback.format_exc()[-300:])
    if any(not torch.equal(a, b) for a, b in zip(tensors(before), tensors(again), strict=True)):
        return Row(entry, "wrong", "the live model is another one afterwards", row.sites)
    return row


class NoPass(Exception):
    """A model that its own code cannot run on token ids."""

    def __init__(self, model: Any, reason: str) -> None:
        super().__init__(reason)
        self.model = model


def model_with_states(entry: Entry) -> tuple[Any, dict[str, Tensor], Any]:
    """Return a model, its input and its own output; in float32 where float64 cannot be computed.

    Raises:
        NoPass: where its own code fails in both.
    """
    model = build(entry)
    try:
        inputs = window(model)
        return model, inputs, own_states(copy.deepcopy(model), inputs)
    except Exception:  # a model's own code raises what it likes
        model = model.float()
    try:
        inputs = window(model)
        return model, inputs, own_states(copy.deepcopy(model), inputs)
    except Exception as error:
        raise NoPass(model, first_line(error)) from error


def examine_refusal(entry: Entry, failure: NoPass) -> Row:
    """Return the row of a model that cannot be run: the Lens has to say so."""
    try:
        Lens(failure.model)
    except BadInput as error:
        return Row(entry, "refused", str(error), f"own: {failure}")
    except Exception as error:
        return Row(entry, "raised", first_line(error) + traceback.format_exc()[-300:])
    return Row(entry, "wrong", f"read although its own pass fails: {failure}")


def tensors(value: Any) -> list[Tensor]:
    """Return the tensors in an output, in their order."""
    if isinstance(value, Tensor):
        return [value.nan_to_num()]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in tensors(item)]
    return []


def first_line(error: BaseException) -> str:
    """Return an error's class and the first 200 characters of its message."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def window(model: Any) -> dict[str, Tensor]:
    """Return two windows of plain tokens."""
    generator = torch.Generator().manual_seed(3)
    vocabulary = model.get_input_embeddings().weight.shape[0]
    ids = torch.randint(vocabulary // 4, vocabulary, (2, WINDOW), generator=generator)
    inputs = {"input_ids": ids}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = ids.flip(1)
    return inputs


def own_states(model: Any, inputs: dict[str, Tensor]) -> Any:
    """Return the model's own output with all hidden states."""
    options = {}
    if "use_cache" in inspect.signature(model.forward).parameters:
        options["use_cache"] = False
    with torch.no_grad():
        return model(**inputs, **options, output_hidden_states=True, return_dict=True)


def compare(entry: Entry, lens: Lens, inputs: dict[str, Tensor], own: Any) -> Row:
    """Return how the states of a Lens differ from the model's own output."""
    states = lens.run(**inputs, sites="**")
    differences: dict[str, float] = {}
    for stack in lens.stacks:
        differences |= stack_differences(stack, states, own)
    if "head" in states and own.get("logits") is not None:
        differences["head"] = distance(states["head"], own.logits)
    sites = kinds_of(lens)
    wrong = {site: value for site, value in differences.items() if not value <= TOLERANCE}
    if wrong:
        worst = ", ".join(f"{site} {value:.1e}" for site, value in list(wrong.items())[:6])
        return Row(entry, "wrong", worst, sites, len(differences))
    if not differences:
        return Row(entry, "wrong", "nothing was compared", sites)
    return Row(entry, "equal", " ".join(lens.notes), sites, len(differences))


def kinds_of(lens: Lens) -> str:
    """Return the kinds of a model's sites beside `embedding` and the blocks."""
    kinds = {site.rpartition(".")[2] for site in lens.sites if not site[-1].isdigit()}
    return ", ".join(sorted(kinds - {"embedding"}))


def stack_differences(stack: Any, states: dict[str, Tensor], own: Any) -> dict[str, float]:
    """Return the largest difference at embedding, blocks and final norm of one stack.

    transformers' hidden states are those of the embedding and of every block, the last one behind
    the final norm; some families leave the embedding out, some have the last block, too, and in
    some the last is of a part that is no site (None).
    """
    prefix = stack.prefix
    blocks = [f"{prefix}block.{index}" for index in range(stack.depth)]
    final = f"{prefix}final_norm" if f"{prefix}final_norm" in states else None
    embedding = f"{prefix}embedding"
    hidden = own.get(f"{prefix.rstrip('.')}_hidden_states" if prefix else "hidden_states")
    if hidden is None:
        last = own.get("encoder_last_hidden_state" if prefix == "encoder." else "last_hidden_state")
        return (
            {}
            if last is None
            else {final or blocks[-1]: distance(states[final or blocks[-1]], last)}
        )
    hidden = [state[0] if isinstance(state, tuple) else state for state in hidden]
    orders: list[list[str | None]] = [
        [embedding, *blocks],
        [embedding, *blocks[:-1], final],
        [embedding, *blocks, final],
        [*blocks, final],
        [*blocks[:-1], final],
        blocks,
    ]
    candidates = []
    for order in orders:
        pairs = zip(order, hidden[-len(order) :], strict=False)
        found = {site: distance(states[site], state) for site, state in pairs if site is not None}
        candidates.append((len(order) != len(hidden), found))

    def rank(candidate: tuple[bool, dict[str, float]]) -> tuple[int, bool]:
        return sum(not value <= TOLERANCE for value in candidate[1].values()), candidate[0]

    return min(candidates, key=rank)[1]


def distance(a: Tensor, b: Tensor) -> float:
    """Return the largest absolute difference; infinite for other shapes."""
    if a.shape != b.shape:
        return float("inf")
    return float((a.double() - b.double()).abs().nan_to_num(posinf=9e9).max())


def quieten() -> None:
    """Let nothing be written but the rows."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--shard", default="0/1")
    arguments = parser.parse_args()
    chosen = entries()
    if arguments.only is not None:
        chosen = [entry for entry in chosen if entry.model_type in arguments.only]
    number, count = map(int, arguments.shard.split("/"))
    for entry in chosen[number::count]:
        row = examine(entry)
        print(
            f"{row.state:8} {entry.kind:10} {entry.model_type:20} {entry.model:36} {row.compared:3} {row.sites} | {row.text}",
            flush=True,
        )


if __name__ == "__main__":
    main()
