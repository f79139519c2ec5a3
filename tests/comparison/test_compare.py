"""The verb `compare`: models on a text, tokenizers of two kinds, nulls, intervals, findings."""

import json

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import headscan
from headscan.comparison.alignment import TokenVectors, aligned
from headscan.comparison.covariance import CrossCovariance
from headscan.comparison.prepared import Prepared, similarities
from headscan.comparison.similarity import SIMILARITIES
from headscan.model import ByteTokenizer, Lens
from headscan.model.tokenizer import load_tokenizer
from headscan.text import Windows
from tests.reference import similarity as slow


def tiny(seed, width=16, vocabulary=256, tokenizer=None, name="tiny"):
    torch.manual_seed(seed)
    config = GPT2Config(vocab_size=vocabulary, n_positions=32, n_embd=width, n_layer=2, n_head=2)
    return Lens(GPT2LMHeadModel(config), tokenizer or ByteTokenizer(), name=name)


@pytest.fixture(scope="module")
def same(tmp_path_factory):
    out = tmp_path_factory.mktemp("same")
    models = ["gpt-vanilla", "gpt-vanilla"]
    return headscan.compare(
        models, "stories", max_tokens=640, context=32, sites="block.?", draws=19, out=out
    ), out


def test_a_model_is_as_like_itself_as_can_be(same):
    result, _ = same
    own = [cell for cell in result.cells if cell.site_a == cell.site_b]
    assert len(own) == 6 * 5
    for cell in own:
        assert cell.value == pytest.approx(1.0, abs=1e-9), cell
        assert cell.p == 0.05
    assert "SAME" in {finding.name for finding in result.findings}
    assert {cell.model_b for cell in result.cells} == {"gpt-vanilla (2)"}


def test_what_is_saved_has_the_fields_of_the_contract_and_comes_back(same):
    result, out = same
    document = json.loads((out / "result.json").read_text())
    assert {"site_a", "site_b", "model_a", "model_b", "measure", "value", "interval", "p"} <= set(
        document["cells"][0]
    )
    assert headscan.load(out).document == result.document
    assert result.frame("cka").shape == (5, 5)
    assert "most" in _printed(result)


def _printed(result):
    from rich.console import Console

    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(result.table())
    return console.export_text()


def test_cells_are_those_of_the_states_themselves():
    one = tiny(0)
    two = tiny(1, width=12)
    text = "The quick brown fox jumps over the lazy dog, and then it sleeps. " * 12
    result = headscan.compare([one, two], text, context=16, sites="block.1", draws=19, skip_first=2)
    windows = np.stack([window.ids for window in Windows(text, ByteTokenizer(), 16)])
    x, y = (
        lens.run(windows, sites="block.1")["block.1"][:, 2:].flatten(0, 1).double().numpy()
        for lens in (one, two)
    )
    assert result.tokens == len(x)
    for name in ("cka", "procrustes", "svcca", "linear"):
        assert result.cell(name, "block.1").value == pytest.approx(
            getattr(slow, name)(x, y), abs=2e-6
        ), name


def test_tokens_of_two_tokenizers_are_matched_by_where_they_end():
    words = load_tokenizer("gpt-vanilla")
    text = [
        "Once upon a time there was a tiny cat.",
        "The cat säng – and it was happy. " * 6,
        "A dog came.",
    ]
    one = tiny(0, vocabulary=4096, tokenizer=words, name="words")
    two = tiny(1, name="bytes")
    result = headscan.compare(
        [one, two], text, context=8, sites="embedding", draws=19, skip_first=0
    )
    ends = set()
    for number, document in enumerate(text):
        found = words(document, add_special_tokens=False, return_offsets_mapping=True)[
            "offset_mapping"
        ]
        ends |= {(number, end) for _, end in found}
    by_model = {row.model: row for row in result.alignment}
    assert by_model["words"].compared == by_model["bytes"].compared == result.tokens
    # Windows that are not full are dropped at the end, the joints between documents end nowhere.
    assert len(ends) - 16 <= result.tokens <= len(ends)
    assert by_model["bytes"].tokens > 3 * result.tokens
    assert "PARTLY-ALIGNED" in {finding.name for finding in result.findings}


