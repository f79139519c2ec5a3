"""The settings of loading a model, which all verbs share that take one, and devices."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

import torch
from typing_extensions import TypeAliasType

from headscan.run import BadInput, Option, Settings
from headscan.run.memory import memory


class TokenizerObject(Protocol):
    """A tokenizer of transformers, `headscan.model.ByteTokenizer`, or one of the user's."""

    def decode(self, ids: Any, /) -> Any: ...


TokenizerLike = TypeAliasType("TokenizerLike", str | os.PathLike[str] | TokenizerObject)
"""A folder, a .gguf file, a Hugging Face id, the name of an embedded model, "bytes" for UTF-8
bytes, or a tokenizer itself.
"""

TRUST = "HEADSCAN_TRUST_REMOTE_CODE"
"""The environment variable that allows code which comes with a model to run, where it is 1."""

# The options of verbs that load a model; `Loading` has those of one model.

TokenizerName = TypeAliasType(
    "TokenizerName",
    Annotated[
        TokenizerLike | None,
        Option(
            "Id or folder of a tokenizer that is not the model's own, or 'bytes'.",
            metavar="ID",
            group="Input",
        ),
    ],
)
Dtype = TypeAliasType(
    "Dtype",
    Annotated[
        Literal["auto", "float32", "bfloat16", "float16", "8bit", "4bit"],
        Option(
            "Weights and activations; auto is as the weights were saved (float32 for a .gguf file "
            "of few bits); 8bit and 4bit round the weights (need headscan[quantize]).",
            group="Advanced",
        ),
    ],
)
Device = TypeAliasType(
    "Device",
    Annotated[
        str | Mapping[str, str | int],
        Option(
            "auto, cpu, cuda, cuda:N, mps, or balanced, which spreads the model over all devices; "
            "in Python also a device_map of transformers.",
            identity=False,
            group="Advanced",
        ),
    ],
)
Sites = TypeAliasType(
    "Sites",
    Annotated[
        str | None,
        Option(
            "Globs of sites, comma-separated, such as 'block.*,head'. Default: embedding, blocks, "
            "final norm.",
            group="Input",
        ),
    ],
)
Revisions = TypeAliasType(
    "Revisions",
    Annotated[
        str | Sequence[str] | None,
        Option(
            "Checkpoints of the one SOURCE, comma-separated, a model each: revisions of a Hugging "
            "Face id, in their order, or globs of folders in a folder, such as 'checkpoint-*', in "
            "the order of their steps.",
            metavar="A,B,...",
            group="Input",
        ),
    ],
)


@dataclass(frozen=True, kw_only=True)
class Loading(Settings):
    """The settings of loading a model.

    Raises:
        BadInput: for a device that this machine lacks, and a package that is not installed.

    >>> Loading(dtype="bfloat16").precision
    'bfloat16'
    """

    tokenizer: TokenizerName = None
    dtype: Dtype = "auto"
    device: Device = "auto"

    @property
    def quantize(self) -> Literal["8bit", "4bit"] | None:
        """The bits to which the weights are rounded."""
        return self.dtype if self.dtype == "8bit" or self.dtype == "4bit" else None

    @property
    def precision(self) -> str:
        """The precision of weights that are not rounded, and of activations."""
        return "auto" if self.quantize else self.dtype

    @property
    def device_map(self) -> str | Mapping[str, str | int] | None:
        """The devices that transformers spreads the model over; None where it does not."""
        if self.device == "balanced" or not isinstance(self.device, str):
            return self.device
        return None

    @property
    def place(self) -> str:
        """The device of a model that is not spread."""
        return "auto" if self.device_map is not None else str(self.device)

    @property
    def trusted(self) -> bool:
        """Return whether code that comes with the model may run."""
        return os.environ.get(TRUST) == "1"

    def check(self) -> None:
        super().check()
        # Imported here, so that a command line can be built from these settings without torch.
        from headscan.model.weights import check_quantization, require_accelerate

        check_device(self.place)
        if self.quantize is not None:
            check_quantization()
        if self.device_map is not None:
            require_accelerate("A model on several devices")


@dataclass(frozen=True, kw_only=True)
class Building(Loading):
    """The settings of `Lens.load`: loading, or building with fresh weights."""

    random_init: Annotated[
        int | None,
        Option("Seed of fresh random weights; no weight file is read.", low=0, python=True),
    ] = None
    trust_remote_code: Annotated[
        bool, Option("Run code that comes with the model.", python=True)
    ] = False

    @property
    def trusted(self) -> bool:
        return self.trust_remote_code or super().trusted

    def check(self) -> None:
        if self.quantize is not None and self.random_init is not None:
            raise BadInput(
                "Fresh random weights cannot be quantised: give either random_init or a dtype of "
                "8bit or 4bit."
            )
        super().check()


def check_device(name: str) -> None:
    """Raise BadInput for a device that is unknown or absent from this machine."""
    kind, _, number = name.partition(":")
    numbered_wrongly = number and (kind != "cuda" or not number.isdigit())
    if kind not in ("auto", "cpu", "cuda", "mps") or numbered_wrongly:
        raise BadInput(
            f"There is no device '{name}'; choose auto, cpu, cuda, cuda:N, mps or balanced."
        )
    request = f"The device '{name}' was asked for, but "
    if kind == "cuda" and not torch.cuda.is_available():
        raise BadInput(f"{request}PyTorch finds no CUDA device on this machine.")
    if kind == "cuda" and number and int(number) >= torch.cuda.device_count():
        raise BadInput(f"{request}there are only {torch.cuda.device_count()} CUDA devices.")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise BadInput(f"{request}PyTorch finds no Apple GPU on this machine.")


def choose_device(name: str) -> torch.device:
    """Return the device of that name; "auto" is CUDA, else Apple's GPU, else the CPU."""
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def memory_of(device: torch.device) -> int:
    """Return the memory of a device in bytes; of the CPU, what this process may use of it."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return memory()[0]
