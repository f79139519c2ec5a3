"""Where a model comes from: an embedded specimen, a local folder, a .gguf file or a hub id; its
configuration and files.
"""

import json
import math
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from headscan.model import weights as saved
from headscan.model.settings import quiet
from headscan.run import BadInput
from headscan.run.errors import nearest
from headscan.run.files import read_object

# The specimens are folders in the layout of `save_pretrained`. `pip install headscan` brings
# `gpt-vanilla`, and `pip install 'headscan[specimens]'` the others, into the same folder.
FOLDER = Path(__file__).parent / "specimens"
# what packaging/specimens makes a package of
OTHERS = ("gpt-headless", "gpt-headless-early", "gpt-vanilla-early")

CAUSAL = ("ForCausalLM", "LMHeadModel", "LMHead")
MASKED = ("ForMaskedLM", "WithLMHeadModel")
SEQ2SEQ = ("ForConditionalGeneration", "ForSeq2SeqLM")
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


def specimens() -> tuple[str, ...]:
    """The names of the embedded models, in alphabetical order.

    >>> isinstance(specimens(), tuple)
    True
    """
    if not FOLDER.is_dir():
        return ()
    return tuple(
        sorted(folder.name for folder in FOLDER.iterdir() if (folder / "config.json").is_file())
    )


def specimen_path(name: str) -> Path:
    """The folder of the embedded model `name`; BadInput names the specimens there are, or the
    package that has it.
    """
    if name not in specimens():
        if name in OTHERS:
            raise BadInput(
                f"The specimen '{name}' is not installed: pip install 'headscan[specimens]'."
            )
        listed = ", ".join(specimens()) or "none in this installation"
        raise BadInput(
            f"There is no embedded specimen '{name}' (there are: "
            f"{listed}).{nearest(name, specimens())}"
        )
    return FOLDER / name


