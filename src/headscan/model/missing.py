"""What the weight file and the model have of each other: what is missing is refused, what is spare is noted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from headscan.run import BadInput

__all__ = ["settled"]

# Weights that may be missing, as they feed no site: poolers, and the head of BERT's next-sentence task.
HARMLESS = ("pooler", "seq_relationship")


def settled(network: Any, report: Mapping[str, Any], name: str) -> tuple[Any, list[str]]:
    """The network, every weight of which came from the file, and the sentences that a reader of its numbers needs.

    transformers fills what the file lacks with fresh random numbers and only warns, so a scan would measure noise.
    Where the head alone is missing (a sentence encoder whose configuration still names the masked language model that
    it was made from), the model without its head is whole, and is what is read.

    Args:
        network: what transformers loaded.
        report: what it says of the loading (`output_loading_info`).
        name: of the model, for messages.

    Raises:
        BadInput: weights of other shapes; weights that are missing, and not the head's alone.
    """
    wrong = sorted(str(entry[0]) for entry in report.get("mismatched_keys", ()))
    if wrong:
        raise BadInput(
            f"The weights of '{name}' do not fit its configuration: {len(wrong)} of other shapes ({_few(wrong)})."
        )
    missing, notes = _of_note(report["missing_keys"]), list[str]()
    asked = type(network).__name__
    if missing:
        base = _without_head(network, missing)
        if base is None:
            raise BadInput(
                f"The weights of '{name}' do not fit its configuration: {len(missing)} that {asked} "
                f"needs are not in the file ({_few(missing)}) and would be random."
            )
        notes.append(
            f"The configuration of '{name}' names {asked}, but the file lacks its head ({_few(missing)}): "
            f"it is read as {type(base).__name__}, which has no logits."
        )
        network = base
    spare = _of_note(report["unexpected_keys"])
    if spare:
        notes.append(f"{len(spare)} weights in the file are not used by {type(network).__name__} ({_few(spare)}).")
    return network, notes


def _without_head(network: Any, missing: Sequence[str]) -> nn.Module | None:
    """The model inside `network` that its head reads, or None where there is none or where it lacks weights, too."""
    prefix = getattr(network, "base_model_prefix", "")
    base = getattr(network, prefix, None) if prefix else None
    if not isinstance(base, nn.Module) or any(key.startswith(f"{prefix}.") for key in missing):
        return None
    return base


def _of_note(keys: Sequence[str]) -> list[str]:
    return sorted(key for key in keys if not any(part in key for part in HARMLESS))


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:2]) + (", ..." if len(names) > 2 else "")
