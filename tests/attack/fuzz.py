"""Command lines drawn from the verbs' own options: none may end in a traceback, hang, or have an
option ignored.

    python -m tests.attack.fuzz [COUNT] [SEED]

Every verb's options, their types, bounds and choices are read from its settings and registries, so
a new option is drawn without anybody naming it here. Values are right, at the edge, wrong, or
hostile. A line may end with 0, 2 (one sentence) or 130; a line that takes more than LIMIT seconds
of processor time, or none in IDLE looks LIMIT seconds apart, is a hang.
"""

import contextlib
import io
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import typing
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Literal
from unittest import mock

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from headscan.cli import BARE, command_of, main, verbs
from headscan.run import OptionField

VERBS = verbs()
LIMIT = 60
IDLE = 10
HOSTILE = [
    "",
    " ",
    "-",
    "--",
    "*",
    "../..",
    "\x00",
    "é\u202e",
    "x" * 5000,
    "0",
    "-1",
    "nan",
    "1e400",
    "[",
    "{}",
    "a,b,,c",
    "None",
]
WORDS = [
    "block.0",
    "block.*",
    "embedding",
    "final_norm",
    "head",
    "nonsense",
    "all",
    "auto",
    "whole",
    "lines",
    "bytes",
    "cpu",
]
# Where a right value would begin long work: what is drawn there instead.
SMALL = {
    "steps": ["1", "2"],
    "samples": ["2"],
    "max_tokens": ["64", "200"],
    "batch": ["1", "2"],
    "context": ["8", "16"],
    "windows": ["1"],
    "trials": ["1"],
    "candidates": ["4"],
    "budget": ["50"],
    "order": ["1", "2"],
    "train": ["0", "3"],
    "width": ["4"],
    "groups": ["0", "3"],
    "vocabulary": ["300"],
    "restarts": ["1", "2"],
    "limit": ["1"],
    "neighbours": ["1"],
    "seconds": ["2"],
    "accumulation": ["1"],
    "length": ["4"],
    "size": ["tiny"],
    "max_contexts": ["50"],
    "arms": ["ce", "ce,headless"],
    "cells": ["256/16"],
    "rates": ["1e-3"],
    "seeds": ["1", "2"],
    "processes": ["1"],
}
# What does not go with the prompt, or the model, that a right line has.
ALONE = {
    ("flow", "windows"),
    ("flow", "text"),
    ("channel", "windows"),
    ("channel", "text"),
    ("train", "tokenizer"),
}
# Options that bound the work: they are always drawn.
BOUND = (
    "steps",
    "max_tokens",
    "context",
    "windows",
    "limit",
    "seconds",
    "batch",
    "arms",
    "cells",
    "rates",
    "seeds",
    "processes",
)


class Hang(BaseException):
    """A line that does not end."""


class Ground:
    """A folder with a tiny model, texts, broken models and broken texts."""

    def __init__(self, folder: Path) -> None:
        import torch
        from transformers import GPT2Config, GPT2LMHeadModel

        self.folder = folder
        torch.manual_seed(0)
        config = GPT2Config(
            vocab_size=256,
            n_positions=32,
            n_embd=8,
            n_layer=2,
            n_head=2,
            bos_token_id=0,
            eos_token_id=0,
        )
        GPT2LMHeadModel(config).save_pretrained(folder / "tiny")
        shutil.copytree(folder / "tiny", folder / "broken")
        (folder / "broken" / "model.safetensors").write_bytes(b"no weights")
        (folder / "text.txt").write_text(
            "Once upon a time there was a line.\n\nAnd then another one, longer.\n" * 12
        )
        (folder / "empty.txt").write_text("")
        (folder / "bytes.txt").write_bytes(bytes(range(256)))
        (folder / "rows.jsonl").write_text('{"text": "one"}\n{"other": 3}\nno json\n')
        self.models = ["tiny", "tiny", "tiny", "broken", "missing", "text.txt", *HOSTILE[:6]]
        self.texts = [
            "text.txt",
            "text.txt",
            "text.txt",
            "empty.txt",
            "bytes.txt",
            "rows.jsonl",
            "missing.txt",
            *HOSTILE[:6],
        ]


def members(kind: Any) -> Iterator[Any]:
    if typing.get_origin(kind) in (typing.Union, UnionType):
        for get_arg in typing.get_args(kind):
            yield from members(get_arg)
    else:
        yield kind


