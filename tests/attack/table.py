"""Bad inputs, listed: models, texts, states, output folders and options that every verb must refuse
in a sentence.

python -m tests.attack.table [FIRST LAST]
"""

import contextlib
import os
import random
import sys
import tempfile
import typing
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import torch
from safetensors.torch import save_file

from tests.attack.fuzz import (
    ALONE,
    BOUND,
    SMALL,
    VERBS,
    Ground,
    faults_of,
    literals,
    members,
    parameters,
    right_value,
    run,
)

# What no option of a type may be, and what is no model and no text: tried with every verb and
# option that has such a type. Of words that may mean something, a verb may make what it can.
NO_NUMBER = ["", "x", "nan", "1e400", "-" + "9" * 20, "0x", "1,2", "\x00", "é\u202e"]
NO_WHOLE_NUMBER = [*NO_NUMBER, "1.5", "9" * 30]
NO_CHOICE = ["", "nonsense", " ", "../..", "\x00", "é\u202e", "x" * 5000, "[", ",,"]
WORDS_OF_ANY_KIND = [
    "",
    " ",
    "-",
    "../..",
    "\x00",
    "é\u202e",
    "x" * 5000,
    "[",
    "{}",
    "a,b,,c",
    "*",
    "None",
    "=cmd|' /C calc'!A0",
    "\x1b[2J",
]
NO_MODEL = [
    "",
    " ",
    "missing",
    "broken",
    "text.txt",
    "empty",
    "hollow",
    "../..",
    "a@b@c",
    "\x00",
    "é\u202e",
    "x" * 5000,
    "/dev/null",
    "tiny@main",
]
NO_TEXT = [
    "",
    "missing.txt",
    "empty.txt",
    "bytes.txt",
    "rows.jsonl",
    "white.txt",
    "empty",
    "tiny",
    "torn.txt.gz",
    "torn.jsonl.zst",
    "torn.parquet",
    "/dev/null",
    "\x00",
    "é\u202e.txt",
]


