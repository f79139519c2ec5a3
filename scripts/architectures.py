"""Compare headscan with every architecture of transformers, and write docs/generated/coverage.md.

Every entry of transformers' own mappings (causal, masked, sequence to sequence, encoders, and
multimodal models by their text part) is built from its configuration, shrunk to three blocks of
width 32, with random weights in float64. A Lens reads windows of 64 tokens at every site, and its
states and logits are compared with `output_hidden_states` and `logits` of a copy that no Lens has
seen; the model itself has to give the same afterwards, and to read inputs of its whole context. The
verbs run on one entry of each kind of wiring.

The page is written anew. The exit status is 1 where a row is wrong or raises, or the page changed.

    python scripts/architectures.py                 # all of them, in about two minutes
    python scripts/architectures.py --only bert t5  # prints the rows of these model types
"""

from __future__ import annotations

import argparse
import copy
import inspect
import logging
import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
import transformers
from torch import Tensor
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import headscan
from headscan import BadInput
from headscan.model import ByteTokenizer, Lens

PAGE = Path(__file__).resolve().parents[1] / "docs" / "generated" / "coverage.md"

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
LATENT_ATTENTION = [
    *("axk1", "axk2", "deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite"),
    *("glm_moe_dsa", "minicpm3", "mistral_large4", "youtu", "dots3_note", "dots3_note_text"),
    *("esmc", "glm5_next", "longcat_flash"),
]
LINEAR_ATTENTION = ["qwen3_5_text", "qwen3_5_moe_text", "qwen4_exp_text", "qwen3_next"]
SECTIONED_POSITIONS = [
    *("glm4v_text", "glm46v_text", "qwen2_vl_text", "paddleocr_vl_text", "qwen2_5_vl_text"),
    "qwen2_5_omni_text",
]
SETTINGS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(LATENT_ATTENTION, MLA),
    **dict.fromkeys(LINEAR_ATTENTION, FULL_LAST),
    **dict.fromkeys(SECTIONED_POSITIONS, MROPE),
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
        elif _is_token(name) and type(value) is int and value >= VOCABULARY:
            settings[name] = token
            token += 1
    return settings | SETTINGS.get(config.model_type, {})


def _is_token(name: str) -> bool:
    return name.endswith(("token_id", "token_index"))


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
        text: the notes of the Lens, the sites with the largest difference, the sentence, or the
            error.
        sites: the kinds of sites beside `embedding` and the blocks.
        compared: how many sites were compared.
    """

    entry: Entry
    state: Literal["equal", "wrong", "refused", "raised", "unbuilt"]
    text: str = ""
    sites: str = ""
    compared: int = 0

    def __str__(self) -> str:
        cells = [*self.entry, self.sites or "–", str(self.compared), self.text or "–"]
        return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def examine(entry: Entry) -> Row:
    """Return what becomes of an entry."""
    quieten()
    try:
        model, inputs, own = model_with_states(entry)
    except NoPass as error:
        return examine_refusal(entry, error)
    except Exception as error:  # a model's own code raises what it likes
        return Row(entry, "unbuilt", first_line(error))
    try:
        lens = Lens(model)
        row = compare(entry, lens, inputs, own)
        beginning: dict[str, Any] = {name: ids[:, :5] for name, ids in inputs.items()}
        lens.run(**beginning, sites="**")
        read_whole_context(lens)
        again = own_states(model, inputs)
    except BadInput as error:
        return Row(entry, "refused", str(error))
    except Exception as error:
        return Row(entry, "raised", first_line(error))
    if any(not torch.equal(a, b) for a, b in zip(tensors(own), tensors(again), strict=True)):
        return Row(entry, "wrong", "The live model is another one afterwards.", row.sites)
    return row


def read_whole_context(lens: Lens) -> None:
    """Read an input as long as the Lens says that it may be."""
    length = lens.context_length
    if length is not None and length <= POSITIONS:
        lens.run(torch.full((1, length), lens.vocabulary_size // 2), sites="**")


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
        return Row(entry, "refused", str(error))
    except Exception as error:
        return Row(entry, "raised", first_line(error))
    return Row(entry, "wrong", f"It is read, although its own pass fails: {failure}")


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


def compare(entry: Entry, lens: Lens, inputs: dict[str, Any], own: Any) -> Row:
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
        deepest = final or blocks[-1]
        return {} if last is None else {deepest: distance(states[deepest], last)}
    hidden = [state[0] if isinstance(state, tuple) else state for state in hidden]
    orders: list[list[str | None]] = [
        [embedding, *blocks],
        [embedding, *blocks[:-1], final],
        [embedding, *blocks, final],
        [*blocks, final],
        [*blocks[:-1], final],
        [*blocks],
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


VERBS: dict[str, Callable[[Lens], Any]] = {
    "invert": lambda lens: headscan.invert(lens, PROMPT, at="block.1", method="exact"),
    "attribute": lambda lens: headscan.attribute(lens, PROMPT, method="gradient-x-input"),
    "weights": headscan.weights.run,
    "damage": lambda lens: headscan.compare(
        lens, TEXT, damage=True, against="q4_0", context=16, max_tokens=64
    ),
    "privacy of states": lambda lens: release(lens, "states", sites="block.1"),
    "privacy of the cache": lambda lens: release(lens, "cache"),
    "privacy of logits": lambda lens: release(lens, "logits"),
    "checkup": lambda lens: headscan.checkup(lens, TEXT, context=32, max_tokens=512),
}
TRIED = ["gpt2", "granite", "jamba", "qwen3_moe", "longformer", "t5"]
"""Model types on which the verbs run: one of each kind of wiring."""
TEXT = "The hen walked to the sea and slept in the rain. Then she went home, for it was wet. " * 40
PROMPT = "The hen slept"


def release(lens: Lens, name: str, **options: Any) -> Any:
    """Return the bits of a release of one short window."""
    options |= {"windows": 1, "length": 5, "noise": (0.5,), "draws": 2}
    return headscan.privacy(lens, TEXT, release=name, **options)


def try_verbs(entry: Entry) -> list[str]:
    """Return the row of an entry in the table of verbs: done, or the sentence of the refusal."""
    quieten()
    torch.manual_seed(0)
    lens = Lens(build(entry).float(), ByteTokenizer(), name=entry.model_type)
    cells = []
    for verb in VERBS.values():
        try:
            verb(lens)
            cells.append("done")
        except BadInput as error:
            cells.append(f"refused: {error}")
        except Exception as error:
            cells.append(f"RAISED {first_line(error)}")
    return cells


def all_rows(chosen: Sequence[Entry], workers: int) -> list[Row]:
    """Return the rows of many entries, examined by so many processes."""
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return list(pool.map(examine, chosen, chunksize=8))


HEADER = """# Coverage

