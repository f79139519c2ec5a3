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

from headscan.run.errors import BadInput
from headscan.run.files import FolderLock, check_writable, clear_aside, write_atomic
from headscan.run.parts import Parts
from headscan.run.result import Result
from headscan.run.rows import Json, ModelRecord, Protocol, TextRecord, plain
from headscan.run.settings import OptionField, Progress, no_progress

T = TypeVar("T")
R = TypeVar("R", bound=Result)
LIBRARIES = ("headscan", "torch", "transformers", "tokenizers", "numpy", "scipy")
UNFINISHED = ".resume"


class Run:
    """The folder (checked, made and locked before any work), identity, progress, stored parts and
    protocol of one run.

    A run may be interrupted at any moment. What it stored is found again with `resume`, if nothing
    changed on which it rests: the settings, and whatever the verb names with `identify` (weights,
    tokenizer, text, by their content).

    Under `torchrun` every process has a Run of the same folder; process 0 locks and writes it.

    Attributes:
        verb, folder, resume, rank, processes: as they say; folder is None where nothing is kept.
        progress: called with (stage, done, all or None, unit).
        parts: the stored parts of this process.

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
        self._made = out is not None and not os.path.exists(out)
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
        self._started = datetime.now(UTC)
        self._clock = time.monotonic()
        own: dict[str, Json] = {"verb": verb, "processes": self.processes}
        own |= {f"the version of {name}": _version(name) for name in LIBRARIES}
        self._identity: dict[str, Json] = own | {"subject": subject}
        self._identity |= {
            field.flag: plain(value)
            for field, value in self._options
            if field.option.identity and not field.option.content and not field.option.python
        }

    def _refuse_finished(self) -> None:
        """Raise BadInput where the folder holds a finished result, which this run would replace."""
        if self.folder is None or (self.folder / UNFINISHED).exists():
            return
        if (self.folder / "result.json").is_file():
            raise BadInput(
                f"{self.folder} holds a finished result. Give --overwrite (in Python "
                "overwrite=True) to replace it, or another --out."
            )

    def refuse_changed(self, circumstance: str, **values: Any) -> None:
        """Raise BadInput for the first of these options that has another value than its default.

        Args:
            circumstance: when the options are not used, such as "with --damage".
            values: the options' values by the names of the verb's parameters.

        >>> with Run.quiet() as run:
        ...     run.refuse_changed("with --damage")
        """
        fields = {field.name: field for field, _ in self._options}
        for name, value in values.items():
            field = fields[name]
            if value is not None and value != field.default:
                raise BadInput(f"{field.flag} is not used {circumstance}.")

    @classmethod
    def quiet(cls, verb: str = "run", *, seed: int = 0) -> "Run":
        """A run without a folder, for tests and for work inside another verb."""
        return cls(verb, seed=seed)

    def __enter__(self) -> "Run":
        if self._lock is not None and self.folder is not None:
            self._lock.take()
            clear_aside(self.folder)
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
        found = {path.name for path in self.folder.iterdir()} - {UNFINISHED, self._lock.path.name}
        if found <= self._before and [
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
            write_atomic(self._record, json.dumps(self._identity))

    def _take_up(self) -> None:
        try:
            stored = json.loads(self._record.read_text(encoding="utf-8"))
            if not isinstance(stored, dict) or not {"verb", "subject"} <= stored.keys():
                raise ValueError("no identity")
        except (OSError, ValueError, RecursionError):
            raise BadInput(
                f"There is nothing to resume in {self.folder}: no interrupted run."
            ) from None
        self.compare(stored)
        self._identity = stored | self._identity

    @property
    def identity(self) -> dict[str, Json]:
        return dict(self._identity)

    def compare(self, stored: Mapping[str, Json]) -> None:
        """BadInput, which names what changed, where something was stored by a run that rested on
        anything else.
        """
        for name, value in self._identity.items():
            if name in stored and stored[name] != value:
                self._refuse(name, stored[name], value)

    def _refuse(self, what: str, was: Json, now: Json) -> None:
        if isinstance(was, dict) and isinstance(now, dict):
            what, was, now = next(
                (f"{key} of {what}", was.get(key), now.get(key))
                for key in was | now
                if was.get(key) != now.get(key)
            )
        raise BadInput(
            f"The run in {self.folder} cannot be resumed: {what} was {_shown(was)} and is "
            f"{_shown(now)} now. Start afresh without --resume, or in another folder."
        )

    def identify(self, what: str, value: Json) -> None:
        """Say that the run rests on this: the hash of a text, of weights, of a tokenizer ("the
        weights of gpt2"). Where a resumed run has stored another value, this raises BadInput and
        names `what`.
        """
        if self._unfinished is None:
            return
        stored = self._identity.get(what)
        if stored is not None and self.resume and stored != value:
            self._refuse(what, stored, value)
        if stored != value:
            self._identity[what] = value
            if self.rank == 0:
                write_atomic(self._record, json.dumps(self._identity))

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
        made = make()
        self.parts.write(f"unit-{name}", {}, note=plain(made))
        return made

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
        versions = {name: _version(name) for name in LIBRARIES} | {
            "python": platform.python_version()
        }
        return Protocol(
            verb=self.verb,
            command=self.command,
            settings=settings,
            seed=self.seed,
            text=text,
            device=device,
            dtype=dtype,
            threads=torch.get_num_threads() if torch is not None else None,
            processes=self.processes,
            versions=versions,
            started=self._started.isoformat(timespec="seconds"),
            notes=list(notes or ()),
        )

    def finish(self, result: R) -> R:
        """Complete the protocol, save the result where there is a folder, and forget what was
        stored for a resume.
        """
        done = replace(
            result,
            protocol=replace(result.protocol, seconds=round(time.monotonic() - self._clock, 3)),
        )
        if self.folder is not None and self.rank == 0:
            done.save(self.folder)
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


@cache  # its metadata are read and parsed, which takes milliseconds
def _version(name: str) -> str:
    with suppress(PackageNotFoundError):
        return version(name)
    return "unknown"
