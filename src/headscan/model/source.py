"""The files that a model is read from: their folder or repository, configuration and faults."""

import itertools
import json
import os
import re
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headscan.model import weights as weight_folder
from headscan.model.available import specimens
from headscan.model.gguf import Header, is_gguf, read_header
from headscan.run import BadInput
from headscan.run.errors import nearest
from headscan.run.files import read_object

ENDINGS = (
    ("ForConditionalGeneration", "ForSeq2SeqLM"),
    ("ForMaskedLM", "WithLMHeadModel"),
    ("ForCausalLM", "LMHeadModel", "LMHead"),
    ("ForConditionalGeneration", "ForSeq2SeqLM"),
)
"""The endings of the names of classes with a language model's head, as Auto classes are tried."""
LANGUAGE_MODELS = (*itertools.chain(*ENDINGS), "EncoderModel", "TextModel")
PRETRAINING = "ForPreTraining"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "vocab.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tekken.json",
)
PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
LONGEST_REASON = 300
FILES_LISTED = 8


@contextmanager
def quiet() -> Iterator[None]:
    """Let transformers log errors only and draw no progress bars, in this context."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    draws_bars = logging.is_progress_bar_enabled()
    # The bar of the .gguf reader follows none of transformers' settings.
    gguf_reader = _optional_module("transformers.modeling_gguf_pytorch_utils")
    gguf_bar = getattr(gguf_reader, "tqdm", None)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if gguf_bar is not None:
        gguf_reader.tqdm = partial(gguf_bar, disable=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if gguf_bar is not None:
            gguf_reader.tqdm = gguf_bar
        if draws_bars:
            logging.enable_progress_bar()


def _optional_module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        return None


@dataclass(frozen=True)
class Source:
    """The files of a model. Each file that describes it is read once, when it is first needed.

    Attributes:
        reference: what the user named.
        name: for tables and messages.
        folder: None for a hub id.
        gguf: the one file in the folder that is the model, where it is a .gguf file.
    """

    reference: str
    name: str
    folder: Path | None
    revision: str | None
    gguf: Path | None = None

    @property
    def repository(self) -> str:
        """The Hugging Face id, without its revision."""
        return self.reference.removesuffix(f"@{self.revision}")

    @cached_property
    def header(self) -> Header | None:
        """The header of the .gguf file; None of other models."""
        return None if self.gguf is None else read_header(self.gguf)

    @cached_property
    def weight_files(self) -> tuple[Path, ...]:
        """The weight files, checked to be whole; empty for a hub model that is not in the cache."""
        if self.gguf is not None:
            return (self.gguf,)
        folder = self.folder or self.snapshot
        return () if folder is None else tuple(weight_folder.weight_files(folder))

    def files(self, *, weights: bool) -> dict[str, Path]:
        """Return the files that the model is read from, by their names in its folder.

        Empty for a hub model that is not in the cache. `weights`: whether weight files are listed.
        """
        folder = self.folder or self.snapshot
        if folder is None:
            return {}
        patterns = weight_folder.BESIDE if self.gguf else weight_folder.DESCRIBING
        paths = weight_folder.describing_files(folder, patterns)
        if weights:
            paths += self.weight_files
        return {path.relative_to(folder).as_posix(): path for path in paths}

    @property
    def snapshot(self) -> Path | None:
        """The cached folder of a hub model, named by its commit.

        None of a local model, and of one that is not in the cache.
        """
        from huggingface_hub import try_to_load_from_cache

        if self.folder is not None:
            return None
        config = try_to_load_from_cache(self.repository, "config.json", revision=self.revision)
        return Path(config).parent if isinstance(config, str) else None

    @property
    def local_files_only(self) -> bool:
        """Return whether no file is asked of the hub."""
        return self.folder is not None or not _hub_has_address()

    @property
    def has_tokenizer(self) -> bool:
        """Return whether there are files of a tokenizer.

        Without them transformers would make up an empty one. Of a hub model it is assumed.
        """
        if self.header is not None:
            return self.header.tokenizer
        folder = self.folder
        if folder is None or any(folder.glob("*.tiktoken")):
            return True
        return any((folder / name).is_file() for name in TOKENIZER_FILES)

    def read(self, family: Any, trust_remote_code: bool, **options: Any) -> Any:
        """Return `family.from_pretrained` of this source, without log lines and progress bars.

        With the option `state_dict` weights are those, and the folder is not read.
        """
        path: str | None = self.repository if self.folder is None else str(self.folder)
        if "state_dict" in options:
            path = None
        self.check_readable()
        if self.gguf is not None:
            options["gguf_file"] = self.gguf.name
        with quiet():
            return family.from_pretrained(
                path,
                revision=self.revision,
                trust_remote_code=trust_remote_code,
                local_files_only=self.local_files_only,
                **options,
            )

    def check_readable(self) -> None:
        """Raise BadInput where a file that transformers would read whole is too large."""
        folder = self.folder or self.snapshot
        if folder is not None:
            weight_folder.check_readable(folder)

    def config(self, trust_remote_code: bool) -> Any:
        """Return the model's configuration.

        Raises:
            BadInput: where it is damaged, of an unknown kind, or cannot be fetched.
        """
        from transformers import AutoConfig

        from headscan.model import mixer  # noqa: F401 (makes mixers known to the Auto classes)

        if self.folder is not None and self.gguf is None:
            self.check_readable()
            _check_config(self.folder / "config.json")
        try:
            config = self.read(AutoConfig, trust_remote_code)
        except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
            raise self._only_gguf() or self.fault(error) from error
        except Exception as error:  # a configuration checks itself, and raises what it likes
            message = f"The configuration of '{self.name}' is at fault: {reason(error)}."
            raise BadInput(message) from error
        snapshot = self.snapshot
        if snapshot is not None:
            _check_config(snapshot / "config.json")
        if self.header is not None:
            _complete_config(config, self.header)
        return config

    def fault(self, error: BaseException) -> BadInput:
        """Return the refusal that says why the model cannot be loaded."""
        text = " ".join(str(error).split())
        hub_fault = self._hub_fault(error, text) if self.folder is None else None
        if hub_fault is not None:
            return BadInput(hub_fault)
        if "trust_remote_code" in text:
            return BadInput(
                f"The model '{self.name}' runs only with Python code of its own author; headscan "
                "runs none unless you allow it: HEADSCAN_TRUST_REMOTE_CODE=1, or "
                "trust_remote_code=True in Python."
            )
        if len(text) > LONGEST_REASON:
            text = text[:LONGEST_REASON].rsplit(" ", 1)[0] + " ..."
        if not text.endswith("."):
            text = text.rstrip("!?") + "."
        return BadInput(f"The model '{self.name}' cannot be loaded: {text}")

    def _hub_fault(self, error: BaseException, text: str) -> str | None:
        """Return what is wrong with a model of the hub; None where it is not the hub."""
        from huggingface_hub.errors import (
            GatedRepoError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )

        causes = _causes(error)
        model = f"The model '{self.reference}'"
        if _any_is(causes, GatedRepoError):
            return f"{model} is gated: ask for access on its page and log in (hf auth login)."
        if _any_is(causes, RevisionNotFoundError):
            return f"{model} has no revision '{self.revision}'."
        if _any_is(causes, RepositoryNotFoundError):
            return (
                f"There is no model '{self.reference}' on the Hugging Face hub (or it is private)."
            )
        if "safetensors" in text and "does not appear to have" in text:
            return f"{model} has no safetensors weights on the hub; headscan reads no other format."
        if isinstance(error, OSError):
            embedded = ", ".join(specimens()) or "there are none"
            return (
                f"'{self.reference}' is no folder, no example model ({embedded}) and not in "
                "the local cache, and the Hugging Face hub cannot be "
                f"reached.{nearest(self.reference, specimens())}"
            )
        return None

    def _only_gguf(self) -> BadInput | None:
        """Return the refusal of a hub repository that holds .gguf files and no configuration.

        None of any other repository.
        """
        from huggingface_hub import list_repo_files
        from huggingface_hub.errors import HfHubHTTPError

        if self.local_files_only:
            return None
        try:
            files = list_repo_files(self.repository, revision=self.revision)
        except (HfHubHTTPError, OSError, ValueError):
            return None
        gguf_files = [file for file in files if is_gguf(Path(file))]
        if not gguf_files or "config.json" in files:
            return None
        names = ", ".join(gguf_files[:FILES_LISTED])
        if len(gguf_files) > FILES_LISTED:
            names += ", ..."
        return BadInput(
            f"The model '{self.reference}' is on the hub as .gguf only ({names}): name one of "
            f"them, {self.reference}/{gguf_files[0]}."
        )


def _causes(error: BaseException) -> list[BaseException]:
    """Return an error and the errors that led to it."""
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    return causes


def _any_is(errors: list[BaseException], kind: type[BaseException]) -> bool:
    return any(isinstance(error, kind) for error in errors)


def _complete_config(config: Any, header: Header) -> None:
    """Set what transformers leaves out of a .gguf file's configuration: class and precision."""
    from transformers import AutoModelForCausalLM

    causal_models: Any = AutoModelForCausalLM._model_mapping
    if not getattr(config, "architectures", None) and type(config) in causal_models:
        config.architectures = [causal_models[type(config)].__name__]
    config.dtype = header.precision


