"""Loading: from an embedded name, a folder or a hub id to a model. All that can be refused is, before weights are read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from headscan.model.building import ModelSize, build, estimate_size, hollow, without_quantization
from headscan.model.devices import choose_device, memory_of
from headscan.model.gguf import Header, described, read_header, unpacking
from headscan.model.identity import weights_identity
from headscan.model.inputs import context_length
from headscan.model.missing import settled
from headscan.model.provenance import Origin
from headscan.model.quantization import quantization
from headscan.model.quiet import quiet
from headscan.model.settings import Building
from headscan.model.source import Source, auto_class, find_source, read_config
from headscan.model.tokenizers import load_tokenizer
from headscan.model.weights import weight_files
from headscan.run import BadInput

__all__ = ["LoadedModel", "Preparation", "prepare"]

BYTES = {"float64": 8.0, "float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "8bit": 1.0, "4bit": 0.5}


@dataclass(frozen=True, repr=False)
class LoadedModel:
    """A network of transformers in evaluation mode with what goes into its Lens."""

    network: Any
    tokenizer: Any
    name: str
    origin: Origin
    notes: list[str]

    def __repr__(self) -> str:
        return f"LoadedModel({self.name!r}: {type(self.network).__name__})"


@dataclass(frozen=True, repr=False)
class Preparation:
    """A model that may be loaded: found, its configuration sound, its size within memory, its weight files whole.

    Attributes:
        source: where it is.
        settings: how it is asked for.
        config: its configuration, of transformers.
        family: the Auto class that loads it.
        tokenizer: its tokenizer, or None.
        files: the weight files of a local model.
        size: how large it will be.
        header: what a .gguf file says of itself; None for a folder or a hub id.
    """

    source: Source
    settings: Building
    config: Any
    family: Any
    tokenizer: Any
    files: tuple[Path, ...]
    size: ModelSize
    header: Header | None = None

    def __repr__(self) -> str:
        return f"Preparation({self.source.name!r}: {self.size.entries:,} weights in {self.size.blocks} blocks)"

    def load(self) -> LoadedModel:
        """Read the weights, or draw them."""
        settings, place = self.settings, choose_device(self.settings.device)
        files, notes = self.files, list[str]()
        if settings.random_init is not None:
            network = self._fresh(settings.random_init).to(place)
        else:
            network, notes = settled(*self._read(place), self.source.name)
            notes += self.header.notes if self.header is not None else []
            if settings.device_map is None and settings.quantize is None:
                network = network.to(place)
        snapshot = self.source.snapshot()
        if snapshot and settings.random_init is None:
            files = tuple(weight_files(snapshot))
        revision = snapshot.name if snapshot else self.source.revision
        origin = Origin(self.source.given, revision, files, settings.quantize, settings.random_init)
        return LoadedModel(network.eval(), self.tokenizer, self.source.name, origin, notes)

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the weights, as far as the configuration says it; float32 where it does not."""
        wanted = self.config.dtype if self.settings.dtype == "auto" else getattr(torch, self.settings.dtype)
        return wanted if isinstance(wanted, torch.dtype) else torch.float32

    @property
    def bytes(self) -> float:
        """The memory that the weights will take."""
        known = self.settings.dtype != "auto" or self.config.dtype is not None
        each = BYTES.get(self.settings.quantize or str(self.dtype).removeprefix("torch."), 4.0) if known else 2.0
        if getattr(self.config, "quantization_config", None) is not None:
            each = BYTES["4bit"]  # saved in few bits; how few is its own affair
        return self.size.bytes(each)

    @property
    def context_length(self) -> int | None:
        """The longest input in tokens, or None where the model sets no limit."""
        return context_length(hollow(self.family, self.config, self.settings.trust_remote_code))

    def identity(self) -> str | None:
        """What `Lens.identity` will be, read from the weight files; None where they are not there yet."""
        return weights_identity(None, Origin(files=self.files).sha256()) if self.files else None

    def check_memory(self) -> None:
        """Raise BadInput where the weights alone are larger than the memory of the device they go to."""
        needed, place = self.bytes, choose_device(self.settings.device)
        there, where = memory_of(place), f"the device '{place}'"
        if self.settings.device_map is not None:
            cards = [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
            there, where = sum(map(memory_of, [torch.device("cpu"), *cards])), "this machine"
        if needed > there:
            raise BadInput(
                f"The model '{self.source.name}' needs {needed / 1e9:,.3g} GB ({self.size.entries:,} weights in "
                f"{self.size.blocks:,} blocks, says its configuration), but {where} has {there / 1e9:,.3g} GB of memory."
            )

    def _read(self, place: torch.device) -> tuple[Any, dict[str, Any]]:
        """The network with its weights, and what transformers reports of them."""
        settings, source = self.settings, self.source
        precision = "auto" if settings.dtype == "auto" else self.dtype
        extra: dict[str, Any] = {} if settings.device_map is None else {"device_map": settings.device_map}
        if settings.quantize is not None:
            # Quantised weights are made on the device they stay on; they cannot be moved afterwards.
            extra = {"device_map": {"": place}} | extra
            extra["quantization_config"] = quantization(settings.quantize, precision)
        if self.header is not None:
            precision = self.dtype  # its weights need not be in one that a model can have
            extra |= unpacking()
        try:
            with quiet():
                network, report = self.family.from_pretrained(
                    source.path,
                    config=self.config,
                    revision=source.revision,
                    dtype=precision,
                    use_safetensors=None if self.header else True,
                    trust_remote_code=settings.trust_remote_code,
                    local_files_only=source.local_files_only,
                    output_loading_info=True,
                    ignore_mismatched_sizes=True,  # so that they are reported, and refused below in a sentence
                    **source.where,
                    **extra,
                )
        except SafetensorError as error:
            raise BadInput(f"The weights of '{source.name}' are damaged: {error}.") from error
        except (OSError, ValueError, RuntimeError, ImportError, AssertionError) as error:
            raise source.fault(error) from error
        return network, report

    def _fresh(self, seed: int) -> Any:
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                config = without_quantization(self.config)
                return build(self.family, config, self.dtype, self.settings.trust_remote_code)
        except (ValueError, ImportError, RuntimeError, TypeError, ZeroDivisionError) as error:
            raise self.source.fault(error) from error


def prepare(model: str | os.PathLike[str], settings: Building) -> Preparation:
    """Everything that can be said against loading a model, said before any weight is read.

    Raises:
        BadInput: as `Lens.load`, but for what only reading the weights can tell.
    """
    source = find_source(os.fspath(model), settings.revision)
    header = None if source.gguf is None else read_header(source.gguf)
    if header is not None and settings.quantize is not None:
        raise BadInput("The weights of a .gguf file are not rounded again: leave out --quantize.")
    config = read_config(source, settings.trust_remote_code)
    if header is not None:
        config = described(config, header)
    family = auto_class(config)
    files: tuple[Path, ...] = ()
    if settings.random_init is None and source.folder is not None:
        files = tuple(weight_files(source.folder)) if source.gguf is None else (source.gguf,)
    tokenizer = load_tokenizer(settings.tokenizer, source, settings.trust_remote_code)
    size = estimate_size(family, config, source.name, settings.trust_remote_code)
    ready = Preparation(source, settings, config, family, tokenizer, files, size, header)
    ready.check_memory()
    return ready
