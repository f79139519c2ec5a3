"""Loading a tokenizer and a model. Everything that can be refused is refused before any weights are
read.
"""

import copy
import inspect
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError

from headscan.model.inputs import SentenceHead, context_length, sentence_head
from headscan.model.settings import (
    Building,
    Origin,
    choose_device,
    identify_files,
    memory_of,
    model_identity,
    quiet,
)
from headscan.model.source import Source, auto_class, find_source, reason, specimens
from headscan.model.weights import check_packer, describing_files, quantization, settled
from headscan.run import PENDING, BadInput, Json, Run
from headscan.text.prompts import require_tokenizer as require_tokenizer


class ByteTokenizer:
    """UTF-8 bytes as token ids 0...255, with the part of the Hugging Face tokenizer protocol that
    headscan uses.

    There are no special tokens (`eos_token_id` is None), so documents are joined without a
    separator.

    >>> tokenizer = ByteTokenizer()
    >>> tokenizer.encode("é!")
    [195, 169, 33]
    >>> tokenizer.decode([195, 169, 33])
    'é!'
    >>> tokenizer.convert_ids_to_tokens([195, 33, 10])
    ['<0xC3>', '!', '<0x0A>']
    """

    is_fast = True
    # a text may be cut between any two characters: headscan.text then holds no document whole
    splits_anywhere = True
    eos_token_id: int | None = None
    bos_token_id: int | None = None
    pad_token_id: int | None = None
    all_special_ids: tuple[int, ...] = ()
    vocab_size = 256
    model_max_length = 10**30
    name_or_path = "bytes"

    def __len__(self) -> int:
        return self.vocab_size

    def encode(self, text: str, add_special_tokens: bool = False, **_: Any) -> list[int]:
        """The UTF-8 bytes of `text`; a lone surrogate becomes a question mark."""
        return list(text.encode("utf-8", errors="replace"))

    def __call__(
        self,
        text: str | Sequence[str],
        add_special_tokens: bool = False,
        return_offsets_mapping: bool = False,
        **_: Any,
    ) -> dict[str, list[Any]]:
        if isinstance(text, str):
            return {
                key: rows[0]
                for key, rows in self([text], return_offsets_mapping=return_offsets_mapping).items()
            }
        ids = [self.encode(row) for row in text]
        result: dict[str, list[Any]] = {
            "input_ids": ids,
            "attention_mask": [[1] * len(row) for row in ids],
        }
        if return_offsets_mapping:
            result["offset_mapping"] = [
                [
                    (place, place + 1)
                    for place, character in enumerate(row)
                    for _ in self.encode(character)
                ]
                for row in text
            ]
        return result

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = False, **_: Any) -> str:
        """The text of the bytes; what is not valid UTF-8 becomes the replacement character U+FFFD."""
        return bytes(int(i) for i in ids).decode("utf-8", errors="replace")

    def convert_ids_to_tokens(
        self, ids: int | Iterable[int], skip_special_tokens: bool = False
    ) -> Any:
        """Printable ASCII as itself, every other byte as `<0xNN>`."""
        if isinstance(ids, int):
            return chr(ids) if 0x20 <= ids < 0x7F else f"<0x{ids:02X}>"
        return [self.convert_ids_to_tokens(int(i)) for i in ids]


def load_tokenizer(
    wanted: Any, source: Source | None = None, trust_remote_code: bool = False
) -> Any:
    """The tokenizer that is `wanted`, or else the one of the model's `source`, or None if there is
    none.

    Args:
        wanted: "bytes", a folder, a .gguf file, a hub id, the name of a specimen, a tokenizer
            object, or None.

    Raises BadInput: what was asked for by name is not there or cannot be read.
    """
    if wanted is None:
        if source is None or not source.has_tokenizer:
            return None
        try:
            return _read(source, trust_remote_code)
        except BadInput:
            if source.folder is not None:
                raise
            return None  # whether a hub model has a tokenizer is found out by asking for it
    if not isinstance(wanted, str | Path):
        return wanted
    if str(wanted) == "bytes":
        return ByteTokenizer()
    folder = Path(wanted).expanduser()
    if str(wanted) in specimens() or not folder.is_dir():
        return _read(find_source(str(wanted)), trust_remote_code)
    # a tokenizer may live in a folder without a model
    source = Source(str(wanted), folder.resolve().name, folder, None)
    if not source.has_tokenizer:
        raise BadInput(f"The folder '{wanted}' has no tokenizer.")
    describing_files(folder)  # refuses links that lead out of it
    return _read(source, trust_remote_code)