def _check_config(file: Path) -> None:
    """Raise BadInput for a config.json that describes no Hugging Face model."""
    content = read_object(file)
    architectures = content.get("architectures")
    if architectures is not None and not _is_list_of_names(architectures):
        raise BadInput(
            f"'{file}' names its architectures as {json.dumps(architectures)[:60]}, which is no "
            "list of names."
        )
    if "transformers_weights" in content:
        raise BadInput(
            f"'{file}' names other weights (transformers_weights) than those that are checked."
        )
    check_adapter(file.parent)
    if "model_type" not in content:
        raise BadInput(f"'{file}' names no model_type, so it describes no Hugging Face model.")


def _is_list_of_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def check_adapter(folder: Path) -> None:
    """Raise BadInput where a folder holds an adapter (LoRA), which is no model by itself."""
    if (folder / weight_folder.ADAPTER_CONFIG).exists():
        raise BadInput(
            f"'{folder}' holds an adapter of another model ({weight_folder.ADAPTER_CONFIG}): "
            f"headscan weights {folder} reads what it adds; for anything else merge it into its "
            "base (merge_and_unload of peft) and save the two as one model."
        )


@cache
def _hub_has_address() -> bool:
    """Return whether the hub's host name resolves.

    Without this question each file is tried six times, for 23 seconds.
    """
    from huggingface_hub import constants

    if any(os.environ.get(name) for name in PROXIES):
        return True  # a proxy resolves names itself
    try:
        socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, None)
    except OSError:
        return False
    return True


