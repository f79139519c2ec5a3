"""`headscan train`, as it is typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

import headscan.training
from headscan import BadInput
from headscan.cli.train import train

TINY = ["--steps", "4", "--batch", "4", "--context", "16", "--vocabulary", "300", "--geometry-every", "0"]


@pytest.fixture
def run():
    app = typer.Typer()
    app.command()(train)
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


def _story(tmp_path):
    path = tmp_path / "story.txt"
    path.write_text("the cat sat on the mat and the dog sat on the log. " * 120)
    return path


def test_trains_and_prints_json_alone(run, tmp_path):
    out = tmp_path / "out"
    found = run("gpt", "--text", _story(tmp_path), "--out", out, "--json", *TINY)
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    assert document == json.loads((out / "result.json").read_text())
    assert document["kind"] == "train"
    assert document["steps"] == 4
    assert (out / "report.html").exists()
    again = run("gpt", "--text", _story(tmp_path), "--out", out, "--resume", *TINY[2:], "--steps", "6")
    assert again.exit_code == 0, again.output
    assert json.loads((out / "result.json").read_text())["steps"] == 6
    recovered = run("recover", "--model", out / "model", "--text", _story(tmp_path), "--out", tmp_path / "whole")
    assert recovered.exit_code == 0, recovered.output
    assert (tmp_path / "whole" / "model" / "model.safetensors").exists()
    assert "held out (bias)" in recovered.stdout


def test_bad_input(run, tmp_path):
    found = run("gpt", "--text", _story(tmp_path), "--out", tmp_path / "o", "--objective", "magic")
    assert isinstance(found.exception, BadInput)
    found = run("recover", "--text", _story(tmp_path), "--out", tmp_path / "o")
    assert isinstance(found.exception, BadInput)
    assert "--model" in str(found.exception)


def test_two_processes_train_the_model_of_one(tmp_path):
    """Data-parallel, negatives from both processes: the same windows a step, the same loss, the same weights."""
    import torch
    from safetensors.torch import load_file

    text = _story(tmp_path)
    options = {
        "steps": 3,
        "context": 16,
        "vocabulary": 300,
        "geometry_every": 0,
        "save_every": 0,
        "log_every": 1,
        "pool": "all",
    }
    headscan.training.train("gpt", str(text), tmp_path / "one", batch=8, **options)
    script = tmp_path / "job.py"
    script.write_text(
        "import torch; torch.set_num_threads(1)\n"
        "from headscan.training import train\n"
        f"train('gpt', {str(text)!r}, {str(tmp_path / 'two')!r}, batch=4, **{options!r})\n"
    )
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone", str(script)]
    done = subprocess.run(launch, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-2000:]
    one, two = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("one", "two"))
    assert two["protocol"]["processes"] == 2
    assert two["tokens"] == one["tokens"]
    for first, second in zip(one["curve"], two["curve"], strict=True):
        for key in ("loss", "floor_corrected_loss", "in_batch_accuracy"):
            assert second[key] == pytest.approx(first[key], abs=1e-4)
    a, b = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("one", "two"))
    assert max(float((a[name] - b[name]).abs().max()) for name in a) < 2e-4
    assert torch.isfinite(next(iter(a.values()))).all()