@dataclass(frozen=True)
class Source:
    """The place a model is loaded from. Each file that describes the model is read once, when it is
    first asked for.
    """

    given: str  # what the user named
    name: str  # for tables and messages
    folder: Path | None  # None for a hub id
    revision: str | None
    gguf: Path | None = (
        None  # the one file in the folder that is the model, where it is a .gguf file
    )

    @property
    def repository(self) -> str:
        """The Hugging Face id, without its revision."""
        return self.given.removesuffix(f"@{self.revision}")

    @cached_property
    def header(self) -> saved.Header | None:
        return None if self.gguf is None else saved.read_header(self.gguf)

    @cached_property
    def weight_files(self) -> tuple[Path, ...]:
        """The weight files, checked to be whole; empty for a hub model that is not in the cache."""
        if self.gguf is not None:
            return (self.gguf,)
        folder = self.folder or self.snapshot
        return () if folder is None else tuple(saved.weight_files(folder))

    def files(self, *, weights: bool) -> dict[str, Path]:
        """The files that the model is read from, by their names in its folder; empty for a hub
        model that is not in the cache.
        """
        if (folder := self.folder or self.snapshot) is None:
            return {}
        read = [
            *saved.describing_files(folder, saved.BESIDE if self.gguf else saved.DESCRIBING),
            *(self.weight_files if weights else ()),
        ]
        return {path.relative_to(folder).as_posix(): path for path in read}

    @property
    def snapshot(self) -> Path | None:
        """The cached folder of a hub model, named by its commit; None if it is local or not in the
        cache.
        """
        from huggingface_hub import try_to_load_from_cache

        if self.folder is not None:
            return None
        config = try_to_load_from_cache(self.repository, "config.json", revision=self.revision)
        return Path(config).parent if isinstance(config, str) else None

    @property
    def local_files_only(self) -> bool:
        return self.folder is not None or not _hub_has_address()

    @property
    def has_tokenizer(self) -> bool:
        """Whether there are files of a tokenizer; without them transformers would make up an empty
        one.
        """
        if self.header is not None:
            return self.header.tokenizer
        folder = self.folder
        return (
            folder is None
            or any(map(Path.is_file, map(folder.joinpath, TOKENIZER_FILES)))
            or any(folder.glob("*.tiktoken"))
        )

    def read(self, family: Any, trust_remote_code: bool, **options: Any) -> Any:
        """`family.from_pretrained` of this source, without log lines and progress bars."""
        path = self.repository if self.folder is None else str(self.folder)
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

    def config(self, trust_remote_code: bool) -> Any:
        """The model's configuration. Raises BadInput: it is damaged, of an unknown kind, or cannot
        be fetched.
        """
        from transformers import AutoConfig, AutoModelForCausalLM

        from headscan.model import mixer  # noqa: F401 (makes masked mixers known to the Auto classes)

        if self.folder is not None and self.gguf is None:
            _check_config(self.folder / "config.json")
        try:
            config = self.read(AutoConfig, trust_remote_code)
        except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
            raise self._only_gguf() or self.fault(error) from error
        except Exception as error:  # a configuration checks itself, and raises what it likes
            raise BadInput(
                f"The configuration of '{self.name}' is at fault: {reason(error)}."
            ) from error
        if self.folder is None and (cached := self.snapshot) is not None:
            _check_config(cached / "config.json")
        if (
            self.header is not None
        ):  # transformers leaves out the class with a head and the precision of the weights
            causal: Any = AutoModelForCausalLM._model_mapping
            if not getattr(config, "architectures", None) and type(config) in causal:
                config.architectures = [causal[type(config)].__name__]
            config.dtype = self.header.precision
        return config

    def fault(self, error: BaseException) -> BadInput:
        from huggingface_hub.errors import (
            GatedRepoError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )

        causes: list[BaseException] = []
        cause: BaseException | None = error
        while cause is not None and cause not in causes:
            causes.append(cause)
            cause = cause.__cause__ or cause.__context__
        text = " ".join(str(error).split())
        model = f"The model '{self.given}'"
        if self.folder is None:
            sentences = (
                (
                    GatedRepoError,
                    f"{model} is gated: ask for access on its page and log in (hf auth login).",
                ),
                (RevisionNotFoundError, f"{model} has no revision '{self.revision}'."),
                (
                    RepositoryNotFoundError,
                    f"There is no model '{self.given}' on the Hugging Face hub (or it is private).",
                ),
            )
            for kind, sentence in sentences:
                if any(isinstance(cause, kind) for cause in causes):
                    return BadInput(sentence)
            if "safetensors" in text and "does not appear to have" in text:
                return BadInput(
                    f"{model} has no safetensors weights on the hub; headscan reads no other "
                    "format."
                )
            if isinstance(error, OSError):
                return BadInput(
                    f"'{self.given}' is no folder, no embedded specimen "
                    f"({', '.join(specimens()) or 'there are none'}) and not in the local cache, "
                    "and the Hugging Face hub cannot be "
                    f"reached.{nearest(self.given, specimens())}"
                )
        if "trust_remote_code" in text:
            return BadInput(
                f"The model '{self.name}' runs only with Python code of its own author; headscan "
                "runs none unless you allow it: HEADSCAN_TRUST_REMOTE_CODE=1, or "
                "trust_remote_code=True in Python."
            )
        if len(text) > 300:
            text = text[:300].rsplit(" ", 1)[0] + " ..."
        return BadInput(
            f"The model '{self.name}' cannot be loaded: "
            f"{text if text.endswith('.') else text.rstrip('!?') + '.'}"
        )

    def _only_gguf(self) -> BadInput | None:
        """What to say of a hub repository that holds .gguf files and no configuration; None for any
        other.
        """
        from huggingface_hub import list_repo_files
        from huggingface_hub.errors import HfHubHTTPError

        if self.local_files_only:
            return None
        try:
            files = list_repo_files(self.repository, revision=self.revision)
        except (HfHubHTTPError, OSError, ValueError):
            return None
        packed = [file for file in files if saved.is_gguf(Path(file))]
        if not packed or "config.json" in files:
            return None
        names = ", ".join(packed[:8]) + (", ..." if len(packed) > 8 else "")
        return BadInput(
            f"The model '{self.given}' is on the hub as .gguf only ({names}): name one of them, "
            f"{self.given}/{packed[0]}."
        )


def _check_config(file: Path) -> None:
    parsed = read_object(file)
    named = parsed.get("architectures")
    if named is not None and not (
        isinstance(named, list) and all(isinstance(name, str) for name in named)
    ):
        raise BadInput(
            f"'{file}' names its architectures as {json.dumps(named)[:60]}, which is no list of "
            "names."
        )
    if "transformers_weights" in parsed:
        raise BadInput(
            f"'{file}' names other weights (transformers_weights) than those that are checked."
        )
    check_adapter(file.parent)
    if "model_type" not in parsed:
        raise BadInput(f"'{file}' names no model_type, so it describes no Hugging Face model.")


def check_adapter(folder: Path) -> None:
    """BadInput where a folder holds what changes another model (a LoRA adapter), and so no model
    that reads a text.
    """
    if (folder / saved.ADAPTER_CONFIG).exists():
        raise BadInput(
            f"'{folder}' holds an adapter of another model ({saved.ADAPTER_CONFIG}): headscan "
            f"weights {folder} reads what it adds; for anything else merge it into its base "
            "(merge_and_unload of peft) and save the two as one model."
        )