def auto_class(config: Any) -> Any:
    """Return the Auto class for `config.architectures`: with a language model's head, else bare.

    A classifier is loaded without its head: its representations are what is read.

    >>> from transformers import BertConfig
    >>> auto_class(BertConfig(architectures=["BertForMaskedLM"])).__name__
    'AutoModelForMaskedLM'
    """
    import transformers

    name = (getattr(config, "architectures", None) or [""])[0]
    families: list[Any] = [
        transformers.AutoModelForSeq2SeqLM,
        transformers.AutoModelForMaskedLM,
        transformers.AutoModelForCausalLM,
        transformers.AutoModelForImageTextToText,
        transformers.AutoModelForTextEncoding,
        transformers.AutoModel,
    ]
    for family in families:
        if name in _class_names(family, config):
            return family
    own_class = getattr(transformers, name, None)
    reads_config = isinstance(config, getattr(own_class, "config_class", None) or ())
    if reads_config and name.endswith(LANGUAGE_MODELS):
        return own_class  # halves of encoder-decoders, and text parts, may have no Auto class
    # Names of other families, of a model's own code, and of models with several heads.
    for endings, family in zip(ENDINGS, families, strict=False):
        if name.endswith(endings) and type(config) in family._model_mapping:
            return family
    is_discriminator = "discriminator" in name.lower() or "Electra" in name
    if name.endswith(PRETRAINING) and not is_discriminator:
        for family in (transformers.AutoModelForMaskedLM, transformers.AutoModelForCausalLM):
            if type(config) in family._model_mapping:
                return family
    return transformers.AutoModel


def _class_names(family: Any, config: Any) -> tuple[str, ...]:
    """Return the names of the classes that an Auto class has for a configuration."""
    if type(config) not in family._model_mapping:
        return ()
    classes = family._model_mapping[type(config)]
    if not isinstance(classes, tuple):
        classes = (classes,)
    return tuple(item.__name__ for item in classes)


def reason(error: BaseException) -> str:
    """Return what an error says of a configuration, without its last full stop.

    >>> reason(KeyError("gelo"))
    "it names 'gelo', which transformers does not know"
    """
    if isinstance(error, KeyError):
        return f"it names {error}, which transformers does not know"
    if isinstance(error, ZeroDivisionError):
        return "a size by which another is divided is 0"
    text = " ".join(str(error).split()) or type(error).__name__
    return re.sub(r"^.*?\w+Error: ", "", text)[:LONGEST_REASON].rstrip(".")