def literals(kind: Any) -> list[str]:
    """The words of a Literal, or of the Literals in a union."""
    values = [
        word
        for member in members(kind)
        if typing.get_origin(member) is Literal
        for word in typing.get_args(member)
    ]
    return [str(word) for word in values]


def value_of(field: OptionField, ground: Ground, draw: random.Random) -> list[str]:
    """The words of one option: its flag and, unless it is one, a value."""
    kinds = list(members(field.type))
    if bool in kinds:
        return [field.flag]
    if field.name in ("text", "texts"):
        return [field.flag, draw.choice(ground.texts)]
    if draw.random() < 0.12:
        return [field.flag, draw.choice(HOSTILE)]
    literal = literals(field.type)
    if literal:
        return [field.flag, draw.choice([*literal, *literal, "nonsense"])]
    choices = field.option.choices
    if choices is not None:
        return [
            field.flag,
            draw.choice([*map(str, typing.cast("Any", choices)), "nonsense", "all", "auto"]),
        ]
    if field.name in SMALL and draw.random() < 0.8:
        return [field.flag, draw.choice(SMALL[field.name])]
    if int in kinds and str not in kinds:
        return [field.flag, draw.choice(["0", "1", "2", "-1", "1.5", "x", *_edges(field)])]
    if float in kinds and str not in kinds:
        return [
            field.flag,
            draw.choice(["0", "0.5", "1", "-0.5", "nan", "inf", "-inf", "1e-30", *_edges(field)]),
        ]
    return [field.flag, draw.choice([*WORDS, *ground.texts[:5], "1", "2"])]


def _edges(field: OptionField) -> list[str]:
    rules = field.option
    return [f"{bound:g}" for bound in (rules.low, rules.high, rules.above) if bound is not None]


def parameters(verb: str) -> tuple[Any, dict[str, OptionField], dict[str, Any]]:
    """A verb's command, its options, and the registries among them."""
    if verb in BARE:
        return None, {}, {}
    command = command_of(verb)
    fields = {
        field.name: field for field in command.verb().verb.options() if not field.option.python
    }
    registries = {
        n: f.option.choices for n, f in fields.items() if hasattr(f.option.choices, "parameters")
    }
    return command, fields, registries


# Right values of options that take any text; of the others none is drawn where a line is to be
# right.
RIGHT = {
    "text": "text.txt",
    "prompt": "Once upon",
    "tokenizer": "bytes",
    "sites": "block.*",
    "at": "block.0",
    "device": "cpu",
    "measures": "drift",
    "cuts": "whole",
    "noise": "0.1",
    "memory": "64MiB",
    "token": "e",
    "against": "x",
    "continuation": "ab",
    "tasks": "lambada",
    "vocabulary": "abc",
    "parts": "0,1",
}


def right_value(field: OptionField, draw: random.Random) -> list[str]:
    """The words of an option with a value that may be; none where nobody knows one."""
    kinds = list(members(field.type))
    named = RIGHT.get(field.name)
    if bool in kinds:
        return [field.flag]
    if field.name in SMALL:
        return [field.flag, draw.choice(SMALL[field.name])]
    if literals(field.type):
        return [field.flag, draw.choice(literals(field.type))]
    if field.option.choices is not None:
        return [field.flag, draw.choice(list(map(str, typing.cast("Any", field.option.choices))))]
    if named is not None:
        return [field.flag, named]
    if str not in kinds and (int in kinds or float in kinds):
        return [
            field.flag,
            draw.choice([value for value in ("1", "2", *_edges(field)) if value != "0"]),
        ]
    return []


def own_parameters(
    registry: Any, item: str, ground: Ground, draw: random.Random, *, right: bool
) -> str:
    """Parameters of the item of a registry, or of any other one, as they are written behind its
    name.
    """
    known = registry.parameters()
    fields = (
        known.get(item, []) if right else [field for group in known.values() for field in group]
    )
    written = []
    for field in fields:
        if draw.random() < (0.3 if right else 1.0 / len(fields)):
            written_value = (right_value(field, draw) if right else value_of(field, ground, draw))[
                1:
            ] or ["true"]
            written.append(f"{field.name}={written_value[0]}")
    return ":" + ",".join(written) if written else ""


