"""Loading: from an embedded name, a folder or a hub id to a Lens."""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError

from headscan.errors import BadInput
from headscan.model.quiet import quiet
from headscan.model.settings import (
    check_device,
    check_dtype,
    choose_device,
    quantization,
    require_accelerate,
)
from headscan.model.source import Source, auto_class, find_source, read_config
from headscan.model.tokenizers import load_tokenizer
from headscan.model.weights import weight_files

if TYPE_CHECKING:
    from headscan.model.lens import Lens

__all__ = ["fresh_model", "load_lens"]

HARMLESS = ("pooler", "seq_relationship")


def load_lens(
    cls: type[Lens],
    model: str,
    *,
    tokenizer: Any,
    revision: str | None,
    device: str,
    dtype: str,
    device_map: str | dict | None,
    quantize: str | None,
    trust_remote_code: bool,
    random_init: int | None,
) -> Lens:
    """What `Lens.load` documents. Every setting is checked before any file is opened."""
    precision = check_dtype(dtype)
    check_device(device)
    quantized = quantization(quantize, precision)
    if quantize is not None and random_init is not None:
        raise BadInput("Fresh random weights cannot be quantised: give either random_init or quantize.")
    if device_map is not None:
        require_accelerate("A device_map")
    source = find_source(model, revision)
    config = read_config(source, trust_remote_code)
    family = auto_class(config)
    place = choose_device(device)

    if random_init is not None:
        network, files, notes = _fresh(family, config, precision, random_init, source, trust_remote_code), [], []
        network = network.to(place)
    else:
        loaded = _read(family, config, source, precision, quantized, device_map, place, trust_remote_code)
        network, files, notes = loaded.network, loaded.files, loaded.notes
        if device_map is None and quantized is None:
            network = network.to(place)
    lens = cls(network.eval(), load_tokenizer(tokenizer, source, trust_remote_code), name=source.name)
    lens.notes += notes
    lens.origin = {
        "source": source.given,
        "revision": snapshot.name if (snapshot := source.snapshot()) else source.revision,
        "files": files,
        "quantize": quantize,
        "random_init": random_init,
    }
    return lens


@dataclass
class _Loaded:
    network: Any
    files: list[Path]
    notes: list[str]


def _read(
    family: Any,
    config: Any,
    source: Source,
    precision: torch.dtype | str,
    quantized: Any,
    device_map: Any,
    place: torch.device,
    trust_remote_code: bool,
) -> _Loaded:
    """The network with its weights, and the files they came from."""
    folder = source.folder
    files = weight_files(folder) if folder is not None else []
    extra: dict[str, Any] = {}
    if quantized is not None:
        # Quantised weights are made on the device they stay on; they cannot be moved afterwards.
        # bitsandbytes warns at every single product that it casts what it multiplies: that is what was asked for.
        logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
        extra = {"quantization_config": quantized, "device_map": device_map or {"": place}}
    elif device_map is not None:
        extra = {"device_map": device_map}
    try:
        with quiet():
            network, report = family.from_pretrained(
                source.path,
                config=config,
                revision=source.revision,
                dtype=precision,
                use_safetensors=True,
                trust_remote_code=trust_remote_code,
                local_files_only=source.local_files_only,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # so that they are reported, and refused below in a sentence
                **extra,
            )
    except SafetensorError as error:
        raise BadInput(f"The weights of '{source.name}' are damaged: {error}.") from error
    except (OSError, ValueError, RuntimeError, ImportError, AssertionError) as error:
        raise source.fault(error) from error
    notes = _fit(network, report, source)
    if snapshot := source.snapshot():
        files = weight_files(snapshot)
    return _Loaded(network, files, notes)


def _fit(network: Any, report: dict[str, Any], source: Source) -> list[str]:
    """Refuse weights that leave a part of the model random; note those the model has no use for.

    transformers fills what the file lacks with fresh random numbers and only warns, so a scan would measure noise. The
    exceptions feed no site: poolers, and the head of BERT's next-sentence task.
    """
    missing = sorted(key for key in report["missing_keys"] if not any(part in key for part in HARMLESS))
    wrong = sorted(str(entry[0]) for entry in report.get("mismatched_keys", ()))
    if wrong:
        raise BadInput(
            f"The weights of '{source.name}' do not fit its configuration: {len(wrong)} of other shapes ({_few(wrong)})."
        )
    if missing:
        raise BadInput(
            f"The weights of '{source.name}' do not fit its configuration: {len(missing)} that {type(network).__name__} "
            f"needs are not in the file ({_few(missing)}) and would be random."
        )
    spare = sorted(key for key in report["unexpected_keys"] if not any(part in key for part in HARMLESS))
    if not spare:
        return []
    return [f"{len(spare)} weights in the file are not used by {type(network).__name__} ({_few(spare)})."]


def _few(names: list[str]) -> str:
    return ", ".join(names[:2]) + (", ..." if len(names) > 2 else "")


def _fresh(family: Any, config: Any, precision: Any, seed: int, source: Source, trust_remote_code: bool) -> Any:
    config = _plain(config)
    wanted = config.dtype if precision == "auto" else precision
    try:
        with quiet(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if hasattr(family, "from_config"):
                return family.from_config(config, dtype=wanted or torch.float32, trust_remote_code=trust_remote_code)
            return family._from_config(config, dtype=wanted or torch.float32)
    except (ValueError, ImportError, RuntimeError, TypeError, ZeroDivisionError) as error:
        raise source.fault(error) from error


def fresh_model(model: Any, seed: int) -> Any:
    """A model of the same class, configuration, precision and device with fresh weights drawn from `seed`."""
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh = type(model)._from_config(_plain(model.config), dtype=model.dtype)
    return fresh.to(model.device).eval()


def _plain(config: Any) -> Any:
    """A copy of the configuration without quantisation, which fresh weights do not have."""
    config = copy.deepcopy(config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    return config
