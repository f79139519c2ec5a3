"""Loading a model. All that can be refused is refused before any weights are read."""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from headscan.model.building import (
    BUILT_WHOLE,
    ModelSize,
    build,
    estimate_size,
    hollow,
    seeded,
    without_quantization,
)
from headscan.model.finding import find_source
from headscan.model.identity import Origin, identify_files, model_identity
from headscan.model.inputs import context_length
from headscan.model.matrices import unrounded
from headscan.model.packed_files import Packing, packing_of, unpacked_weights
from headscan.model.sentence import SentenceHead, sentence_head
from headscan.model.settings import Building, choose_device, memory_of
from headscan.model.source import Source, auto_class
from headscan.model.tokenizer import load_tokenizer
from headscan.model.weights import check_packer, quantization, settled
from headscan.run import PENDING, BadInput, Json, Run, exhausted

BYTES_PER_ENTRY = {
    "float64": 8.0,
    "float32": 4.0,
    "bfloat16": 2.0,
    "float16": 2.0,
    "8bit": 1.0,
    "4bit": 0.5,
}
UNKNOWN_PRECISION_BYTES = 2.0
OTHER_PRECISION_BYTES = 4.0
LEAST_BLOCK_BYTES = 64
"""Bytes of a block in a file of weights: the name, kind and shape of one tensor are as many."""