@cache
def _hub_has_address() -> bool:
    """Whether the hub's host name resolves. Without this question each file is tried six times, for
    23 seconds.
    """
    from huggingface_hub import constants

    if any(
        os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
    ):
        return True  # a proxy resolves names itself
    try:
        socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, None)
    except OSError:
        return False
    return True


def model_folder(folder: Path) -> Path:
    """The folder itself, or its `model` where only that holds a model: so `headscan train` and
    `recover` write theirs.
    """
    inner = folder / "model"
    return (
        inner
        if (inner / "config.json").is_file() and not (folder / "config.json").exists()
        else folder
    )


def find_source(model: str) -> Source:
    """Where `model` is: a specimen's name first, then a folder or a .gguf file, else a hub id, or
    ID@REVISION. Raises BadInput: what can only be a folder is not there, or has no config.json.
    """
    given = os.fspath(model)
    if given in specimens():
        return Source(given, given, specimen_path(given), None)
    if not given.strip():
        raise BadInput(
            "No model was named: give a folder, an embedded specimen or a Hugging Face id."
        )
    folder = Path(given).expanduser()
    if given in OTHERS and not folder.exists():
        specimen_path(given)  # says which extra has it
    if folder.is_dir():
        held = model_folder(folder)
        whole = folder.resolve()
        if not (held / "config.json").is_file():
            check_adapter(folder)
            raise BadInput(
                f"The folder '{given}' has no config.json, so it holds no Hugging Face model."
            )
        telling = whole.name not in ("model", "models", "weights", "final")
        return Source(
            given, whole.name if telling else f"{whole.parent.name}/{whole.name}", held, None
        )
    if folder.exists():
        if not saved.is_gguf(folder):
            raise BadInput(
                f"'{given}' is a file; a model is a folder with config.json and "
                "model.safetensors, or a .gguf file."
            )
        return Source(given, folder.stem, folder.parent, None, gguf=folder)
    repository, at, revision = given.rpartition("@")
    if at and (repository in specimens() or Path(repository).expanduser().exists()):
        raise BadInput(
            f"'{repository}' is on this machine and has no revisions: leave out @{revision}."
        )
    if at and (not repository or not re.fullmatch(r"[\w./-]+", revision) or ".." in revision):
        raise BadInput(
            f"'{given}' is no model: a revision is written ID@REVISION, a branch, tag or commit."
        )
    if (
        given[0] not in ".~/"
        and given.count("/") > 1
        and saved.is_gguf(Path(repository if at else given))
    ):
        return _hub_file(repository if at else given, revision if at else None)
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    looks_local = given.startswith((".", "~", os.sep)) or given.count("/") > 1 or "\\" in given
    try:
        validate_repo_id("" if looks_local else repository if at else given)
    except HFValidationError:
        raise BadInput(f"There is no folder '{given}'.") from None
    return Source(given, given, None, revision if at else None)


def revisions_of(model: str | os.PathLike[str], revisions: str | Sequence[str]) -> list[str]:
    """The models of a series: ID@REVISION of a Hugging Face id, as they were named, or folders
    inside one of checkpoints.

    In a folder a name may be a glob, whose folders come in the order of the last number of their
    names. Raises BadInput for a name that is empty or given twice, a folder without such a
    checkpoint, a specimen.

    >>> revisions_of("someone/model", "step1000, step9000")
    ['someone/model@step1000', 'someone/model@step9000']
    """
    given = os.fspath(model)
    folder = Path(model).expanduser()
    names = [
        name.strip() for name in (revisions.split(",") if isinstance(revisions, str) else revisions)
    ]
    if not all(names) or not names:
        raise BadInput(
            f"--revisions names nothing between two commas, or nothing at all: {','.join(names)!r}."
        )
    if given in specimens() or folder.is_file():
        raise BadInput(f"'{given}' is one model and has no revisions: leave out --revisions.")
    if not folder.is_dir():
        if "@" in given:
            raise BadInput(
                f"'{given}' names a revision already: leave out --revisions, or the part from @ on."
            )
        found = [f"{given}@{name}" for name in names]
    else:
        held = sorted(
            (each for each in folder.iterdir() if (each / "config.json").is_file()), key=_step
        )
        found = []
        for name in names:
            matching = [str(each) for each in held if fnmatchcase(each.name, name)]
            if not matching:
                known = ", ".join(each.name for each in held[:4]) + (
                    ", ..." if len(held) > 4 else ""
                )
                raise BadInput(
                    f"The folder '{given}' has no checkpoint '{name}'; there are: "
                    f"{known or 'none'}."
                )
            found += matching
    if len(set(found)) < len(found):
        raise BadInput(f"--revisions names a checkpoint twice: {','.join(names)}.")
    return found


