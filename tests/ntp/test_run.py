import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

import headscan
import headscan.ntp as ntp
from headscan.model import specimen_path
from headscan.ntp.contexts import observe, observe_in_text
from headscan.run.errors import BadInput
from headscan.text.counts import count
from headscan.text.source import Counting
from headscan.text.token_store import store_tokens
from headscan.training import fit_tokenizer
from tests import command_line
from tests.reference.ntp import entropy

TEXT = [
    "the cat sat. the cat ran. the dog ran. the dog sat. " * 3,
    "a cat and a dog sat. the sun rose. " * 3,
]


def tiny(vocabulary: int, seed: int = 0, name: str = "tiny"):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    from headscan.model import ByteTokenizer, Lens

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=vocabulary,
                n_positions=32,
                n_embd=16,
                n_layer=1,
                n_head=2,
                bos_token_id=0,
                eos_token_id=0,
            )
        )
    return Lens(model.eval(), ByteTokenizer(), name=name)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ntp")
    return headscan.ntp.run(TEXT, order=2, tokenizer="bytes", out=folder), folder


def test_the_contract(result):
    found, folder = result
    document = json.loads((folder / "result.json").read_text())
    for field in (
        "tokens",
        "order",
        "contexts",
        "supports",
        "entropy_bound",
        "single_successor_share",
    ):
        assert document[field] == found.document[field]
    grams = [(t[i : i + 2], t[i + 2]) for t in TEXT for i in range(len(t) - 2)]
    contexts = sorted({c for c, _ in grams})
    letters = sorted({z for _, z in grams})
    table = np.zeros((len(contexts), len(letters)))
    for c, z in grams:
        table[contexts.index(c), letters.index(z)] += 1
    assert document["tokens"] == len(grams)
    assert document["contexts"] == len(contexts)
    assert document["supports"] == len({tuple(row > 0) for row in table})
    assert document["entropy_bound"] == pytest.approx(entropy(table))
    # of two documents
    assert "20 stretches of text, as if these were independent" in document["protocol"]["notes"][0]
    assert document["single_successor_share"] == pytest.approx(((table > 0).sum(1) == 1).mean())
    assert document["solution"]["converged"]
    assert {path.name for path in (folder / "counts").iterdir()} == {
        "contexts.parquet",
        "counts.safetensors",
    }


def test_saved_and_shown(result):
    found, folder = result
    again = headscan.load(folder)
    assert isinstance(again, ntp.NtpResult)
    assert again.document == found.document
    assert again.arrays.keys() == found.arrays.keys()
    page = (folder / "report.html").read_text()
    assert "http://" not in page.split("plotly")[0].replace("http://www.w3.org", "")
    for words in ("geometry that the text predicts", "entropy bound", "Words on the axes"):
        assert words in page
    ids = re.findall(r' id="([^"]+)"', page.split('<script type="application/json"')[0])
    assert len(ids) == len(set(ids))
    assert "data" not in ids  # the payload's own
    assert len(found.frame()) == 1
    assert "entropy bound" in found.page()
    for what in ("words", "spectrum", "heat"):
        assert found.plot(what).data
    with pytest.raises(BadInput, match="no figure"):
        found.plot("horoscope")


def test_models_are_held_against_it(tmp_path, monkeypatch):
    lenses = [tiny(300, seed, f"seed {seed}") for seed in (0, 1)]
    for reading in ("text", "alone"):
        found = headscan.ntp.run(
            TEXT,
            order=2,
            tokenizer="bytes",
            model=lenses,
            reading=reading,
            groups=0,
            out=tmp_path / reading,
        )
        assert (
            [m.name for m in found.models]
            == [m.name for m in found.comparisons]
            == ["seed 0", "seed 1"]
        )
        for model in found.comparisons:
            assert model.metrics.SC6 > 1  # nothing was learned
            assert abs(model.metrics.direction) < 0.5
            assert model.reading == reading
        assert len(found.frame()) == 3
        assert "seed 1" in found.page()
        assert "Subspace collapse" in found.page()
        for what in ("heat", "heat-1", "heat-2"):
            assert found.plot(what).data
    monkeypatch.setattr("headscan.ntp.contexts._CONTEXTS", 20)
    limited = headscan.ntp.run(
        TEXT, order=2, tokenizer="bytes", model=lenses[0], reading="text", groups=0
    )
    assert 20 == limited.comparisons[0].compared_contexts < limited.contexts