def bad_states(folder: Path) -> list[str]:
    """Files of states in every format, each made bad in several ways; their names."""
    rows = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)
    arrays = {
        "nan": np.full_like(rows, np.nan),
        "infinite": np.full_like(rows, np.inf),
        "none": rows[:0],
        "narrow": rows[:, :0],
        "whole": np.ones((40, 8), np.int64),
        "number": np.float32(1),
        "complex": rows.astype(np.complex64),
        "words": np.full((40, 8), "hen"),
        "deep": np.zeros((2, 2, 2, 2), np.float32),
    }

    def tables(path: Path, array: Any) -> None:
        column = pa.table({"x": array.tolist() if array.ndim else [1.0]})
        (pq.write_table if path.suffix == ".parquet" else feather.write_feather)(column, path)

    writers: dict[str, Any] = {
        "npy": lambda path, array: np.save(path, array),
        "npz": lambda path, array: np.savez(path, x=array),
        "safetensors": lambda path, array: save_file(
            {"x": torch.from_numpy(np.ascontiguousarray(array))}, path
        ),
        "pt": lambda path, array: torch.save({"x": torch.from_numpy(array)}, path),
        "parquet": tables,
        "feather": tables,
    }
    for ending, write in writers.items():
        write(folder / f"sound.{ending}", rows)
        sound = (folder / f"sound.{ending}").read_bytes()
        (folder / f"sound.{ending}").unlink()
        contents = {
            "empty": b"",
            "half": sound[: len(sound) // 2],
            "head": sound[:40],
            "text": b"a hen\n" * 40,
            "zeros": bytes(4000),
        }
        contents["turned"] = bytes(255 - byte for byte in sound)
        for name, content in contents.items():
            (folder / f"{name}.{ending}").write_bytes(content)
        for name, array in arrays.items():
            with contextlib.suppress(TypeError, pa.ArrowException):  # what a format cannot hold
                write(folder / f"{name}.{ending}", array)
    return sorted(path.name for ending in writers for path in folder.glob(f"*.{ending}"))


def _identity(content: str) -> Any:
    return lambda out: [
        (out / ".resume").mkdir(),
        (out / ".resume" / "identity.json").write_text(content),
    ]


# What an output folder may hold, or be, that keeps a verb from writing there; with the words behind
# --out.
PLACES: dict[str, tuple[Any, list[str]]] = {
    "a folder as lock": (lambda out: (out / ".lock").mkdir(), []),
    "a pipe as lock": (lambda out: os.mkfifo(out / ".lock"), []),
    "a link as lock": (lambda out: (out / ".lock").symlink_to("../victim"), []),
    "a ring as lock": (lambda out: (out / ".lock").symlink_to(".lock"), []),
    "nothing to resume": (lambda out: None, ["--resume"]),
    "a file": (lambda out: [out.rmdir(), out.write_text("")], []),
    "a pipe": (lambda out: [out.rmdir(), os.mkfifo(out)], []),
    "a link to itself": (lambda out: [out.rmdir(), out.symlink_to(out.name)], []),
    "no state": (lambda out: (out / ".resume").write_text(""), ["--resume"]),
    "a folder as identity": (
        lambda out: (out / ".resume" / "identity.json").mkdir(parents=True),
        ["--resume"],
    ),
    **{
        f"{content[:9]} as identity": (_identity(content), ["--resume"])
        for content in ("[1]", "null", "5", "", "{}", "\0", "[" * 99_999, '{"a": 1}', '"hen"')
    },
}


def table(ground: Ground) -> Iterator[tuple[list[str], bool, str]]:
    """Bad inputs, listed: every verb with each of its options, its model, text, states and output
    folder made bad; whether it must refuse; the kind of the input.
    """
    draw = random.Random(0)
    states = bad_states(ground.folder)
    for name in ("white.txt", "torn.txt.gz", "torn.jsonl.zst", "torn.parquet"):
        (ground.folder / name).write_bytes(
            b" \n" * 300 if name == "white.txt" else b"\x1f\x8b\x28\xb5PAR1"
        )
    (ground.folder / "empty").mkdir()
    (ground.folder / "hollow").mkdir()
    (ground.folder / "hollow" / "config.json").write_text('{"model_type": "gpt2"}')
    for verb in VERBS:
        command, fields, _ = parameters(verb)
        if command is None:
            continue
        needed = [
            n
            for n, x in fields.items()
            if x.required or n in ("prompt", "tokenizer") or (n in SMALL and n in BOUND)
        ]
        base = {
            n: right_value(fields[n], draw)
            for n in needed
            if (verb, n) not in ALONE and n not in command.arguments
        }
        source = ground.texts if command.subject.startswith("TEXT") else ground.models
        subject = (
            ["gpt" if command.subject.startswith("RECIPE") else source[0]]
            if command.subject
            else []
        )
        all_options = [word for option in base.values() for word in option]
        missing, kind = (NO_TEXT, "texts") if source is ground.texts else (NO_MODEL, "models")
        for bad in missing if subject else ():
            yield [verb, bad, *all_options], True, kind
        if verb in ("scan", "compare", "remedy"):
            for bad in states:
                yield [verb, bad, *([bad] if verb == "compare" else [])], True, "states"
        for number, (make, other_options) in enumerate(PLACES.values() if "out" in fields else ()):
            out = ground.folder / f"out-{verb}-{number}"
            out.mkdir()
            make(out)
            if not other_options or "resume" in fields:
                yield (
                    [verb, *subject, *all_options, f"--out={out.name}", *other_options],
                    True,
                    "folders",
                )
        for name, field in fields.items():
            kinds = list(members(field.type))
            other_options = [word for n, option in base.items() if n != name for word in option]
            if bool in kinds or name in ("out", "resume", "json") or name in command.arguments:
                continue
            must = True
            if name == "text":
                values = NO_TEXT
            elif literals(field.type) or (field.option.choices is not None and str not in kinds):
                values = NO_CHOICE
            elif int in kinds and str not in kinds and float not in kinds:
                values = NO_WHOLE_NUMBER
            elif float in kinds and str not in kinds:
                values = NO_NUMBER
            else:
                values = WORDS_OF_ANY_KIND
                must = False
            if any(typing.get_origin(kind) is Sequence for kind in kinds):
                values = [value for value in values if value != "1,2"]  # which are two numbers
            if verb == "evaluate" and name == "text":
                must = False  # a folder without sets: some tasks need none
            if values is NO_WHOLE_NUMBER and name != "steps":
                yield [verb, *subject, *other_options, f"{field.flag}={'9' * 18}"], False, "options"
            for bad in values:
                yield (
                    [verb, *subject, *other_options, f"{field.flag}={bad}"],
                    must,
                    "texts" if name == "text" else "options",
                )


def attack_by_table(
    first: int, last: int
) -> tuple[dict[str, int], list[tuple[list[str], str, str]]]:
    """Run these lines of the table; how many different ones of each kind there were, and what went
    wrong.
    """
    cwd = os.getcwd()
    faults = list[tuple[list[str], str, str]]()
    tried = dict[str, set[str]]()
    with tempfile.TemporaryDirectory() as folder:
        ground = Ground(Path(folder))
        os.chdir(folder)
        try:
            for arguments, must, kind in islice(table(ground), first, last):
                status, output, seconds = run(arguments)
                tried.setdefault(kind, set()).add("\0\0".join(arguments))
                fault = (
                    None
                    if kind == "folders" and status == 74
                    else faults_of(arguments, status, output)
                )
                fault = fault or ("accepted" if must and status == 0 else None)
                if fault is not None:
                    faults.append((arguments, fault, output[-1500:]))
                    print(
                        f"{fault} ({seconds:.0f} s): headscan "
                        f"{' '.join(arguments)[:300]!r}\n{output[-1500:]}",
                        flush=True,
                    )
        finally:
            os.chdir(cwd)
    return {kind: len(lines) for kind, lines in tried.items()}, faults


if __name__ == "__main__":
    counted, wrong = attack_by_table(*map(int, sys.argv[1:3] or (0, sys.maxsize)))
    kinds = ", ".join(f"{kind} {number:,}" for kind, number in sorted(counted.items()))
    print(
        f"{sum(counted.values()):,} different bad inputs ({kinds}), none of them drawn; "
        f"{len(wrong)} faults"
    )
    sys.exit(bool(wrong))
