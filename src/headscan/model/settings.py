"""The settings of loading a model, shared by all verbs that take one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

from headscan.run import BadInput, Option, Settings

__all__ = ["Building", "Loading", "TokenizerLike"]


class TokenizerObject(Protocol):
    """A tokenizer of transformers, `headscan.model.ByteTokenizer`, or one of the user's."""

    def decode(self, ids: Any, /) -> Any:
        """The text of token ids."""


TokenizerLike = str | os.PathLike[str] | TokenizerObject
"""A folder, a .gguf file, a Hugging Face id, the name of a specimen, "bytes" for UTF-8 bytes, or a tokenizer itself."""


@dataclass(frozen=True, kw_only=True)
class Loading(Settings):
    """How a model is loaded.

    Raises:
        BadInput: a device that this machine lacks, a package that is not installed.

    >>> Loading(dtype="bfloat16").part(Loading)["device"]
    'auto'
    """

    tokenizer: Annotated[
        TokenizerLike | None,
        Option("Id or folder of a tokenizer that is not the model's own, or 'bytes'.", metavar="ID"),
    ] = None
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        Option("Weights and activations; auto is as the weights were saved (float32 for a .gguf file of few bits)."),
    ] = "auto"
    device: Annotated[str, Option("auto, cpu, cuda, cuda:N or mps.", identity=False)] = "auto"
    device_map: Annotated[
        str | Mapping[str, str | int] | None,
        Option("Spread the model over several devices, as transformers takes it: auto, balanced.", identity=False),
    ] = None
    quantize: Annotated[Literal["8bit", "4bit"] | None, Option("Round the weights (needs headscan[quantize]).")] = None
    revision: Annotated[str | None, Option("Branch, tag or commit of a Hugging Face id.")] = None
    trust_remote_code: Annotated[bool, Option("Run code that comes with the model. Off unless asked.")] = False

    def check(self) -> None:
        """The device and the packages must be there."""
        super().check()
        # Imported here, so that a command line can be built from these settings without torch.
        from headscan.model.devices import check_device
        from headscan.model.quantization import check_quantization, require_accelerate

        check_device(self.device)
        if self.quantize is not None:
            check_quantization()
        if self.device_map is not None:
            require_accelerate("A device_map")


@dataclass(frozen=True, kw_only=True)
class Building(Loading):
    """What `Lens.load` takes: loading, or building with fresh weights."""

    random_init: Annotated[
        int | None, Option("Seed of fresh random weights; no weight file is read.", low=0, python=True)
    ] = None

    def check(self) -> None:
        """Fresh weights are whole."""
        if self.quantize is not None and self.random_init is not None:
            raise BadInput("Fresh random weights cannot be quantised: give either random_init or quantize.")
        super().check()