def test_observing_equals_running_the_model(monkeypatch):
    import torch

    lens = tiny(50)
    tokens = np.random.default_rng(0).integers(0, 9, 120)
    counts = count([tokens[:70], tokens[70:]], 9, Counting(order=2))
    found, notes = observe(lens, counts.contexts, 9, before=[7])
    assert any("beyond the tokenizer" in note for note in notes)
    logits = lens.model(torch.tensor([[7, *counts.contexts[3].tolist()]])).logits[0, -1, :9]
    assert np.allclose(found.logits()[3], logits.detach().numpy(), atol=1e-5)
    # In the text: the mean over occurrences, documents and windows kept apart.
    monkeypatch.setattr("headscan.ntp.contexts._WINDOW", 16)
    found, rows, _ = observe_in_text(
        lens, store_tokens([tokens[:70], tokens[70:]], 9), counts, before=[7]
    )
    sums = {}
    times = {}
    for document in (tokens[:70], tokens[70:]):
        for first in range(0, len(document), 16):
            piece = document[first : min(first + 16, len(document) - 1)]
            if len(piece) < 2:
                continue
            out = (
                lens.model(torch.tensor([[7, *piece.tolist()]])).logits[0, 1:, :9].detach().numpy()
            )
            for i in range(1, len(piece)):
                key = (int(piece[i - 1]), int(piece[i]))
                sums[key] = sums.get(key, 0) + out[i]
                times[key] = times.get(key, 0) + 1
    assert {tuple(counts.contexts[row].tolist()) for row in rows} == set(times)
    for at, row in enumerate(rows):
        key = tuple(counts.contexts[row].tolist())
        assert np.allclose(found.logits()[at], sums[key] / times[key], atol=1e-4)


def test_a_solution_over_the_budget_is_told_and_replaced():
    found = headscan.ntp.run(TEXT, order=2, tokenizer="bytes", budget=1e-9, groups=0)
    assert found.solution is None
    assert "was not computed: one iteration takes about" in found.notes[0]
    assert "proxy" in found.page()
    assert found.cost.seconds > 0
    assert found.protocol.notes == ["No bootstrap: there are no groups to draw."]


def test_the_package_is_called_like_its_verb():
    assert headscan.ntp is ntp
    assert callable(ntp)
    assert callable(ntp.run)
    with pytest.raises(TypeError, match="has no option"):
        ntp.run(TEXT, order=1, tokenizer="bytes", nosuchoption=3)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ([""], {"order": 1, "tokenizer": "bytes"}, "no tokens"),
        (["ab"], {"order": 2, "tokenizer": "bytes"}, "No document is longer than the order 2"),
        (["abc"], {"order": 0, "tokenizer": "bytes"}, "--order must be at least 1"),
        (["abc"], {"order": 1}, "Name a tokenizer"),
        (["abc"], {"order": 1, "tokenizer": "bytes", "reading": "upside down"}, "upside down"),
        (
            ["abc"],
            {"order": 1, "tokenizer": "bytes", "engine": "x"},
            "--engine must be here or spark",
        ),
        (["abc"], {"order": 1, "tokenizer": "bytes", "gap": 1.0}, "--gap must be less than 1"),
        (
            ["abc"],
            {"order": 1, "tokenizer": "bytes", "gap": float("nan")},
            "--gap must be a finite number",
        ),
        (
            ["abc"],
            {"order": 1, "tokenizer": "bytes", "reading": "alone"},
            "--reading is not used without --model",
        ),
        (["abc"], {"order": 1, "tokenizer": "bytes", "engine": "spark"}, "URL of a master"),
        (["abc"], {"order": 1, "tokenizer": "bytes", "master": "local[2]"}, "--master is not used"),
        (["abc"], {"order": 1, "tokenizer": "bytes", "resume": True}, "--out"),
        ("/nowhere/at/all.txt", {"order": 1, "tokenizer": "bytes"}, "no file or folder"),
    ],
)
def test_bad_input(text, options, message):
    with pytest.raises(BadInput, match=message):
        headscan.ntp.run(text, groups=0, **options)


def test_a_model_without_enough_words_is_refused():
    with pytest.raises(BadInput, match="count with the model's own tokenizer"):
        headscan.ntp.run(TEXT, order=1, tokenizer="bytes", model=tiny(40), groups=0)


def test_supports_that_cover_everything_are_trivial():
    class Two:
        splits_anywhere = True
        eos_token_id = None

        def encode(self, text, add_special_tokens=False):
            return ["ab".index(letter) for letter in text]

        def __len__(self):
            return 2

        def decode(self, ids):
            return "".join("ab"[i] for i in ids)

    with pytest.raises(BadInput, match="nothing is sparse"):
        headscan.ntp.run(["aabbab"], order=1, tokenizer=Two(), groups=0)