def line(verb: str, ground: Ground, draw: random.Random) -> list[str]:
    """One command line: every second one made to be right, the others with values of any kind."""
    command, fields, registries = parameters(verb)
    arguments = [verb]
    right = draw.random() < 0.5
    if command is None:
        return [*arguments, *draw.sample(["--json", "x", "--nonsense"], draw.randint(0, 2))]
    if command.subject:
        several = draw.randint(1, 2) if command.subject.endswith("...") and not right else 1
        source = ground.texts if command.subject.startswith("TEXT") else ground.models
        if command.subject.startswith("RECIPE"):
            source = ["gpt", "bert", "mixer", "nonsense"]
        arguments += [source[0] if right else draw.choice(source) for _ in range(several)]
    options: list[str] = []
    for name, field in fields.items():
        if right and (verb, name) in ALONE:
            continue
        needed = (
            field.required or name in ("prompt", "tokenizer") or (name in SMALL and name in BOUND)
        )
        if name in command.arguments:
            arguments += (
                [draw.choice(["P4", "S3", "x", "9999", "P4-P9"])] if verb == "reproduce" else []
            )
        elif name in ("out", "resume"):
            if draw.random() < 0.05:
                options += (
                    ["--out", draw.choice(["/dev/null/x", "text.txt", ""])]
                    if name == "out"
                    else ["--resume"]
                )
        elif needed or draw.random() < (1.5 if right else 2.0) / len(fields):
            option = right_value(field, draw) if right else value_of(field, ground, draw)
            options += option
            if name in registries and len(option) == 2:
                options[-1] += own_parameters(
                    registries[name], option[1], ground, draw, right=right
                )
    if not right and draw.random() < 0.1:
        options += draw.choice([["--nosuch"], ["--seed"], ["--json"], ["-x", "1"]])
    return arguments + options


def run(arguments: list[str]) -> tuple[int, str, float]:
    """Exit status, standard error and seconds of a line, in this process."""

    spent = time.process_time()
    idle = 0

    def stop(*_: object) -> None:
        raise Hang

    def look(*_: object) -> None:  # by the clock alone a machine that stands still would be a hang
        nonlocal spent, idle
        spent_before = spent
        spent = time.process_time()
        idle = idle + 1 if spent - spent_before < 0.1 else 0
        if idle == IDLE:
            raise Hang
        signal.alarm(LIMIT)

    out = io.StringIO()
    err = io.StringIO()
    began = time.monotonic()
    signal.signal(signal.SIGPROF, stop)
    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    signal.alarm(LIMIT)
    with (
        mock.patch.object(sys, "argv", ["headscan", *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            status = 0
        except SystemExit as leaving:
            status = (
                leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
            )
        except Hang:
            status = 124
        except BaseException:
            status = 1
            traceback.print_exc(file=err)
        finally:
            signal.alarm(0)
            signal.setitimer(signal.ITIMER_PROF, 0)
    return status, err.getvalue(), time.monotonic() - began


def faults_of(arguments: list[str], status: int, output: str) -> str | None:
    """Return what is wrong with how a line ended, if anything."""
    if status == 124:
        return "hangs"
    if status not in (0, 2, 130):
        return f"exit {status}"
    if "Traceback" in output:
        return "a traceback"
    if status == 2 and not any(line.strip() for line in output.splitlines()):
        return "exit 2 without a sentence"
    return None


def attack(
    count: int, seed: int, verbs: list[str] | None = None
) -> list[tuple[list[str], str, str]]:
    """Run so many lines; what went wrong, as (words, fault, end of standard error)."""
    draw = random.Random(seed)
    faults = []
    cwd = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        ground = Ground(Path(folder))
        os.chdir(folder)
        try:
            names = verbs or list(VERBS)
            for number in range(count):
                verb = names[number % len(names)]
                arguments = line(verb, ground, draw)
                status, output, seconds = run(arguments)
                fault = faults_of(arguments, status, output)
                if fault is not None:
                    faults.append((arguments, fault, output[-1500:]))
                    print(
                        f"{number}: {fault} ({seconds:.0f} s): headscan "
                        f"{' '.join(arguments)!r}\n{output[-1500:]}",
                        flush=True,
                    )
                elif number % 100 == 99:
                    print(f"{number + 1} lines, {len(faults)} faults", flush=True)
        finally:
            os.chdir(cwd)
    return faults


if __name__ == "__main__":
    lines = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    faults = attack(lines, seed, sys.argv[3:] or None)
    print(f"{lines} command lines, {len(faults)} faults")
    sys.exit(bool(faults))