`make architectures` wrote this page. It builds a tiny model of every entry of transformers'
mappings (version {version}) with random weights, three blocks and a width of 32, reads windows of
64 tokens at every site in float64, and compares the states and logits with the model's own
`output_hidden_states` and `logits`. headscan knows none of these classes: it finds the sites by
running the model once, so that models of your own work too wherever blocks run one after another.

| | entries |
|---|---|
| equal to the model's own (to 1e-9) | {equal} |
| refused, with the sentence | {refused} |
| wrong | {wrong} |
| raised an error | {raised} |
| not built here | {unbuilt} |

All equal ones have `embedding` and every `block.I`; the column *sites* has the kinds of the others.
*Compared* counts the sites that the model's own output has, too.

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
- Longformer and LED pad their inputs, and BigBird uses full attention for short ones: states of
  padding are left out, and a model that switches itself is put back.
- Multimodal models are read by their text part; those that need a picture are refused.
"""
TABLE_HEAD = (
    "| kind | model type | class | sites | compared | remark |",
    "|---|---|---|---|---|---|",
)
TITLES = {
    "equal": "Equal",
    "refused": "Refused",
    "wrong": "Wrong",
    "raised": "Raised an error",
    "unbuilt": "Not built here, with what transformers says",
}


def page(rows: Sequence[Row], verbs: dict[str, list[str]]) -> str:
    """Return the whole of docs/generated/coverage.md."""
    counts = Counter[str](row.state for row in rows)
    numbers = {state: counts[state] for state in TITLES}
    parts = [HEADER.format(version=transformers.__version__, **numbers)]
    for state, title in TITLES.items():
        lines = [str(row) for row in rows if row.state == state]
        if lines:
            parts.append("\n".join([f"## {title}\n", *TABLE_HEAD, *lines]) + "\n")
    parts.append(
        "## Verbs\n\nOn one model of each kind of wiring, with the bytes of UTF-8 as tokens.\n"
    )
    for model_type, cells in verbs.items():
        lines = [f"- {verb}: {cell}" for verb, cell in zip(VERBS, cells, strict=True)]
        parts.append("\n".join([f"### {model_type}\n", *lines]) + "\n")
    return "\n".join(parts)


def main() -> None:
    """Examine the entries; print the chosen ones, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="model types whose rows are printed")
    parser.add_argument("--verbs", nargs="*", help="model types on which the verbs are tried")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    arguments = parser.parse_args()
    first = {entry.model_type: entry for entry in reversed(entries())}
    if arguments.verbs is not None:
        for model_type in arguments.verbs or TRIED:
            print(model_type, *try_verbs(first[model_type]), sep="\n  ", flush=True)
        return
    if arguments.only is not None:
        for entry in entries():
            if entry.model_type in arguments.only:
                row = examine(entry)
                print(row.state, row, flush=True)
        return
    rows = all_rows(entries(), arguments.workers)
    verbs = {model_type: try_verbs(first[model_type]) for model_type in TRIED}
    text = page(rows, verbs)
    changed = not PAGE.exists() or PAGE.read_text("utf-8") != text
    PAGE.write_text(text, "utf-8")
    bad = [str(row) for row in rows if row.state in ("wrong", "raised")]
    bad += [cell for cells in verbs.values() for cell in cells if cell.startswith("RAISED")]
    print(*bad, sep="\n")
    sys.exit(1 if bad or changed else 0)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # results of verbs go there
        main()