def _read(source: Source, trust_remote_code: bool) -> Any:
    from transformers import AutoTokenizer

    try:
        return source.read(AutoTokenizer, trust_remote_code)
    except (
        BaseException
    ) as error:  # the tokenizers library raises bare Exception on damaged files, or panics
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        text = " ".join(str(error).split())[:200]
        raise BadInput(f"The tokenizer of '{source.name}' cannot be read: {text}.") from error


# ---- Loading a model. Everything that can be refused is refused before any weights are read.


DEPTHS = (
    "num_hidden_layers",
    "num_layers",
    "num_decoder_layers",
    "encoder_layers",
    "decoder_layers",
    "n_layer",
)
SIZES = ("vocab_size", "hidden_size", "num_attention_heads", *DEPTHS)
# blocks up to which the whole model is tried; deeper ones are tried with one and two blocks, and
# extrapolated
WHOLE = 256
LEAST = (
    64  # bytes of a block in a file of weights: the name, kind and shape of one tensor are as many
)
OBJECTS = 50_000  # bytes of Python's objects for a block, whatever its width
BYTES = {"float64": 8.0, "float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "8bit": 1.0, "4bit": 0.5}


@dataclass(frozen=True)
class ModelSize:
    """How large a model will be: entries of its weights and buffers, and its blocks."""

    entries: int
    blocks: int

    def bytes(self, each: float) -> float:
        return self.entries * each + self.blocks * OBJECTS


def build(family: Any, config: Any, dtype: torch.dtype, trust_remote_code: bool = False) -> Any:
    """A model of a class or an Auto class with weights from the global random state."""
    with quiet():
        if hasattr(family, "from_config"):
            return family.from_config(config, dtype=dtype, trust_remote_code=trust_remote_code)
        return family._from_config(config, dtype=dtype)


def without_quantization(config: Any) -> Any:
    """A copy of the configuration without quantisation, which fresh weights do not have."""
    config = copy.deepcopy(config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    return config


@dataclass(frozen=True, repr=False)
class Blank:
    """A model without its weights: class, configuration, precision and device. It holds nothing of
    its memory.
    """

    family: type[Any]
    config: Any
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, model: Any) -> Self:
        return cls(type(model), without_quantization(model.config), model.dtype, model.device)

    def first_block(self) -> Self:
        """The same with one block. Where a family's first weights depend on the depth (GPT-2's), it
        stays as deep.
        """
        source = inspect.getsource(self.family._init_weights)
        if any(name in source for name in DEPTHS):
            return self
        return replace(self, config=_shortened(self.config, 1, above=1))

    def drawn(self, seed: int) -> Any:
        """Such a model with fresh weights drawn from `seed`, in evaluation mode; the random state
        is left as it was.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fresh = build(self.family, self.config, self.dtype)
        return fresh.to(self.device).eval()


def estimate_size(
    family: Any, config: Any, name: str, trust_remote_code: bool = False
) -> ModelSize:
    """How large the model of a configuration will be, measured by building it on torch's device
    'meta'.

    Raises BadInput: nothing can be built from the configuration; the sentence says why.

    Cost: milliseconds (34 for Llama 7B), whatever the configuration says.

    >>> from transformers import AutoModelForCausalLM, GPT2Config
    >>> estimate_size(AutoModelForCausalLM, GPT2Config(), "gpt2")
    ModelSize(entries=124439808, blocks=12)
    """
    at_fault = f"The configuration of '{name}' is at fault:"
    for part in _parts(config):
        for field in SIZES:
            value = getattr(part, field, None)
            least = int(field in SIZES[:2])
            if isinstance(value, int) and value < least:
                raise BadInput(f"{at_fault} {field} is {value} and must be at least {least}.")
        for field, value in vars(part).items():
            if isinstance(value, int) and abs(value) >= 2**63:
                raise BadInput(
                    f"{at_fault} {field} is {value:.3g}, a whole number that no tensor holds."
                )
    depth = max((value for part in _parts(config) for _, value in _depths(part)), default=0)

    def entries(config: Any) -> int:
        model = hollow(family, config, trust_remote_code)
        return sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))

    try:
        if depth <= WHOLE:
            return ModelSize(entries(config), depth)
        first, second = (entries(_shortened(config, count)) for count in (1, 2))
    except BadInput:
        raise
    except Exception as error:  # a model's own code raises what it likes
        raise BadInput(f"{at_fault} {reason(error)}.") from error
    return ModelSize(first + (second - first) * (depth - 1), depth)


def hollow(family: Any, config: Any, trust_remote_code: bool = False) -> Any:
    """The model of a configuration without memory for its weights (on torch's device 'meta')."""
    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        return build(family, without_quantization(config), torch.float32, trust_remote_code)


def _parts(config: Any) -> Iterator[Any]:
    """A configuration and those inside it (the text and the picture part of a model that reads
    both).
    """
    yield config
    for value in vars(config).values():
        if (
            type(value).__name__.endswith("Config")
            and hasattr(value, "to_dict")
            and hasattr(value, "model_type")
        ):
            yield from _parts(value)


def _depths(config: Any) -> list[tuple[str, int]]:
    return [
        (field, value) for field in DEPTHS if type(value := getattr(config, field, None)) is int
    ]


def _shortened(config: Any, count: int, above: int = WHOLE) -> Any:
    """A copy with `count` blocks, where there are more than `above`; lists with an entry for each
    block are cut as well.
    """
    config = copy.deepcopy(config)
    for part in _parts(config):
        deep = {value for _, value in _depths(part) if value > above}
        for field, value in _depths(part):
            if value in deep:
                setattr(part, field, count)
        for field, value in list(vars(part).items()):
            if isinstance(value, list) and len(value) in deep:
                setattr(part, field, value[:count])
    return config


@dataclass(frozen=True, repr=False)
class Preparation:
    """A model that may be loaded: its files found, its configuration sound, its size within memory."""

    source: Source
    settings: Building
    config: Any  # of transformers
    family: Any  # the Auto class that loads it
    tokenizer: Any
    files: dict[str, Path]  # of a local model
    size: ModelSize

    def __repr__(self) -> str:
        return (
            f"Preparation({self.source.name!r}: {self.size.entries:,} weights in "
            f"{self.size.blocks} blocks)"
        )

    def load(self) -> tuple[Any, Origin, list[str]]:
        """The network in evaluation mode with its weights read or drawn, where they came from, and
        notes for readers.
        """
        settings, source, seed = self.settings, self.source, self.settings.random_init
        place = choose_device(settings.place)
        notes = list[str]()
        if seed is not None:
            network = self._fresh(seed).to(place)
        else:
            network, notes = settled(*self._read(place), source.name)
            notes += source.header.notes if source.header is not None else []
            if settings.device_map is None and settings.quantize is None:
                network = network.to(place)
        snapshot = source.snapshot
        origin = Origin(
            source.given,
            snapshot.name if snapshot else source.revision,
            source.files(weights=seed is None),
            settings.quantize,
            seed,
        )
        return network.eval(), origin, notes

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the weights as far as the configuration names it, else float32."""
        wanted = (
            self.config.dtype
            if self.settings.precision == "auto"
            else getattr(torch, self.settings.precision)
        )
        return wanted if isinstance(wanted, torch.dtype) else torch.float32

    @property
    def bytes(self) -> float:
        """The memory that the weights will take."""
        known = (
            self.settings.precision != "auto"
            or self.settings.quantize is not None
            or self.config.dtype is not None
        )
        each = (
            BYTES.get(self.settings.quantize or str(self.dtype).removeprefix("torch."), 4.0)
            if known
            else 2.0
        )
        if getattr(self.config, "quantization_config", None) is not None:
            each = BYTES["4bit"]  # saved in few bits; how few depends on the method
        return self.size.bytes(each)

    @property
    def context_length(self) -> int | None:
        return context_length(hollow(self.family, self.config, self.settings.trusted))

    @cached_property
    def sentence(self) -> SentenceHead | None:
        """What `Lens.sentence` will be, read from the files; None where they are not there yet."""
        folder = self.source.folder or self.source.snapshot
        width = getattr(self.config.get_text_config(), "hidden_size", 0)
        return sentence_head(folder, self.source.name, width, self.context_length)

    def identity(self) -> Json:
        """What `Lens.identity` will be, read from the files; None where they are not there yet."""
        return model_identity(None, Origin(files=self.files).sha256()) if self.files else None

    def identify(self, run: Run, role: str) -> None:
        """Record that a run rests on this model, before its weights are read: its files, its
        tokenizer and the device.
        """
        if run.folder is None:
            return
        identity = self.identity()
        identify_files(run, role, PENDING if identity is None else identity, self.tokenizer)
        run.identify(f"the device for {role}", str(choose_device(self.settings.place)))

    def check_memory(self) -> None:
        """Raise BadInput where the weights alone are larger than the memory of the device they go
        to.
        """
        needed = self.bytes
        place = choose_device(self.settings.place)
        there = memory_of(place)
        where = f"the device '{place}'"
        if self.settings.device_map is not None:
            cards = [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
            there = sum(map(memory_of, [torch.device("cpu"), *cards]))
            where = "this machine"
        if needed > there:
            raise BadInput(
                f"The model '{self.source.name}' needs {needed / 1e9:,.3g} GB "
                f"({self.size.entries:,} weights in {self.size.blocks:,} blocks, says its "
                f"configuration), but {where} has {there / 1e9:,.3g} GB of memory."
            )
        weights = sum(path.stat().st_size for path in self.files.values())
        if (
            self.files
            and self.settings.random_init is None
            and self.size.blocks * LEAST > max(weights, WHOLE * LEAST)
        ):
            raise BadInput(
                f"The configuration of '{self.source.name}' says {self.size.blocks:,} blocks, "
                f"more than its files of {weights:,} bytes can hold."
            )

    def _read(self, place: torch.device) -> tuple[Any, dict[str, Any]]:
        import transformers

        settings = self.settings
        source = self.source
        precision = "auto" if settings.precision == "auto" else self.dtype
        extra: dict[str, Any] = (
            {} if settings.device_map is None else {"device_map": settings.device_map}
        )
        if settings.quantize is not None:
            # Quantised weights are made on the device they stay on; they cannot be moved
            # afterwards.
            extra = {"device_map": {"": place}} | extra
            extra["quantization_config"] = quantization(settings.quantize, precision)
        if source.header is not None:
            precision = self.dtype  # its weights need not be in a precision that a model can have
            if unpacking := getattr(
                transformers, "GgufConfig", None
            ):  # a transformers that could keep the weights packed
                extra["quantization_config"] = unpacking(dequantize=True)
        try:
            network, report = source.read(
                self.family,
                settings.trusted,
                config=self.config,
                dtype=precision,
                output_loading_info=True,
                **extra,
                use_safetensors=None if source.header else True,
                # so that they are reported, and refused by `settled` in a sentence
                ignore_mismatched_sizes=True,
            )
        except SafetensorError as error:
            raise BadInput(f"The weights of '{source.name}' are damaged: {error}.") from error
        except (
            Exception
        ) as error:  # models are built by what their configuration says, and raise what that raises
            raise source.fault(error) from error
        return network, report

    def _fresh(self, seed: int) -> Any:
        config = without_quantization(self.config)
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                return build(self.family, config, self.dtype, self.settings.trusted)
        except Exception as error:  # as above
            raise self.source.fault(error) from error


def prepare(model: str | os.PathLike[str], settings: Building) -> Preparation:
    """Everything that can be said against loading a model, said before any weight is read. Raises
    BadInput: as `Lens.load`, except for what only reading the weights can tell.
    """
    source = find_source(os.fspath(model))
    trust = settings.trusted
    if source.header is not None and settings.quantize is not None:
        raise BadInput(
            "The weights of a .gguf file are not rounded again: leave out --dtype "
            f"{settings.dtype}."
        )
    config = source.config(trust)
    check_packer(config, source.name)
    family = auto_class(config)
    files = source.files(weights=settings.random_init is None) if source.folder is not None else {}
    tokenizer = load_tokenizer(settings.tokenizer, source, trust)
    ready = Preparation(
        source,
        settings,
        config,
        family,
        tokenizer,
        files,
        estimate_size(family, config, source.name, trust),
    )
    ready.check_memory()
    return ready
