"""A run: what every verb stands on while it works."""

import hashlib
import json
import logging
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from headscan.run.code import code_hashes
from headscan.run.errors import BadInput
from headscan.run.exhaustion import FittingSize
from headscan.run.files import FolderLock, check_writable, clear_aside, write_atomic
from headscan.run.parts import Parts
from headscan.run.result import Result
from headscan.run.rows import Json, ModelRecord, Protocol, TextRecord, plain
from headscan.run.saving import CURRENT, DOCUMENT, finish_replacement
from headscan.run.settings import OptionField, Progress, no_progress

T = TypeVar("T")
R = TypeVar("R", bound=Result)
LIBRARIES = ("headscan", "torch", "transformers", "tokenizers", "numpy", "scipy")
UNFINISHED = ".resume"
PENDING = "not read yet"
"""The value of an input whose content is not there yet, such as a model that has not been
downloaded.
"""


class Run:
    """The folder (checked, made and locked before any work), identity, progress, stored parts and
    protocol of one run.

    A run may be interrupted at any moment. What it stored is found again with `resume`, if nothing
    changed on which it rests: the settings, and the inputs that the verb names with `identify`
    (weights, tokenizer, text, by their content). Both are closed sets: a resume is refused where
    one of them holds a name that the other lacks.

    Under `torchrun` every process has a Run of the same folder; process 0 locks and writes it.

    Attributes:
        verb, folder, resume, rank, processes: as they say; folder is None where nothing is kept.
        given: names of the options that the caller gave, also where the value is the default.
        progress: called with (stage, done, all or None, unit).
        parts: the stored parts of this process.
        limits: of the models that the run reads; what memory ran out for is noted in the result.

    >>> with Run.quiet() as run:
    ...     run.unit("answer", int, lambda: 42)
    42
    """

    def __init__(
        self,
        verb: str,
        *,
        out: str | os.PathLike[str] | None = None,
        resume: bool = False,
        overwrite: bool = False,
        seed: int = 0,
        progress: Progress | None = None,
        command: str | None = None,
        options: Iterable[tuple[OptionField, Any]] = (),
        given: frozenset[str] = frozenset(),
        subject: Json = None,
        continues: bool = False,
    ) -> None:
        if resume and out is None:
            raise BadInput("Only a run with an output folder (--out) can be resumed.")
        self.verb = verb
        self.resume = resume
        self.seed = seed
        self.command = command
        self.continues = continues
        self.rank = int(os.environ.get("RANK", "0"))
        self.processes = int(os.environ.get("WORLD_SIZE", "1"))
        self.progress = progress or no_progress
        self._options = list(options)
        self.given = given
        self._made = out is not None and not os.path.exists(os.path.expanduser(out))
        self.folder = None if out is None else check_writable(out)
        if not (resume or overwrite or continues):
            self._refuse_finished()
        self._before = (
            set() if self.folder is None else {path.name for path in self.folder.iterdir()}
        )
        self._unfinished = None if self.folder is None else self.folder / UNFINISHED
        self._lock = (
            FolderLock(self.folder, command) if self.folder is not None and self.rank == 0 else None
        )
        self.parts = Parts(self._unfinished, rank=self.rank)
        self.limits: list[FittingSize] = []
        self._started = datetime.now(UTC)
        self._clock = time.monotonic()
        settings: dict[str, Json] = {"verb": verb, "processes": self.processes}
        settings |= {f"the version of {name}": _version(name) for name in LIBRARIES}
        if self.folder is not None:
            settings |= {f"the code of {name}": value for name, value in code_hashes().items()}
            settings["the number of threads (OMP_NUM_THREADS)"] = _threads()
        options_of_identity = {
            field.flag: plain(value)
            for field, value in self._options
            if field.option.identity and not field.option.content and not field.option.python
        }
        self._settings: dict[str, Json] = settings | {"subject": subject} | options_of_identity
        self._inputs: dict[str, Json] = {}  # what this process has identified
        self._interrupted: dict[str, Json] = {}  # the inputs of the run that is resumed
        self._recorded: dict[str, Json] = {}  # the inputs in the file

    def _refuse_finished(self) -> None:
        """Raise BadInput where the folder holds a finished result, which this run would replace."""
        if self.folder is None:
            return
        if (self.folder / DOCUMENT).is_file() or (self.folder / CURRENT / DOCUMENT).is_file():
            raise BadInput(
                f"{self.folder} holds a finished result. Give --overwrite (in Python "
                "overwrite=True) to replace it, or another --out."
            )

    def refuse_changed(self, circumstance: str, **values: Any) -> None:
        """Raise BadInput for the first of these options that was given, or is not its default.

        Args:
            circumstance: when the options are not used, such as "with --damage".
            values: the options' values by the names of the verb's parameters.

        >>> with Run.quiet() as run:
        ...     run.refuse_changed("with --damage")
        """
        fields = {field.name: field for field, _ in self._options}
        for name, value in values.items():
            field = fields[name]
            if name in self.given or value not in (None, field.default):
                raise BadInput(f"{field.flag} is not used {circumstance}.")

    @classmethod
    def quiet(cls, verb: str = "run", *, seed: int = 0) -> "Run":
        """A run without a folder, for tests and for work inside another verb."""
        return cls(verb, seed=seed)

    def __enter__(self) -> "Run":
        if self._lock is not None and self.folder is not None:
            self._lock.take()
            clear_aside(self.folder)
            finish_replacement(self.folder)
        try:
            if self._unfinished is not None:
                self._take_up() if self.resume else self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.release()
            if self._made and self.folder is not None:
                with suppress(OSError):  # it is not empty
                    self.folder.rmdir()

    def refused(self) -> None:
        """What was refused before anything was stored leaves nothing behind; a resume finds all
        else where it was.
        """
        if self.folder is None or self._unfinished is None or self._lock is None or self.resume:
            return
        new_files = {path.name for path in self.folder.iterdir()} - {
            UNFINISHED,
            self._lock.path.name,
        }
        if new_files <= self._before and [
            path.name for path in self._unfinished.rglob("*") if path.is_file()
        ] == [self._record.name]:
            self.parts.clear()

    # ---- identity

    @property
    def _record(self) -> Path:
        assert self._unfinished is not None
        return self._unfinished / "identity.json"

    def _begin(self) -> None:
        if self.rank == 0:
            self.parts.clear()
            assert self._unfinished is not None
            self._unfinished.mkdir(exist_ok=True)
            self._write_record(self._inputs)

    def _write_record(self, inputs: Mapping[str, Json]) -> None:
        write_atomic(self._record, json.dumps({"settings": self._settings, "inputs": inputs}))

    def _take_up(self) -> None:
        try:
            stored = json.loads(self._record.read_text(encoding="utf-8"))
            if not isinstance(stored, dict) or stored.keys() != {"settings", "inputs"}:
                raise ValueError("no identity")
            if not all(isinstance(facts, dict) for facts in stored.values()):
                raise ValueError("no identity")
        except (OSError, ValueError, RecursionError):
            raise BadInput(
                f"There is nothing to resume in {self.folder}: no interrupted run."
            ) from None
        self._compare_sets(stored["settings"], self._settings)
        self._interrupted = stored["inputs"]
        self._recorded = dict(self._interrupted)

    @property
    def identity(self) -> dict[str, Json]:
        """The settings and all inputs identified so far, by name."""
        return self._settings | self._inputs

    def compare(self, stored: Mapping[str, Json]) -> None:
        """Raise BadInput, which names the difference, unless the stored identity and the present
        one are equal, name for name.
        """
        self._compare_sets(stored, self.identity)

    def _compare_sets(self, stored: Mapping[str, Json], present: Mapping[str, Json]) -> None:
        for name in present:
            if name not in stored:
                self._refuse_unknown(name)
        for name in stored:
            if name not in present:
                self._refuse_missing(name)
            if stored[name] != present[name]:
                self._refuse(name, stored[name], present[name])

    def _unconfirmed(self) -> list[str]:
        """Return the inputs of the interrupted run that this process has not identified yet, in
        their order.
        """
        return [name for name in self._interrupted if name not in self._inputs]

    def _refuse_unknown(self, fact: str) -> None:
        raise BadInput(
            f"The run in {self.folder} cannot be resumed: it stored nothing of {fact}. Start "
            "afresh without --resume, or in another folder."
        )

    def _refuse_missing(self, fact: str) -> None:
        raise BadInput(
            f"The run in {self.folder} cannot be resumed: it was made of {fact}, which is not "
            "among the inputs now. Start afresh without --resume, or in another folder."
        )

    def _refuse(self, fact: str, was: Json, now: Json) -> None:
        if isinstance(was, dict) and isinstance(now, dict):
            fact, was, now = next(
                (f"{key} of {fact}", was.get(key), now.get(key))
                for key in was | now
                if was.get(key) != now.get(key)
            )
        raise BadInput(
            f"The run in {self.folder} cannot be resumed: {fact} was {_shown(was)} and is "
            f"{_shown(now)} now. Start afresh without --resume, or in another folder."
        )

    def identify(self, fact: str, value: Json) -> None:
        """Record that the run rests on an input: the hash of a text, of weights, of a tokenizer.

        `fact` is a fixed name that says the input's role, such as "model 1" or "the tokenizer of
        model 1". It holds nothing that depends on the input itself, such as a folder's name, so
        that another input in the same role is compared with it.

        A verb names its inputs in the same order each time. So a resumed run finds those of the
        interrupted one first; only behind the last of them can an input be new, which the
        interrupted run had not come to. Raises BadInput, which names `fact`, where the stored value
        is another one or the stored run has no input of this name.
        """
        if self._unfinished is None:
            return
        if fact in self._interrupted:
            stored = self._interrupted[fact]
            if value == PENDING:
                value = stored
            if stored not in (value, PENDING):
                self._refuse(fact, stored, value)
        elif self._unconfirmed():
            self._refuse_unknown(fact)
        self._inputs[fact] = value
        if self.rank == 0 and not self._unconfirmed() and self._inputs != self._recorded:
            self._write_record(self._inputs)
            self._recorded = dict(self._inputs)

    # ---- units of work

    def unit(self, name: str, kind: type[T], make: Callable[[], T]) -> T:
        """A finished piece of work: made now, or read back where an interrupted run had finished
        it.

        `kind` is its type (a dataclass, list, dict, number, ...), by which it is read back from
        JSON; numbers come back bit for bit. NaN becomes None, so its fields must allow that.
        """
        if self.folder is None:
            return make()
        from pydantic import TypeAdapter

        part = self.parts.read(f"unit-{name}") if self.resume else None
        if part is not None:
            return TypeAdapter(kind).validate_python(part.note)
        result = make()
        self.parts.write(f"unit-{name}", {}, note=plain(result))
        return result

    # ---- words

    def announce(self, sentence: str) -> None:
        """Tell the user something that is no progress: an estimate, a caution."""
        if self.rank == 0:
            logging.getLogger("headscan").warning(sentence)

    def protocol(
        self,
        *,
        text: TextRecord | None = None,
        device: str | None = None,
        dtype: str | None = None,
        notes: list[str] | None = None,
    ) -> Protocol:
        """How this run was made; `seconds` is completed when it ends."""
        torch = sys.modules.get("torch")
        settings = {
            field.name: plain(value)
            for field, value in self._options
            if not field.option.python
            and not field.option.content
            and field.name not in ("out", "resume")
        }
        by_default = list[str]()
        if text is not None and text.context is not None and settings.get("context", 0) is None:
            settings["context"] = text.context
            by_default.append("context")
        versions = {name: _version(name) for name in LIBRARIES} | {
            "python": platform.python_version()
        }
        return Protocol(
            verb=self.verb,
            command=self.command,
            settings=settings,
            by_default=by_default,
            seed=self.seed,
            text=text,
            device=device,
            dtype=dtype,
            threads=torch.get_num_threads() if torch is not None else None,
            processes=self.processes,
            versions=versions,
            started=self._started.isoformat(timespec="seconds"),
            notes=[*(notes or ()), *(text.sentences if text is not None else ())],
        )

    def finish(self, result: R) -> R:
        """Complete the protocol, save the result where there is a folder, and forget what was
        stored for a resume.

        Raises BadInput where the interrupted run rested on an input that the resumed one never
        named.
        """
        for name in self._unconfirmed():
            self._refuse_missing(name)
        notes = list(result.protocol.notes)
        for limit in self.limits:
            notes += [note for note in limit.notes if note not in notes]
        seconds = round(time.monotonic() - self._clock, 3)
        done = replace(result, protocol=replace(result.protocol, seconds=seconds, notes=notes))
        if self.folder is not None and self.rank == 0:
            done = done.saved(self.folder)
            if not self.continues:
                self.parts.clear()
        return done


def fingerprint(record: ModelRecord) -> Json:
    """What identifies a model: the hashes of its weight files, or of what is known of it where it
    has none.
    """
    return dict(record.sha256) or hashlib.sha256(repr(record).encode()).hexdigest()


def _shown(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _threads() -> int:
    """Return the number of torch's threads, which decides the last bits of sums on a CPU."""
    import torch

    return torch.get_num_threads()


@cache  # its metadata are read and parsed, which takes milliseconds
def _version(name: str) -> str:
    with suppress(PackageNotFoundError):
        return version(name)
    return "unknown"