def test_a_tokenizer_that_says_no_ends_is_refused():
    class Slow:
        eos_token_id = None

        def encode(self, text, add_special_tokens=False):
            return [ord(letter) % 256 for letter in text]

        def get_vocab(self):
            return {"a": 0}

    with pytest.raises(headscan.BadInput, match="does not say where its tokens end"):
        headscan.compare(
            [tiny(0), tiny(1, tokenizer=Slow(), name="slow")], ["abc " * 50], context=8, draws=19
        )


def part(keys, windows, width=2):
    keys = np.array(keys)
    windows = np.array(windows)
    numbers = np.unique(windows)
    states = [torch.from_numpy(keys[:, None] * np.ones(width))]
    zeros = np.zeros_like(keys)
    return TokenVectors(keys, windows, zeros, zeros, states, numbers, numbers[:, None])


def test_readers_of_different_pace_meet_at_every_common_token():
    rng = np.random.default_rng(0)
    for _ in range(20):
        streams = []
        for _ in range(3):
            keys = np.sort(rng.choice(200, size=rng.integers(60, 150), replace=False))
            cuts = np.sort(rng.choice(np.arange(1, len(keys)), size=4, replace=False))
            windows = np.searchsorted(cuts, np.arange(len(keys)), side="right")
            borders = np.sort(rng.choice(cuts, size=2, replace=False))
            streams.append(
                [
                    part(k, w)
                    for k, w in zip(
                        np.split(keys, borders), np.split(windows, borders), strict=True
                    )
                ]
            )
        common = set.intersection(*({int(k) for p in parts for k in p.keys} for parts in streams))
        met = list(aligned([iter(parts) for parts in streams]))
        for parts in met:
            assert all(torch.equal(parts[0].states[0], other.states[0]) for other in parts[1:])
        assert [int(k) for parts in met for k in parts[0].states[0][:, 0]] == sorted(common)
        each = [set(parts[0].windows.tolist()) for parts in met]
        assert sum(map(len, each)) == len(set().union(*each)), (
            "no window of the first comes in two parts"
        )


def test_models_that_read_one_after_another_give_the_same_numbers(monkeypatch):
    from headscan.comparison import run

    models = [tiny(0), tiny(1)]
    options = {"context": 16, "sites": "block.*", "draws": 19, "measures": "cka,rsa"}
    together = headscan.compare(models, "A cat sat on a mat. " * 40, **options)
    monkeypatch.setattr(run, "SIDE_BY_SIDE", 0.0)
    apart = headscan.compare(models, "A cat sat on a mat. " * 40, **options)
    assert apart.cells == together.cells
    assert "temporary files" in apart.protocol.notes[0]


def test_a_sample_permuted_is_the_permuted_sample():
    measures = {name: found() for name, found in SIMILARITIES.items()}
    rows = torch.randn(6, 4, 8, generator=torch.Generator().manual_seed(0))
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    moved = Prepared.of([rows], measures).permuted(order)
    fresh = Prepared.of([rows[order]], measures)
    other = Prepared.of(
        [rows + torch.randn(6, 4, 8, generator=torch.Generator().manual_seed(1))], measures
    )
    wanted = similarities(other, fresh, measures)
    for name, found in similarities(other, moved, measures).items():
        assert float(found) == pytest.approx(float(wanted[name]), abs=1e-6), name
    pair = CrossCovariance.of_rows(moved.coordinates, fresh.coordinates)
    assert float(measures["procrustes"].value(pair)) == pytest.approx(1.0, abs=1e-6)


def test_the_permutation_is_calibrated_on_what_is_unrelated_and_sees_what_is_not():
    rng = np.random.default_rng(0)
    low = np.zeros(6)
    for _ in range(6):
        x = rng.standard_normal((64, 6))
        y = rng.standard_normal((64, 5))
        low += [cell.p <= 0.05 for cell in headscan.compare([x, y], draws=19, sample=64).cells]
    assert low.max() <= 3  # of 6 at .05: more has a chance of 1 in 10,000 a measure
    y = x[:, :5] + 0.3 * rng.standard_normal((64, 5))
    assert all(cell.p == 0.05 for cell in headscan.compare([x, y], draws=19, sample=64).cells)