def _step(folder: Path) -> tuple[float, str]:
    """What orders checkpoints; a folder without a number, such as `model`, is the last."""
    numbers = re.findall(r"\d+", folder.name)
    return float(numbers[-1]) if numbers else math.inf, folder.name


def _hub_file(given: str, revision: str | None) -> Source:
    """ORGANISATION/REPOSITORY/FILE.gguf: one file of a hub repository, fetched into the cache."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    repository = "/".join(given.split("/")[:2])
    file = "/".join(given.split("/")[2:])
    hub = Source(repository, repository, None, revision)
    try:
        path = Path(
            hf_hub_download(
                repository, file, revision=revision, local_files_only=hub.local_files_only
            )
        )
    except (OSError, ValueError, EntryNotFoundError) as error:
        if isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
            raise BadInput(f"The model '{repository}' has no file '{file}' on the hub.") from error
        raise hub.fault(error) from error
    return Source(given, path.stem, path.parent, None, gguf=path)


def auto_class(config: Any) -> Any:
    """The Auto class for `config.architectures`: with the head of a language model where it has
    one, else bare.

    A classifier is loaded without its head: what is read are its representations.

    >>> from transformers import BertConfig
    >>> auto_class(BertConfig(architectures=["BertForMaskedLM"])).__name__
    'AutoModelForMaskedLM'
    """
    import transformers
    from transformers import (
        AutoModel,
        AutoModelForCausalLM,
        AutoModelForMaskedLM,
        AutoModelForSeq2SeqLM,
    )

    name = (getattr(config, "architectures", None) or [""])[0]
    if name.endswith("EncoderModel") and hasattr(transformers, name):
        # half of an encoder-decoder (T5EncoderModel) has no Auto class
        return getattr(transformers, name)
    # The order matters: XLMWithLMHeadModel ends with LMHeadModel too.
    families: list[tuple[tuple[str, ...], Any]] = [
        (SEQ2SEQ, AutoModelForSeq2SeqLM),
        (MASKED, AutoModelForMaskedLM),
        (CAUSAL, AutoModelForCausalLM),
        (SEQ2SEQ, transformers.AutoModelForImageTextToText),
    ]
    if "discriminator" not in name.lower() and "Electra" not in name:
        families += [
            (("ForPreTraining",), AutoModelForMaskedLM),
            (("ForPreTraining",), AutoModelForCausalLM),
        ]
    for endings, family in families:
        if name.endswith(endings) and type(config) in family._model_mapping:
            return family
    return AutoModel


def reason(error: BaseException) -> str:
    """What an error says of a configuration, without its last full stop.

    >>> reason(KeyError("gelo"))
    "it names 'gelo', which transformers does not know"
    """
    if isinstance(error, KeyError):
        return f"it names {error}, which transformers does not know"
    if isinstance(error, ZeroDivisionError):
        return "a size by which another is divided is 0"
    text = " ".join(str(error).split()) or type(error).__name__
    return re.sub(r"^.*?\w+Error: ", "", text)[:300].rstrip(".")


@dataclass(frozen=True)
class AvailableModel:
    """A model that can be named without a download: what to call it, where it is, and a few words
    about it.
    """

    name: str
    kind: Literal["specimen", "cached"]
    about: str


def available_models() -> list[AvailableModel]:
    """The embedded specimens, then the cached repositories that hold a config.json; nothing is
    asked of the network.

    >>> available_models()[0].kind
    'specimen'
    """
    from huggingface_hub import CacheNotFound, scan_cache_dir

    models = [AvailableModel(name, "specimen", "embedded in headscan") for name in specimens()]
    try:
        repositories = sorted(scan_cache_dir().repos, key=lambda repository: repository.repo_id)
    except CacheNotFound:
        return models
    for repository in repositories:
        files = {file.file_name for revision in repository.revisions for file in revision.files}
        if repository.repo_type == "model" and "config.json" in files:
            about = f"{repository.size_on_disk / 1e6:,.0f} MB in the Hugging Face cache"
            if not any(name.endswith(".safetensors") for name in files):
                about += ", without safetensors: cannot be loaded"
            models.append(AvailableModel(repository.repo_id, "cached", about))
    return models