def test_the_command(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(" ".join(TEXT))
    options = ("--tokenizer", "bytes", "--order", "2")
    done = command_line.headscan(
        "ntp", str(text), *options, "--json", "--out", str(tmp_path / "out")
    )
    assert done.status == 0, done.stderr
    assert json.loads(done.stdout)["kind"] == "ntp"
    assert {p.name for p in (tmp_path / "out").iterdir()} >= {
        "result.json",
        "report.html",
        "arrays.safetensors",
    }
    (tmp_path / "short.txt").write_text("ab")
    done = command_line.headscan(
        "ntp", str(tmp_path / "short.txt"), *options, "--out", str(tmp_path / "bad")
    )
    assert done.status == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_real_model_and_text(assets, tmp_path):
    found = headscan.ntp.run(
        str(assets / "text/tinystories/tinystories_2MiB.txt"),
        order=1,
        model=str(assets / "models/stories260K"),
        documents="<|endoftext|>",
        max_tokens=30_000,
        groups=5,
        gap=1e-3,
    )
    model = found.comparisons[0].metrics
    assert 0 < model.SC6 < 2  # a trained model is near the bound of order 1
    assert model.direction > 0.1
    assert model.SC1.before is None or model.SC1.before.classes >= 2


class Stopped(Exception):
    pass


@pytest.fixture
def stopped(tmp_path):
    """A text, and the options of a run on it that was killed after its text was counted."""
    path = tmp_path / "text.txt"
    path.write_text(
        "\n".join(
            f"{word} the {word}s {n}" for n, word in enumerate(["cat", "dog", "hen", "cow"] * 100)
        )
    )
    options = {
        "tokenizer": "bytes",
        "order": 2,
        "documents": "lines",
        "memory": "1KiB",
        "groups": 0,
    }

    def stop(stage, done, total, unit):
        if stage == "predicting":
            raise Stopped

    with pytest.raises(Stopped):
        ntp.run(path, out=tmp_path / "out", progress=stop, **options)
    return path, tmp_path / "out", options


def test_a_killed_run_ends_with_the_files_of_an_undisturbed_one(stopped, tmp_path):
    path, out, options = stopped
    again = ntp.run(path, out=out, resume=True, **options)
    whole = ntp.run(path, out=tmp_path / "whole", **options)
    assert {p.name for p in out.iterdir()} == {p.name for p in (tmp_path / "whole").iterdir()}
    for part in (tmp_path / "whole" / "counts").iterdir():
        assert part.read_bytes() == (out / "counts" / part.name).read_bytes()
    seconds = {"seconds": 0}
    assert replace(again.solution, **seconds) == replace(whole.solution, **seconds)
    assert again.protocol.text == whole.protocol.text


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"order": 3}, "--order was 2 and is 3 now"),
        ({"documents": "whole"}, "--documents was"),
        ({"tokenizer": "gpt-vanilla"}, "--tokenizer was"),
        ({"min_count": 2}, "--min-count was 1 and is 2 now"),
    ],
)
def test_other_settings_are_not_resumed(stopped, changed, says):
    path, out, options = stopped
    with pytest.raises(BadInput, match=says):
        ntp.run(path, out=out, resume=True, **(options | changed))


def test_a_changed_text_is_not_resumed(stopped):
    path, out, options = stopped
    path.write_text(path.read_text().replace("hen", "han", 1))
    with pytest.raises(BadInput, match="cannot be resumed: the text was"):
        ntp.run(path, out=out, resume=True, **options)


def test_a_solution_stopped_at_its_budget_states_the_gap_that_it_proved():
    whole = headscan.ntp.run(TEXT, order=2, tokenizer="bytes", groups=0)
    budget = 1.4 * whole.cost.seconds / 100  # of one iteration, by estimate
    found = headscan.ntp.run(TEXT, order=2, tokenizer="bytes", budget=budget, groups=0)
    assert (found.solution.iterations, found.solution.converged, whole.solution.converged) == (
        1,
        False,
        True,
    )
    assert found.solution.dual <= whole.solution.primal <= found.solution.primal * (1 + 1e-9)
    assert found.notes[0].startswith("The solver was stopped after 1 iterations, its budget of")


def test_a_model_of_fewer_words_is_refused_before_any_work(tmp_path):
    def progress(*_step):
        raise AssertionError("something was counted")

    shutil.copytree(specimen_path("gpt-headless"), tmp_path / "small")
    config = tmp_path / "small" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"vocab_size": 100}))
    with pytest.raises(BadInput, match="has 100 words, the tokenizer of the count 4096"):
        headscan.ntp.run(
            TEXT, model=["gpt-vanilla", str(tmp_path / "small")], order=1, progress=progress
        )
    fit_tokenizer([TEXT], 300).save_pretrained(tmp_path / "other")
    with pytest.raises(BadInput, match="gpt-vanilla has a tokenizer of its own with 4096 words"):
        headscan.ntp.run(
            TEXT,
            model="gpt-vanilla",
            tokenizer=str(tmp_path / "other"),
            order=1,
            progress=progress,
        )