def test_untrained_twins_are_beyond_a_permutation_and_within_random_weights():
    text = "The quick brown fox jumps over the lazy dog. A cat sat on the mat and slept. " * 6
    options = {"context": 16, "sites": "block.*", "draws": 19, "measures": "cka,rsa"}
    result = headscan.compare([tiny(5), tiny(6)], text, nulls="random-init,permutation", **options)
    assert [test.null for test in result.cells[0].tests] == ["random-init", "permutation"]
    assert all(cell.tests[1].p == 0.05 for cell in result.cells)  # they read the same tokens
    assert np.mean([cell.p for cell in result.cells]) > 0.05


def test_stored_states_are_compared_with_the_model_that_made_them():
    lens = tiny(0, name="one")
    text = "The quick brown fox jumps over the lazy dog. " * 12
    ids = np.stack([window.ids for window in Windows(text, ByteTokenizer(), 16)])
    stored = {"block.1": lens.run(ids, sites="block.1")["block.1"], "token_ids": ids}
    result = headscan.compare(
        [lens, stored], text, context=16, sites="block.1", draws=19, batch=len(ids)
    )
    assert all(cell.value == pytest.approx(1.0, abs=1e-6) for cell in result.cells)
    with pytest.raises(headscan.BadInput, match="different tokens"):
        headscan.compare(
            [lens, stored | {"token_ids": ids + 1}], text, context=16, sites="block.1", draws=19
        )


@pytest.mark.parametrize(("windows", "code"), [(3, "UNTESTED"), (12, "BEYOND-NULL")])
def test_a_text_of_few_windows_is_not_tested(windows, code):
    text = "The quick brown fox jumps over the lazy dog. A cat sat on the mat and slept. " * 6
    options = {
        "context": 16,
        "draws": 39,
        "measures": "cka,mutual_knn",
        "nulls": "permutation",
        "max_tokens": 16 * windows,
    }
    codes = {
        found.name
        for found in headscan.compare([tiny(5), tiny(5, name="again")], text, **options).findings
    }
    assert {"SAME", code} <= codes
    assert "WITHIN-NULL" not in codes


def _columns():
    """Two columns of the same items: old, and old rotated, halved and shifted."""
    generator = torch.Generator().manual_seed(0)
    old = torch.randn(600, 32, generator=generator) + 0.3
    rotation = torch.linalg.qr(torch.randn(32, 32, generator=generator)).Q
    return old, old @ rotation / 2


def test_columns_are_the_same_only_where_their_neighbours_agree():
    old, turned = _columns()
    same = headscan.compare([{"vectors": old}, {"vectors": turned}], draws=99)
    assert same.cell("mutual_knn", "vectors").value == pytest.approx(1.0, abs=1e-3)
    assert "SAME" in {finding.name for finding in same.findings}

    moved = headscan.compare([{"vectors": old}, {"vectors": turned + 2}], draws=99)
    agreement = moved.cell("mutual_knn", "vectors").value
    assert moved.cell("cka", "vectors").value == pytest.approx(1.0, abs=1e-6)
    assert agreement < 0.7
    found = {finding.name: finding for finding in moved.findings}
    assert "SAME" not in found
    changed = found["NEIGHBOURS-DIFFER"]
    assert (changed.code, changed.level, changed.value) == ("HS128", "notice", agreement)
    share = f"{100 * (1 - agreement):.0f} %"
    assert (
        f"equal up to rotation, scale and shift; {share} of the cosine neighbours differ: re-index"
        in changed.sentence
    )


def test_columns_whose_neighbours_were_not_compared_are_not_called_the_same():
    old, turned = _columns()
    result = headscan.compare([{"vectors": old}, {"vectors": turned + 2}], measures="cka")
    found = {finding.name: finding for finding in result.findings}
    assert "SAME" not in found
    assert "Their neighbours were not compared" in found["CLOSENESS"].sentence
    assert found["CLOSENESS"].level == "notice"


def test_a_shifted_column_with_a_little_noise_is_no_all_clear():
    old, turned = _columns()
    noise = 1e-3 * torch.randn(turned.shape, generator=torch.Generator().manual_seed(1))
    result = headscan.compare([{"vectors": old}, {"vectors": turned + 2 + noise}])
    found = {finding.name: finding for finding in result.findings}
    assert result.cell("cka", "vectors").value > 0.9
    assert "of the cosine neighbours differ" in found["CLOSENESS"].sentence
    assert found["CLOSENESS"].level == "notice"