@dataclass(frozen=True, repr=False)
class Preparation:
    """A model that may be loaded: its files exist, its configuration is sound, it fits in memory.

    Attributes:
        config: the configuration, of transformers.
        family: the Auto class that loads the model.
        files: of a local model, by their names in its folder.
    """

    source: Source
    settings: Building
    config: Any
    family: Any
    tokenizer: Any
    files: dict[str, Path]
    size: ModelSize

    def __repr__(self) -> str:
        return (
            f"Preparation({self.source.name!r}: {self.size.entries:,} weights in "
            f"{self.size.blocks} blocks)"
        )

    def load(self) -> tuple[Any, Origin, list[str]]:
        """Return the network in evaluation mode, where it came from, and notes for readers.

        Its weights are read, or drawn where the settings have a seed of random weights.
        """
        settings = self.settings
        source = self.source
        seed = settings.random_init
        device = choose_device(settings.place)
        notes: list[str] = []
        if seed is not None:
            network = self._fresh(seed).to(device)
        else:
            network, report = self._read(device)
            network, notes = settled(network, report, source.name)
            if source.header is not None:
                notes += source.header.notes
            if self.packing is not None:
                notes += self.packing.notes
            if settings.quantize is not None:
                notes += unrounded(network, settings.quantize)
            if settings.device_map is None and settings.quantize is None:
                network = network.to(device)
        snapshot = source.snapshot
        origin = Origin(
            source=source.reference,
            revision=source.revision if snapshot is None else snapshot.name,
            files=source.files(weights=seed is None),
            quantize=settings.quantize,
            random_init=seed,
        )
        return network.eval(), origin, notes

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the weights as far as the configuration names it, else float32."""
        precision = self.settings.precision
        dtype = self.config.dtype if precision == "auto" else getattr(torch, precision)
        return dtype if isinstance(dtype, torch.dtype) else torch.float32

    @property
    def packing(self) -> Packing | None:
        """Return the packing that headscan undoes; None where there is none, or no file is here."""
        return packing_of(self.config) if self.files else None

    @property
    def bytes(self) -> float:
        """The memory that the weights will take."""
        return self.size.bytes(self._bytes_per_entry())

    def _bytes_per_entry(self) -> float:
        packed = getattr(self.config, "quantization_config", None) is not None
        if packed and self.packing is None:
            return BYTES_PER_ENTRY["4bit"]  # saved in few bits; how few depends on the method
        if self.settings.quantize is not None:
            return BYTES_PER_ENTRY[self.settings.quantize]
        if self.settings.precision == "auto" and self.config.dtype is None:
            return UNKNOWN_PRECISION_BYTES
        name = str(self.dtype).removeprefix("torch.")
        return BYTES_PER_ENTRY.get(name, OTHER_PRECISION_BYTES)

    @property
    def context_length(self) -> int | None:
        """The longest input in tokens; None where there is no limit."""
        return context_length(hollow(self.family, self.config, self.settings.trusted))

    @cached_property
    def sentence(self) -> SentenceHead | None:
        """What `Lens.sentence` will be, read from the files; None where they are not there yet."""
        folder = self.source.folder or self.source.snapshot
        width = getattr(self.config.get_text_config(), "hidden_size", 0)
        return sentence_head(folder, self.source.name, width, self.context_length)

    def identity(self) -> Json:
        """Return what `Lens.identity` will be, read from the files; None without files."""
        return model_identity(None, Origin(files=self.files).sha256()) if self.files else None

    def identify(self, run: Run, role: str) -> None:
        """Record that a run depends on this model, before its weights are read.

        `role` says which of a verb's models it is, such as "model 2".
        """
        if run.folder is None:
            return
        identity = self.identity()
        identify_files(run, role, PENDING if identity is None else identity, self.tokenizer)
        run.identify(f"the device for {role}", str(choose_device(self.settings.place)))

    def check_memory(self) -> None:
        """Raise BadInput where the weights alone are larger than the memory of their device."""
        needed = self.bytes
        device = choose_device(self.settings.place)
        available = memory_of(device)
        holder = f"the device '{device}'"
        if self.settings.device_map is not None:
            gpus = [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
            available = sum(memory_of(device) for device in [torch.device("cpu"), *gpus])
            holder = "this machine"
        if needed > available:
            raise BadInput(
                f"The model '{self.source.name}' needs {needed / 1e9:,.3g} GB "
                f"({self.size.entries:,} weights in {self.size.blocks:,} blocks, says its "
                f"configuration), but {holder} has {available / 1e9:,.3g} GB of memory."
            )
        self._check_depth()

    def _check_depth(self) -> None:
        """Raise BadInput for more blocks than the files of weights can hold."""
        if not self.files or self.settings.random_init is not None:
            return
        weight_bytes = sum(path.stat().st_size for path in self.files.values())
        least_bytes = self.size.blocks * LEAST_BLOCK_BYTES
        if least_bytes > max(weight_bytes, BUILT_WHOLE * LEAST_BLOCK_BYTES):
            raise BadInput(
                f"The configuration of '{self.source.name}' says {self.size.blocks:,} blocks, "
                f"more than its files of {weight_bytes:,} bytes can hold."
            )

    def _read(self, device: torch.device) -> tuple[Any, dict[str, Any]]:
        """Return the network and transformers' report on its weights."""
        source = self.source
        options = self._reading_options(device)
        packing = self.packing
        family = self.family
        config = self.config
        if packing is not None:
            options["state_dict"] = unpacked_weights(source.weight_files, packing, self.dtype)
            config = without_quantization(config)
            family = type(hollow(family, config, self.settings.trusted))
        try:
            network, report = source.read(
                family,
                self.settings.trusted,
                config=config,
                output_loading_info=True,
                use_safetensors=None if source.header else True,
                # so that they are reported, and refused by `settled` in a sentence
                ignore_mismatched_sizes=True,
                **options,
            )
        except SafetensorError as error:
            raise BadInput(f"The weights of '{source.name}' are damaged: {error}.") from error
        except Exception as error:  # a model's own code raises what it likes
            if exhausted(error):
                raise
            raise source.fault(error) from error
        return network, report

    def _reading_options(self, device: torch.device) -> dict[str, Any]:
        """Return the precision and the devices, as transformers takes them."""
        import transformers

        settings = self.settings
        precision = "auto" if settings.precision == "auto" else self.dtype
        options: dict[str, Any] = {"dtype": precision}
        if settings.quantize is not None:
            # Quantised weights are made on the device they stay on; they cannot be moved
            # afterwards.
            options["device_map"] = {"": device}
            options["quantization_config"] = quantization(settings.quantize, precision)
        if settings.device_map is not None:
            options["device_map"] = settings.device_map
        if self.source.header is not None:
            # Its weights need not be in a precision that a model can have.
            options["dtype"] = self.dtype
            unpacking = getattr(transformers, "GgufConfig", None)
            if unpacking is not None:  # a transformers that could leave the weights packed
                options["quantization_config"] = unpacking(dequantize=True)
        return options

    def _fresh(self, seed: int) -> Any:
        """Return the network with fresh weights drawn from a seed."""
        config = without_quantization(self.config)
        try:
            with seeded(seed):
                return build(self.family, config, self.dtype, self.settings.trusted)
        except Exception as error:  # a model's own code raises what it likes
            if exhausted(error):
                raise
            raise self.source.fault(error) from error


def prepare(model: str | os.PathLike[str], settings: Building) -> Preparation:
    """Return a model that is ready to be loaded; no weights have been read.

    Raises:
        BadInput: as `Lens.load`, except for what only reading the weights can show.
    """
    source = find_source(os.fspath(model))
    trusted = settings.trusted
    if source.header is not None and settings.quantize is not None:
        raise BadInput(
            "The weights of a .gguf file are not rounded again: leave out --dtype "
            f"{settings.dtype}."
        )
    config = source.config(trusted)
    check_packer(config, source.name)
    family = auto_class(config)
    files: dict[str, Path] = {}
    if source.folder is not None:
        files = source.files(weights=settings.random_init is None)
    tokenizer = load_tokenizer(settings.tokenizer, source, trusted)
    size = estimate_size(family, config, source.name, trusted)
    preparation = Preparation(source, settings, config, family, tokenizer, files, size)
    preparation.check_memory()
    return preparation
