"""`headscan train`, as it is typed."""

import json

import pytest

import headscan
from headscan.cli import _check_text
from tests.command_line import headscan as cli
from tests.forked import together

TINY = [
    "--steps",
    "4",
    "--batch",
    "4",
    "--context",
    "16",
    "--vocabulary",
    "300",
    "--geometry-every",
    "0",
]


def _story(tmp_path):
    path = tmp_path / "story.txt"
    path.write_text("the cat sat on the mat and the dog sat on the log. " * 120)
    return path


def _run(*args):
    return cli(*map(str, args))


def test_trains_recovers_and_prints_json_alone(tmp_path):
    out = tmp_path / "out"
    ended = _run(
        "train",
        "gpt",
        "--text",
        _story(tmp_path),
        "--out",
        out,
        "--json",
        "--objective",
        "cwt:temperature=2",
        *TINY,
    )
    assert ended.status == 0, ended.output
    document = json.loads(ended.stdout)
    assert document == json.loads((out / "result.json").read_text())
    assert document["kind"] == "train"
    assert document["steps"] == 4
    assert document["objective"]["parameters"]["temperature"] == 2
    assert (out / "report.html").exists()
    options = [*TINY[2:], "--objective", "cwt:temperature=2", "--steps", "6", "--resume"]
    again = _run("train", "gpt", "--text", _story(tmp_path), "--out", out, *options)
    assert again.status == 0, again.output
    assert json.loads((out / "result.json").read_text())["steps"] == 6
    recovered = _run(
        "recover",
        out,
        "--text",
        _story(tmp_path),
        "--out",
        tmp_path / "whole",
        "--temperature",
        "2",
    )
    assert recovered.status == 0, recovered.output
    assert (tmp_path / "whole" / "model" / "model.safetensors").exists()
    assert "held out (bias)" in recovered.stdout
    (tmp_path / "sets").mkdir()
    tried = _run(
        "evaluate",
        tmp_path / "whole" / "model",
        "--text",
        tmp_path / "sets",
        "--out",
        tmp_path / "tried",
    )
    assert tried.status == 0, tried.output
    assert "synonyms" in tried.stdout


def test_evaluation_sets_are_no_text(tmp_path):
    (tmp_path / "pud.json").write_text("[]")
    # what `main` looks at before anything heavy is imported
    _check_text(["evaluate", "model", "--text", str(tmp_path)])
    with pytest.raises(headscan.BadInput, match="holds no text"):
        _check_text(["train", "gpt", "--text", str(tmp_path)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "gpt", "--objective", "magic"], "There is no objective 'magic'"),
        (["train", "gru"], "There is no recipe 'gru'"),
        (
            ["train", "gpt", "--objective", "ce:temperature=2"],
            "temperature is not a parameter of the objective ce",
        ),
        (
            ["recover", "gpt-headless", "--mode", "bias:steps=9"],
            "steps is not a parameter of the head recovery bias",
        ),
        (["recover", "gpt-headless", "--mode", "probe:rate=nan"], "rate must be a finite number"),
        (["evaluate", "gpt-vanilla", "--tasks", "magic"], "There is no task 'magic'"),
    ],
)
def test_bad_input(arguments, message, tmp_path):
    ended = _run(*arguments, "--text", _story(tmp_path), "--out", tmp_path / "o")
    assert ended.status == 2
    assert message in ended.stderr


def test_what_belongs_to_another_verb_is_no_option(tmp_path):
    for verb, option in (("train", "--model"), ("evaluate", "--objective"), ("recover", "--tasks")):
        ended = _run(verb, "x", "--text", _story(tmp_path), option, "y")
        assert ended.status == 2
        assert "Unknown option" in ended.stderr


def test_two_processes_train_the_model_of_one(tmp_path):
    """Data-parallel, negatives from both processes: the same windows a step, the same loss, the
    same weights.
    """
    import torch
    from accelerate.state import AcceleratorState
    from safetensors.torch import load_file

    text = _story(tmp_path)
    options = {
        "steps": 3,
        "context": 16,
        "vocabulary": 300,
        "geometry_every": 0,
        "trainer": {"logging_steps": 1, "save_strategy": "no"},
        "pool": "all",
    }
    headscan.train("gpt", str(text), out=tmp_path / "one", batch=8, **options)

    def job():
        # as in a process that has trained nothing yet
        AcceleratorState._reset_state(reset_partial_state=True)
        headscan.train("gpt", str(text), out=tmp_path / "two", batch=4, **options)

    printed = tmp_path / "said"
    assert together(job, 2, printed) == [0, 0], [
        (tmp_path / f"said.{rank}").read_text()[-2000:] for rank in (0, 1)
    ]
    single, two = (
        json.loads((tmp_path / name / "result.json").read_text()) for name in ("one", "two")
    )
    assert two["protocol"]["processes"] == 2
    assert two["tokens"] == single["tokens"]
    for first, second in zip(single["curve"], two["curve"], strict=True):
        for key in ("loss", "floor_corrected_loss", "in_batch_accuracy"):
            assert second[key] == pytest.approx(first[key], abs=1e-4)
    a, b = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("one", "two"))
    assert max(float((a[name] - b[name]).abs().max()) for name in a) < 2e-4
    assert torch.isfinite(next(iter(a.values()))).all()
