"""A mixed recipe as other programs read it: llama.cpp's arguments, and llm-compressor's file."""

import re
from collections import defaultdict
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch

from headscan.comparison.allocation import Allocation
from headscan.comparison.rated_matrices import WHOLE, RatedMatrix
from headscan.model import Lens

LLAMA_CPP = "llama.cpp"
LLM_COMPRESSOR = "llm-compressor"

WHOLE_TYPES = {torch.float32: "f32", torch.bfloat16: "bf16"}
"""llama.cpp's names for the precision of matrices that stay whole; others are f16."""

SAME_TENSORS = {"mistral": "llama", "mixtral": "llama", "gptbigcode": "starcoder"}
"""Types of models that llama.cpp stores as another architecture."""

SCHEMES = {
    "q8_0": "num_bits: 8, type: int, symmetric: true, strategy: group, group_size: 32",
    "q4_0": "num_bits: 4, type: int, symmetric: true, strategy: group, group_size: 32",
    "q4_k": "num_bits: 4, type: int, symmetric: false, strategy: group, group_size: 32",
}
"""llm-compressor's schemes that are nearest to formats of .gguf files."""


def recipe_commands(
    lens: Lens, matrices: Sequence[RatedMatrix], recipe: Allocation
) -> tuple[dict[str, list[str]], list[str]]:
    """Return the lines of each program by its name, and notes about what cannot be written."""
    names = [_full_name(lens, matrix) for matrix in matrices]
    formats = [choice.format for choice in recipe]
    commands: dict[str, list[str]] = {}
    notes = []
    if find_spec("gguf") is None:
        notes.append('The arguments of llama.cpp need the package gguf: "headscan[gguf]".')
    else:
        notes += _with_llama_cpp(commands, lens, names, formats)
    others = sorted(set(formats) - {*SCHEMES, WHOLE})
    if others:
        notes.append(
            f"llm-compressor has no scheme like {', '.join(others)}: for its recipe use --formats "
            "q4_k,q8_0,whole."
        )
    else:
        commands[LLM_COMPRESSOR] = llm_compressor_recipe(names, formats)
    return commands, notes


def _with_llama_cpp(
    commands: dict[str, list[str]], lens: Lens, names: Sequence[str], formats: Sequence[str]
) -> list[str]:
    """Add the arguments of llama.cpp where it knows the architecture; return notes."""
    from gguf import get_tensor_name_map

    model_type = str(lens.model.config.model_type)
    architecture = llama_cpp_architecture(model_type)
    if architecture is None:
        return [f"llama.cpp has no architecture known here for models of type {model_type}."]
    whole = WHOLE_TYPES.get(lens.input_embeddings.dtype, "f16")
    name_map = get_tensor_name_map(architecture, lens.depth)
    lines, unnamed = llama_cpp_arguments(names, formats, whole, name_map)
    commands[LLAMA_CPP] = lines
    if not unnamed:
        return []
    return [f"llama.cpp has no name known here for {', '.join(unnamed)}."]


def _full_name(lens: Lens, matrix: RatedMatrix) -> str:
    """Return the name of a matrix in the model."""
    number = int(matrix.part.removeprefix("block."))
    block = lens.stacks[0].blocks[number]
    prefix = next(name for name, module in lens.model.named_modules() if module is block)
    return f"{prefix}.{matrix.name}"


def llama_cpp_architecture(model_type: str) -> Any:
    """Return gguf's architecture that stores a type of model; None where none is known.

    >>> llama_cpp_architecture("mistral") == llama_cpp_architecture("llama")
    True
    >>> llama_cpp_architecture("nothing_known") is None
    True
    """
    from gguf import MODEL_ARCH_NAMES

    numbers = {_letters(name): number for number, name in MODEL_ARCH_NAMES.items()}
    name = _letters(model_type.removesuffix("_text"))
    return numbers.get(SAME_TENSORS.get(name, name))


def _letters(name: str) -> str:
    return re.sub("[-_]", "", name)


def llama_cpp_arguments(
    names: Sequence[str], formats: Sequence[str], whole: str, name_map: Any
) -> tuple[list[str], list[str]]:
    """Return the arguments of llama-quantize, and the matrices without a name there.

    Tensors of the same kind and format share a line: a pattern of their names. `name_map`: gguf's
    map of the architecture.
    """
    blocks: dict[tuple[str, str], list[str]] = defaultdict(list)
    unnamed = []
    for name, format_name in zip(names, formats, strict=True):
        module = name.removesuffix(".weight")
        tensors = [name_map.get_name(module)]
        if tensors == [None]:  # llama.cpp stores some pairs of matrices apart
            before, _, after = module.rpartition("gate_up_proj")
            tensors = [name_map.get_name(f"{before}{kind}_proj{after}") for kind in ("gate", "up")]
        known = [tensor for tensor in tensors if tensor is not None]
        if len(known) < len(tensors):
            unnamed.append(name)
            continue
        type_name = whole if format_name == WHOLE else format_name
        for tensor in known:
            _, block, kind = tensor.split(".", 2)
            blocks[kind, type_name].append(block)
    lines = [f"--token-embedding-type {whole}", f"--output-tensor-type {whole}"]
    for (kind, type_name), numbers in blocks.items():
        lines.append(f'--tensor-type "blk\\.({"|".join(numbers)})\\.{kind}={type_name}"')
    return lines, unnamed


def llm_compressor_recipe(names: Sequence[str], formats: Sequence[str]) -> list[str]:
    """Return the lines of a recipe in YAML: modules to ignore, and a group for each scheme."""
    modules: dict[str, list[str]] = defaultdict(list)
    for name, format_name in zip(names, formats, strict=True):
        modules[format_name].append(name.removesuffix(".weight"))
    ignored = ["lm_head", *modules.pop(WHOLE, [])]
    lines = ["quant_stage:", "  quant_modifiers:", "    QuantizationModifier:", "      ignore:"]
    lines += [f"        - {module}" for module in ignored]
    lines.append("      config_groups:")
    for number, (format_name, targets) in enumerate(modules.items()):
        lines += [
            f"        group_{number}:",
            f"          weights: {{{SCHEMES[format_name]}}}",
            "          targets:",
        ]
        lines += [f'            - "{pattern}"' for pattern in _patterns(targets)]
    return lines


def _patterns(modules: Sequence[str]) -> list[str]:
    """Return regular expressions that match these modules and no others, one a kind."""
    numbers: dict[tuple[str, str], list[str]] = defaultdict(list)
    for module in modules:
        match = re.fullmatch(r"(.*?\.)(\d+)(\..*)", module)
        assert match is not None
        before, number, after = match.groups()
        numbers[before, after].append(number)
    patterns = []
    for (before, after), found in numbers.items():
        patterns.append(f"re:^{re.escape(before)}({'|'.join(found)}){re.escape(after)}$")
    return [pattern.replace("\\", "\\\\") for pattern in patterns]
