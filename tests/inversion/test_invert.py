"""The façade: verdicts, certificates, bad input, saved results, the command."""

import json
from functools import partial

import numpy as np
import pytest
import torch

import headscan
from headscan.inversion import Direct, Exact, Indirect, InvertResult, Joint, JointSearch, invert
from headscan.model import ByteTokenizer
from headscan.model.slicing import Slice
from headscan.run import BadInput
from tests.command_line import headscan as cli
from tests.inversion.conftest import build

QUICK = JointSearch(restarts=2, steps=40)


@pytest.fixture(scope="module")
def bytes_model():
    lens = build("gpt2", vocabulary=256, width=32, depth=1)
    lens.tokenizer = ByteTokenizer()
    return lens


def test_recovered_and_unique(bytes_model):
    result = invert(bytes_model, "The sky is blue.")
    assert result.verdict == "recovered and unique"
    [entry] = result.prompts
    assert entry.recovered == entry.tokens == list(b"The sky is blue.")
    assert result.token_accuracy == 1
    assert entry.certificate.residual < 1e-6 < 0.05 < entry.certificate.margin
    assert len(entry.certificate.equivalent) == 16
    assert entry.evaluations >= 16
    assert result.document["slice"]["sites"] == ["block.0"]


def test_recovered_not_unique_where_embedding_rows_are_equal():
    lens = build("gpt2", seed=1)
    lens.model.transformer.wte.weight.data[9] = lens.model.transformer.wte.weight.data[4]
    entry = invert(lens, torch.tensor([3, 9, 8])).prompts[0]
    assert entry.verdict == "ambiguous"
    assert entry.verdicts == ["recovered and unique", "ambiguous", "recovered and unique"]
    assert any("share their embedding row" in note for note in entry.notes)


def test_information_absent_where_no_output_moves(gpt2, ids):
    entry = invert(gpt2, ids[0], at="block.0[:, :3, :]").prompts[0]
    assert entry.verdict == "information absent"
    assert entry.certificate.unseen == [False] * 3 + [True] * 3
    assert entry.verdicts == ["recovered and unique"] * 3 + ["information absent"] * 3
    assert entry.recovered[:3] == ids[0, :3].tolist()


def test_a_search_that_ends_at_its_budget_says_so(gpt2, ids):
    result = invert(gpt2, ids[0], method=Exact(order="random", budget=4, backtracks=0))
    assert result.verdict == "not recovered"
    assert (
        "the search stopped at its budget, 4 of 120 tokens at position 0"
        in result.prompts[0].certified
    )
    assert "guess" in result.prompts[0].certified


def test_a_failed_descent_is_told_from_absent_information(gpt2, ids):
    assert invert(gpt2, ids, method=Direct(preset="seed")).verdict == "not recovered"
    assert invert(gpt2, ids).verdict == "recovered and unique"


def test_hidden_tokens_first_outputs_missing(gpt2, llama, ids):
    for lens in (gpt2, llama):
        entry = invert(lens, ids[0], at="block.1[:, 1:, :]", method=Exact(hidden=QUICK)).prompts[0]
        assert entry.recovered == ids[0].tolist()
        assert entry.verdict == "recovered, unique among those tried"


def test_a_result_survives_the_disk_and_draws_itself(bytes_model, tmp_path):
    result = invert(bytes_model, ["<script>", "é ~"], out=tmp_path)
    again = headscan.load(tmp_path)
    assert isinstance(again, InvertResult)
    assert again.document == result.document
    page = (tmp_path / "report.html").read_text()
    assert "&lt;" in page
    assert "<code>&lt;</code>" in page or "&lt;</code>" in page
    assert len(result.frame()) == 8 + 4
    assert result.plot().data
    from rich.console import Console

    console = Console(record=True, width=100)
    console.print(result.table())
    assert "recovered and unique" in console.export_text()


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ("", {}, "empty"),
        ("x" * 40, {}, "takes at most 32"),
        ("ab", {"at": Slice(pool="mean"), "method": "exact"}, "carries no position"),
        ("ab", {"given": "next-token", "method": "exact"}, "carries no position"),
        ("ab", {"vocabulary": "bcd"}, "lacks a token of the prompt: 'a'"),
        ("ab", {"vocabulary": ""}, "empty"),
        ("ab", {"method": "magic"}, "no method 'magic'"),
        ("ab", {"given": "magic"}, "no given 'magic'"),
        ("ab", {"at": "block.7"}, "No site"),
        ("ab", {"at": "block.0[5:]"}, "no part of an output"),
        ("ab", {"tolerance": float("inf")}, "--tolerance must be a finite number"),
        ("ab", {"tolerance": 0.0}, "--tolerance must be greater than 0"),
        (
            "ab",
            {"given": "next-token", "at": "block.3"},
            "--at is not used by the given next-token; it belongs to states",
        ),
        ("ab", {"at": "block.0 only=all"}, "is one of attention, mlp"),
        ("ab", {"at": "block.0 colour=blue"}, "has no attribute 'colour'"),
        ("ab", {"at": "block.0 residual=0"}, "is true or false"),
        ("ab", {"out": "/dev/null/x"}, "cannot be written"),
    ],
)
def test_bad_input_is_one_sentence(bytes_model, prompt, options, message):
    with pytest.raises(BadInput, match=message):
        invert(bytes_model, prompt, **options)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (Exact, {"budget": 0}),
        (Exact, {"neighbours": -1}),
        (Joint, {"budget": 0}),
        (Joint, {"restarts": 0}),
        (Joint, {"steps": 0}),
        (Indirect, {"steps": 0}),
    ],
)
def test_bad_searches_are_refused(method, options):
    with pytest.raises(BadInput, match=f"{next(iter(options))} must be at least"):
        method(**options)


