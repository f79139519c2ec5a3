"""The settings of loading a model, shared by all verbs that take one."""

import hashlib
import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import torch
from torch import nn
from typing_extensions import TypeAliasType

from headscan.run import BadInput, Json, Option, Run, Settings
from headscan.run.memory import memory


class TokenizerObject(Protocol):
    """A tokenizer of transformers, `headscan.model.ByteTokenizer`, or one of the user's."""

    def decode(self, ids: Any, /) -> Any: ...


TokenizerLike = TypeAliasType("TokenizerLike", str | os.PathLike[str] | TokenizerObject)
"""A folder, a .gguf file, a Hugging Face id, the name of a specimen, "bytes" for UTF-8 bytes, or a
tokenizer itself.
"""


# ---- The options of verbs that load a model; `Loading` has them all.

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
TRUST = "HEADSCAN_TRUST_REMOTE_CODE"
"""The environment variable that allows code which comes with a model to run, where it is 1."""
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
    """How a model is loaded.

    Raises BadInput: a device that this machine lacks, a package that is not installed.

    >>> Loading(dtype="bfloat16").part(Loading)["device"]
    'auto'
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
        """The precision of what is not rounded."""
        return "auto" if self.quantize else self.dtype

    @property
    def device_map(self) -> str | Mapping[str, str | int] | None:
        """What transformers is told where the model is spread over several devices."""
        return (
            self.device if self.device == "balanced" or not isinstance(self.device, str) else None
        )

    @property
    def place(self) -> str:
        """The device for what is not spread."""
        return "auto" if self.device_map is not None else str(self.device)

    @property
    def trusted(self) -> bool:
        """Whether code that comes with the model may run."""
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
    """What `Lens.load` takes: loading, or building with fresh weights."""

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


# ---- The identity of weights and tokenizers, for runs that are resumed


def model_identity(model: nn.Module | None, files: Mapping[str, str]) -> Json:
    """The hashes of the files that a model was read from; without files, one of its configuration
    and of each of its tensors.
    """
    if files:
        return dict(files)
    rows = [] if model is None else tensor_rows(model.state_dict())
    return _hash([str(getattr(model, "config", "")), *rows])


def tensor_rows(tensors: Mapping[str, Any]) -> list[Json]:
    """Return the name, type, shape and hash of each tensor."""
    named = [(name, tensor) for name, tensor in tensors.items() if isinstance(tensor, torch.Tensor)]
    held = (
        (name, one, one.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        for name, one in named
    )
    return [
        [name, str(one.dtype), list(one.shape), hashlib.sha256(data).hexdigest()]
        for name, one, data in held
    ]


def tokenizer_identity(tokenizer: Any) -> str:
    """A hash of a tokenizer's rules where it has a `backend_tokenizer`, else of its class and
    vocabulary.

    >>> from headscan.model import ByteTokenizer
    >>> tokenizer_identity(ByteTokenizer()) == tokenizer_identity(ByteTokenizer())
    True
    """
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None and hasattr(backend, "to_str"):
        return _hash(backend.to_str())
    vocabulary = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else {}
    return _hash([type(tokenizer).__name__, sorted(vocabulary.items())])


def special_tokens(tokenizer: Any) -> Json:
    """The ids of the tokens that join and pad documents, which two tokenizers of the same rules
    need not share.
    """
    return {
        name: getattr(tokenizer, f"{name}_token_id", None) for name in ("eos", "bos", "pad", "unk")
    }


def identify_files(run: Run, role: str, identity: Json, tokenizer: Any) -> None:
    """Record that a run rests on a model's files and on its tokenizer. `role` says which of a
    verb's models it is.
    """
    run.identify(role, identity)
    run.identify(f"the tokenizer of {role}", tokenizer_identity(tokenizer))
    run.identify(f"the special tokens of {role}", special_tokens(tokenizer))


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


@dataclass(frozen=True)
class Origin:
    """Where the weights of a Lens came from; all fields are empty for a model that was built, not
    loaded.
    """

    source: str | None = None  # what the user named
    revision: str | None = None  # the resolved commit where known, else the revision asked for
    # those that it was read from, by their names in its folder
    files: Mapping[str, Path] = field(default_factory=dict)
    quantize: str | None = None
    random_init: int | None = None

    def sha256(self) -> dict[str, str]:
        """{file name: hex digest} of the files. Reads files that changed since the last call whole."""
        stats = {name: (path, path.stat()) for name, path in self.files.items()}
        return {
            name: _sha256(path, at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns)
            for name, (path, at) in stats.items()
        }


@cache
def _sha256(path: Path, *_: int) -> str:
    """Kept within a process by inode, size and the times of the last change; the last, ctime, no
    program can set back.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---- Devices


def check_device(name: str) -> None:
    """Raise BadInput for a device that is unknown or absent from this machine."""
    kind, _, number = name.partition(":")
    if kind not in ("auto", "cpu", "cuda", "mps") or (
        number and (kind != "cuda" or not number.isdigit())
    ):
        raise BadInput(
            f"There is no device '{name}'; choose auto, cpu, cuda, cuda:N, mps or balanced."
        )
    asked = f"The device '{name}' was asked for, but "
    if kind == "cuda" and not torch.cuda.is_available():
        raise BadInput(f"{asked}PyTorch finds no CUDA device on this machine.")
    if kind == "cuda" and number and int(number) >= torch.cuda.device_count():
        raise BadInput(f"{asked}there are only {torch.cuda.device_count()} CUDA devices.")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise BadInput(f"{asked}PyTorch finds no Apple GPU on this machine.")


def choose_device(name: str) -> torch.device:
    """The device of that name; "auto" is CUDA where there is any, else Apple's GPU, else the CPU."""
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def memory_of(device: torch.device) -> int:
    """The memory of a device in bytes; of the CPU, what this process may use of it."""
    return (
        int(torch.cuda.get_device_properties(device).total_memory)
        if device.type == "cuda"
        else memory()[0]
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Inside, transformers logs errors only and draws no progress bars; its settings are restored
    afterwards.
    """
    from transformers.utils import logging

    level = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    try:  # the bar of the .gguf reader heeds none of transformers' settings
        gguf: Any = import_module("transformers.modeling_gguf_pytorch_utils")
    except ImportError:
        gguf = None
    bar = getattr(gguf, "tqdm", None)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if bar is not None:
        gguf.tqdm = partial(bar, disable=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bar is not None:
            gguf.tqdm = bar
        if bars:
            logging.enable_progress_bar()
