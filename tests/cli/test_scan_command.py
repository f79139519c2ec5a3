"""The command as a new user would try it: right, wrong, interrupted, resumed, and under
torchrun.
"""

import io
import json
import os
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

from headscan.cli import main
from headscan.run.parts import Parts
from tests.command_line import typed
from tests.forked import exit_status, fork, status_of


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    """A random GPT-2 over bytes in a folder, as save_pretrained writes it."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("models") / "tiny-bytes"
    config = GPT2Config(
        vocab_size=256,
        n_positions=64,
        n_embd=16,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    GPT2LMHeadModel(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def text(tmp_path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(
        "Any sentence will do, as long as there are enough of them. <b>[red]Näh?[/red]</b>\n" * 40
    )
    return path


def run(*args: str, status: int = 0, program: tuple[str, ...] = ("scan",)) -> SimpleNamespace:
    """The command in this process: a process of its own takes seconds to start, and is taken where
    it matters.
    """
    out = io.StringIO()
    err = io.StringIO()
    argv = ["headscan", *program, *args]
    with mock.patch.object(sys, "argv", argv), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
            code = 0
        except SystemExit as leaving:
            code = leaving.code or 0
    assert code == status, err.getvalue()
    return SimpleNamespace(stdout=out.getvalue(), stderr=err.getvalue())


def test_a_table_a_page_and_files(model, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(model, "--tokenizer", "bytes", "--text", str(text), "--context", "32")
    assert "block.1" in done.stdout
    assert "average" in done.stdout.lower()
    folder = tmp_path / "headscan-results" / "scan-tiny-bytes-text"
    assert f"{folder.relative_to(tmp_path)}/report.html" in done.stdout
    assert sorted(p.name for p in folder.iterdir()) == [
        "arrays.safetensors",
        "report.html",
        "result.json",
    ]


def test_json_alone_on_standard_output(model, text, tmp_path):
    arguments = (
        model,
        "--tokenizer",
        "bytes",
        "--text",
        str(text),
        "--context",
        "32",
        "--out",
        str(tmp_path / "o"),
    )
    done = run(*arguments, "--json")
    document = json.loads(done.stdout)
    assert document == json.loads((tmp_path / "o" / "result.json").read_text())
    assert document["protocol"]["command"].startswith("headscan scan")


def test_standard_input_is_a_text(model, text, tmp_path, monkeypatch):
    arguments = (model, "--tokenizer", "bytes", "--context", "32", "--json")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.read_bytes())))
    piped = run(*arguments, "--null", "--text", "-", "--out", str(tmp_path / "o"))
    from_file = run(*arguments, "--text", str(text), "--out", str(tmp_path / "p"))
    mine = json.loads(piped.stdout)
    document = json.loads(from_file.stdout)
    assert mine["protocol"]["text"]["sha256"] == document["protocol"]["text"]["sha256"]
    assert [e["average_cosine"] for e in mine["sites"]] == [
        e["average_cosine"] for e in document["sites"]
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--text": "/no/such/file.txt"}, "/no/such/file.txt"),
        ({"--sites": "blok.*"}, "block.0"),
        ({"--context": "65"}, "64"),
        ({"--context": "0"}, "at least 1"),
        ({"--device": "cuda"}, "cuda")
        if not torch.cuda.is_available()
        else ({"--device": "cuda:99"}, "99"),
        ({"--out": "/dev/null/x"}, "cannot be written"),
        ({"--resume": None}, "nothing to resume"),
        ({"MODEL": "/no/such/model"}, "/no/such/model"),
        ({"MODEL": "someone/not-downloaded"}, "someone/not-downloaded"),
        ({"--tokenizer": "/no/tokenizer"}, "/no/tokenizer"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(model, text, tmp_path, change, message):
    options = {
        "MODEL": model,
        "--tokenizer": "bytes",
        "--text": str(text),
        "--context": "32",
        "--out": str(tmp_path / "o"),
    }
    options |= change
    command = [options.pop("MODEL")]
    for name, value in options.items():
        command += [name] if value is None else [name, value]
    done = run(*command, status=2)
    assert done.stdout == ""
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not (tmp_path / "o" / "result.json").exists()


def test_an_unknown_option_and_a_missing_one(model, text):
    assert "--txt" in run(model, "--txt", str(text), status=2).stderr
    assert "--text" in run(model, status=2).stderr
    assert "float13" in run(model, "--text", str(text), "--dtype", "float13", status=2).stderr


def test_every_option_is_documented(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    shown = run("--help").stdout
    for option in (
        "--text",
        "--context",
        "--max-tokens",
        "--sites",
        "--dtype",
        "--device",
        "--seed",
        "--resume",
        "--null",
    ):
        assert option in shown


def stopped(arguments: list[str], sign: signal.Signals) -> None:
    """`headscan`, but that it stores its state at every chance, and is sent a signal when it has
    stored it three times.
    """
    write = Parts.write
    times = []

    def written(*args, **named):
        write(*args, **named)
        times.append(1)
        if len(times) == 3:
            os.kill(os.getpid(), sign)

    Parts.FIRST = 0
    Parts.SHARE = 1e9
    Parts.write = written
    typed(*arguments)


def test_a_stopped_scan_continues_where_it_was(model, text, tmp_path):
    """Politely, and by Ctrl-C: each time it goes on, and what comes out in the end is that of a
    scan left in peace.
    """
    arguments = [
        "scan",
        model,
        "--tokenizer",
        "bytes",
        "--text",
        str(text),
        "--context",
        "64",
        "--batch",
        "2",
        "--json",
    ]
    folder = tmp_path / "o"
    resume = []
    printed = tmp_path / "said.txt"
    stored = folder / ".resume" / "parts.0.json"
    content = b""
    for sign in (signal.SIGTERM, signal.SIGINT):
        process = fork(partial(stopped, [*arguments, "--out", str(folder), *resume], sign), printed)
        assert status_of(process) == 130, printed.read_text()
        assert stored.read_bytes() != content
        content = stored.read_bytes()
        errors = printed.read_text()
        assert "interrupted" in errors
        assert "--resume" in errors
        assert "Traceback" not in errors
        assert not (folder / "result.json").exists()
        resume = ["--resume"]
    resumed = json.loads(run(*arguments[1:], "--out", str(folder), "--resume").stdout)
    uninterrupted = json.loads(run(*arguments[1:], "--out", str(tmp_path / "w")).stdout)
    assert resumed["sites"] == uninterrupted["sites"]


def launched(arguments: list[str], text: str, printed: Path) -> None:
    """`torchrun --standalone --nproc-per-node 2 -m headscan WORDS` by torchrun's own agent, its
    processes forks of this one.
    """
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # the processes share one standard input; multiprocessing closes theirs
    shared, write = os.pipe()
    os.write(write, text.encode())
    os.close(write)
    os.dup2(os.open(printed, os.O_WRONLY | os.O_CREAT), 1)

    def process() -> None:
        os.dup2(shared, 0)
        sys.stdin = open(0)  # noqa: SIM115 - it is open for as long as the process lives
        with pytest.raises(SystemExit) as leaving:
            typed(*arguments)
        sys.stdout.flush()
        assert exit_status(leaving.value) == 0

    local = {
        "rdzv_backend": "c10d",
        "rdzv_endpoint": "localhost:0",
        "run_id": "alone",
        "max_restarts": 0,
        "start_method": "fork",
    }
    elastic_launch(LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2, **local), process)()


def test_torchrun_gives_the_same_as_one_process(model, text, tmp_path):
    arguments = [model, "--tokenizer", "bytes", "--context", "32", "--batch", "3", "--json"]
    single = json.loads(run(*arguments, "--text", str(text), "--out", str(tmp_path / "one")).stdout)
    printed = tmp_path / "printed.json"
    errors = tmp_path / "said.txt"
    arguments = ["scan", *arguments, "--text", "-", "--out", str(tmp_path / "two")]
    assert status_of(fork(partial(launched, arguments, text.read_text(), printed), errors)) == 0, (
        errors.read_text()
    )
    double = json.loads(printed.read_text())
    assert double["protocol"]["processes"] == 2
    for single_row, two in zip(single["sites"], double["sites"], strict=True):
        for name, value in single_row.items():
            if name.startswith(
                "singular_values"
            ):  # as energies: the root of a rounding of zero is 1e-8, not 1e-16
                energies = [
                    [singular_value**2 for singular_value in values]
                    for values in (two[name], value)
                ]
                assert energies[0] == pytest.approx(energies[1], rel=0, abs=1e-14 * energies[1][0])
            else:
                numbers = value if isinstance(value, list) else [value]
                numeric = all(isinstance(number, int | float) for number in numbers)
                assert two[name] == (
                    pytest.approx(value, rel=1e-12, abs=1e-12) if numeric else value
                ), name
    assert single["pictures"] == double["pictures"]


def test_version_and_models():
    import headscan

    assert run("--version", program=()).stdout.strip() == f"headscan {headscan.__version__}"
    listed = json.loads(run("--json", program=("models",)).stdout)
    assert {entry["kind"] for entry in listed} <= {"example", "cached"}