def test_the_command(assets, tmp_path):
    arguments = [
        "invert",
        str(assets / "models/stories260K"),
        "--prompt",
        "Once upon a time",
        "--at",
        "block.2",
    ]
    done = cli(*arguments, "--out", str(tmp_path), "--json")
    assert done.status == 0
    document = json.loads(done.stdout)
    assert document == json.loads((tmp_path / "result.json").read_text())
    assert document["kind"] == "invert"
    assert document["token_accuracy"] == 1
    assert (tmp_path / "report.html").is_file()
    options = ["--method", "indirect:init=zeros,steps=150"]
    done = cli(*arguments, *options, "--out", str(tmp_path), "--json", "--overwrite")
    assert done.status == 0
    assert json.loads(done.stdout)["parameters"]["init"] == "zeros"
    wrong = cli(*arguments, "--method", "exact:preset=seed")
    assert wrong.status == 2
    bad = cli("invert", str(assets / "models/stories260K"), "--prompt", "")
    assert bad.status != 0


@pytest.mark.parametrize("at", ["embedding", "block.0"])
def test_what_is_no_number_certifies_nothing(at, monkeypatch):
    # a hundredth of the evaluations that "auto" takes
    monkeypatch.setattr("headscan.inversion.methods.Joint", partial(Joint, budget=2000))
    lens = build("gpt2", seed=4)
    lens.model.transformer.wte.weight.data[7] = float("nan")
    for method in ("auto", Joint(restarts=1, steps=2, budget=500)):
        result = invert(lens, [3, 7, 9], at=at, method=method)
        assert result.verdict == "not recovered"
        assert result.prompts[0].certificate.residual is None


def test_an_interrupted_inversion_goes_on(bytes_model, tmp_path, monkeypatch):
    """Sixteen prompts are kept together; what was found before the interruption is not searched
    again.
    """
    from headscan.inversion import methods as exact

    texts = [f"{number:2d}" for number in range(20)]
    uninterrupted = invert(bytes_model, texts)
    real = exact.exact
    counts = []

    def broken(cut, targets, *args, **options):
        counts.append(len(targets))
        if len(counts) == 2:
            raise KeyboardInterrupt
        return real(cut, targets, *args, **options)

    monkeypatch.setattr(exact, "exact", broken)
    with pytest.raises(KeyboardInterrupt):
        invert(bytes_model, texts, out=tmp_path)
    with pytest.raises(BadInput, match="prompts was"):
        invert(bytes_model, texts[:-1], out=tmp_path, resume=True)
    with pytest.raises(BadInput, match="method was"):
        invert(bytes_model, texts, out=tmp_path, resume=True, method=Exact(budget=5))
    result = invert(bytes_model, texts, out=tmp_path, resume=True)
    assert counts == [16, 4, 4]
    assert result.prompts == uninterrupted.prompts


@pytest.mark.parametrize(
    "prompt", [[5, 6], [[5, 6]], np.array([5, 6]), torch.tensor([[5, 6]]), np.array([[5, 6]])]
)
def test_ids_come_in_any_form(gpt2, prompt):
    assert [prompt.recovered for prompt in invert(gpt2, prompt).prompts] == [[5, 6]]
    assert len(invert(gpt2, [[5, 6], [7, 8, 9]]).prompts) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--given", "next-token", "--at", "block.3"], "--at is not used by the given next-token"),
        (
            ["--method", "direct:order=random"],
            "order is not a parameter of the method direct; it belongs to exact",
        ),
        (["--method", "exact:steps=5"], "steps is not a parameter of the method exact"),
        (
            ["--method", "auto:preset=seed"],
            "preset is not a parameter of the method auto; it belongs to direct, indirect",
        ),
        (["--out", "/dev/null/x"], "cannot be written"),
        (["--tolerance", "nan"], "--tolerance must be a finite number"),
        (["--given", "gradient"], "no given 'gradient'"),
    ],
)
def test_what_is_not_used_is_refused_by_name(assets, options, message):
    arguments = ["invert", str(assets / "models/stories260K"), "--prompt", "Once upon", *options]
    done = cli(*arguments)
    assert done.status == 2
    assert message in done.stderr
