"""The probes inside a scan: chosen by name, mergeable, resumable in parts, complete in the
document, the page, the frame.
"""

import html
import json
import re

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from headscan import BadInput, Lens, scan
from headscan.measures import MEASURES, PROBES
from headscan.model.tokenizer import ByteTokenizer
from headscan.scanner.selection import choose, ordered_measures, ordered_probes
from tests.hub import cached
from tests.scanner.announced import announced

TEXT = [
    "Once upon a time there was a cone, and it was very narrow. " * 8,
    "The end of all the cones is a ball. " * 20,
]


@pytest.fixture(scope="module")
def lens():
    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=300, n_positions=64, n_embd=24, n_layer=2, n_head=2)
    ).eval()
    return Lens(model, ByteTokenizer(), name="tiny")


@pytest.fixture(scope="module")
def everything(lens):
    with announced() as said:
        return scan(lens, TEXT, context=32, measures="expensive", null=True), said


def test_every_measure_and_probe_is_in_the_document_the_frame_and_the_page(everything):
    result, _ = everything
    assert {probe["name"] for probe in result.document["probes"]} == set(PROBES)
    assert set(result.document["measures"]) == set(MEASURES)
    page = result.page()
    words = None
    for probe in PROBES.values():
        frame = result.frame(probe.words.name)
        assert len(frame), probe.words.name
        assert set(probe.words.fields) <= set(frame.columns), probe.words.name
        assert probe.words.sentence.split("?")[0].replace("'", "&#39;") in page, probe.words.name
        assert html.escape(probe.words.literature, quote=True).replace("&#x27;", "&#39;") in page, (
            probe.words.name
        )
        words = str(result.document[probe.words.name][0])
        assert "nan" not in words
    for name in MEASURES:
        assert name in result.frame(long=False).columns
    json.loads(result.json())


def test_what_is_not_defined_has_a_reason_beside_it(everything):
    result, _ = everything
    for probe in PROBES.values():
        for row in result.document[probe.words.name]:
            for name, value in row.items():
                if value is None and name in probe.words.fields:
                    assert any(note.startswith(name) for note in row["notes"]), (
                        probe.words.name,
                        name,
                    )


def test_values_lie_in_their_ranges(everything):
    result, _ = everything
    for probe in PROBES.values():
        for row in result.document[probe.words.name]:
            for name, field in probe.words.fields.items():
                low, high = field.range
                value = row.get(name)
                if isinstance(value, int | float):
                    assert low is None or value >= low - 1e-6, (probe.words.name, name, value)
                    assert high is None or value <= high + 1e-6, (probe.words.name, name, value)


def test_expensive_ones_say_so_first_with_time_and_memory(everything):
    _, said = everything
    assert any(
        re.match(r"logit_lens of tiny is expensive: about \d+ s and \d+ MB", sentence)
        for sentence in said
    )


def test_the_random_twin_has_rows_too(everything):
    result, _ = everything
    assert len(result.frame("words", nulls=True)) == 2 * len(result.frame("words"))


def test_any_batch_size_gives_the_same_rows(lens, everything):
    names = "rogue,words,collapse,sphere,dimension"
    one = scan(lens, TEXT, context=32, measures=names, batch=1)
    seven = scan(lens, TEXT, context=32, measures=names, batch=7)
    for name in names.split(","):
        for a, b in zip(one.document[name], seven.document[name], strict=True):
            assert a.keys() == b.keys()
            for key in a:
                if isinstance(a[key], float):
                    assert a[key] == pytest.approx(b[key], rel=2e-3, abs=2e-4), (name, key)


def test_a_probe_leaves_the_plain_numbers_alone(lens, everything):
    plain = scan(lens, TEXT, context=32)
    assert plain.document["probes"] == []
    for a, b in zip(plain.sites, everything[0].sites, strict=True):
        assert a["average_cosine"] == b["average_cosine"]
        assert a["effective_rank"] == b["effective_rank"]
        assert "drift" not in a
        assert "drift" in b


def test_a_site_that_is_left_out_does_not_starve_the_head_s_probes(lens):
    result = scan(lens, TEXT, context=32, sites="block.0", measures="collapse")
    assert result.document["collapse"][0]["cdnv"] is not None


def test_resuming_gives_the_same_rows(lens, tmp_path):
    class Stop(KeyboardInterrupt):
        pass

    def stop(stage, done, total, unit):
        if done >= 320:
            raise Stop

    names = "rogue,words,collapse,zipf"
    options = {"context": 32, "measures": names, "batch": 2, "out": tmp_path / "out"}
    with pytest.raises(KeyboardInterrupt):
        scan(lens, TEXT, progress=stop, **options)
    resumed = scan(lens, TEXT, resume=True, **options)
    whole = scan(lens, TEXT, **(options | {"out": None}))
    for name in names.split(","):
        for a, b in zip(resumed.document[name], whole.document[name], strict=True):
            for key in a:
                if isinstance(a[key], float):
                    assert a[key] == pytest.approx(b[key], rel=1e-6, abs=1e-9), (name, key)


def test_choosing():
    core = [m.name for m in ordered_measures() if m.words.core]
    assert [m.name for m in choose(None)[0]] == core
    assert [p.name for p in choose("all")[1]] == [
        p.words.name for p in ordered_probes() if not p.words.expensive
    ]
    assert len(choose("expensive")[1]) == len(PROBES)
    assert {m.name for m in choose("spectra")[0]} - set(core) == {
        "rankme",
        "alpha_req",
        "centred_effective_rank",
        "uncentred_participation_ratio",
    }
    assert next(p.name for p in choose("words.self_*,zipf")[1]) == "words"
    with pytest.raises(
        BadInput,
        match="No measure matches 'nonsense'; there are: all, expensive, average_cosine, mean_norm",
    ):
        choose("nonsense")
    with pytest.raises(BadInput, match="',,' names no measure"):
        choose(",,")


def test_an_encoder_without_a_head_says_why(lens):
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=300,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
    )
    bert = Lens(BertModel(config).eval(), ByteTokenizer(), name="bert")
    with announced() as said:
        result = scan(bert, TEXT, context=32, measures="head,collapse")
    assert result.document["head"] == []
    assert "bert has no head: the model has no output layer." in said
    assert (
        "no output layer"
        in next(p for p in result.document["probes"] if p["name"] == "head")["notes"][0]
    )
    assert result.document["collapse"][0]["duality"] is None


def test_checkpoints_in_order_are_a_heat_map(lens):
    torch.manual_seed(1)
    others = []
    for name in ("step1", "step2", "step3"):
        model = GPT2LMHeadModel(
            GPT2Config(vocab_size=300, n_positions=64, n_embd=8, n_layer=1, n_head=2)
        ).eval()
        others.append(Lens(model, ByteTokenizer(), name=name))
    result = scan(others, TEXT, context=32, measures="head,loss,words,drift")
    page = result.page()
    assert "From checkpoint to checkpoint" in page
    for name in (
        "sites.average_cosine",
        "sites.drift",
        "words.self_adjusted",
        "head.singular_entropy",
        "head.stable_rank",
        "loss.loss",
        "collapse.cdnv",
        "partition.partition_spread",
    ):
        assert f"course.{name}" in page, name
    assert list(result.frame("head")["model"]) == ["step1", "step2", "step3"]
    assert (
        "From checkpoint to checkpoint"
        not in scan(others[:2], TEXT, context=32, measures="head").page()
    )


def test_pairs_that_mean_the_same_are_nearer_than_shuffled_ones(lens, tmp_path):
    words = tmp_path / "same.tsv"
    words.write_text(
        "".join(
            f"{k} cones and a ball\t{k} cones and a bowl\n"
            for k in ("one", "forty", "no", "a few", "xyz")
        )
    )
    result = scan(lens, TEXT, context=32, measures="alignment", pairs=[f"mine={words}", "synonyms"])
    rows = {(row["set"], row["site"]): row for row in result.document["alignment"]}
    assert {name for name, _ in rows} == {"mine", "synonyms"}
    for row in rows.values():
        assert row["relative"] == pytest.approx(row["alignment"] / row["unrelated"])
    mine = rows["mine", "block.1"]
    assert mine["pairs"] == 5
    assert 0 < mine["relative"] < 0.9
    low, high = mine["relative_interval"]
    assert low < mine["relative"] < high
    assert result.protocol.settings["pairs"] == [f"mine={words}", "synonyms"]
    assert "alignment.relative" in result.page()
    sphere = next(row for row in result.document["sphere"] if row["site"] == "block.1")
    assert sphere["next_relative"] == pytest.approx(
        sphere["next_alignment"] / sphere["next_unrelated"]
    )
    with pytest.raises(BadInput, match="--measures alignment"):
        scan(lens, TEXT, context=32, pairs=[words])
    with pytest.raises(BadInput, match="pairs"):
        scan(lens, TEXT, context=32, measures="alignment", pairs=[tmp_path / "absent.tsv"])


def test_the_null_of_the_next_token_is_that_of_all_mismatched_pairs():
    from headscan.measures.sphere import _next_alignment
    from headscan.statistics import FollowTally, SiteBatch

    generator = torch.Generator().manual_seed(0)
    states = torch.randn(2, 5, 3, generator=generator)
    ids = torch.randint(0, 7, (2, 5), generator=generator)
    table = torch.nn.functional.normalize(torch.randn(7, 3, generator=generator), dim=-1)
    tally = FollowTally(3)
    tally.table = table
    tally.update(SiteBatch("s", states, ids, [0, 1]))
    for suffix, start in (("", 0), ("_rest", 1)):
        x = torch.nn.functional.normalize(states[:, start:-1].reshape(-1, 3).double(), dim=-1)
        y = table[ids[:, start + 1 :].reshape(-1)].double()
        far = [
            float((x[i] - y[j]).square().sum())
            for i in range(len(x))
            for j in range(len(y))
            if i != j
        ]
        sums = tally.total() if not suffix else tally.total().view(suffix)
        found = _next_alignment(sums)
        assert found["next_alignment"] == pytest.approx(
            float((x - y).square().sum(-1).mean()), rel=1e-6
        )
        assert found["next_unrelated"] == pytest.approx(sum(far) / len(far), rel=1e-6)


def test_the_loss_is_the_model_s_own_and_only_causal_models_have_one(lens):
    result = scan(lens, TEXT, context=32, measures="loss")
    row = result.document["loss"][0]
    from headscan.text import Windows

    ids = torch.stack(
        [torch.from_numpy(window.ids) for window in Windows(TEXT, lens.tokenizer, 32)]
    )
    with torch.no_grad():
        expected = lens.model(ids, labels=ids).loss.item()
    assert row["loss"] == pytest.approx(expected, rel=1e-5)
    assert row["loss_interval"][0] < expected < row["loss_interval"][1]
    assert row["predicted"] == ids.numel() - len(ids)
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=300,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
    )
    with announced() as said:
        scan(
            Lens(BertForMaskedLM(config).eval(), ByteTokenizer(), name="bert"),
            TEXT,
            context=32,
            measures="loss",
        )
    assert said == ["bert has no loss: its logits see the tokens that follow."]


def test_revisions_are_models_of_their_own(lens, tmp_path, monkeypatch):
    with pytest.raises(BadInput):
        scan("no/such-model@step1", TEXT)
    cached(lens.model, tmp_path, "someone/tiny", "main", "main2", monkeypatch=monkeypatch)
    result = scan(["someone/tiny@main", "someone/tiny@main2"], TEXT, tokenizer="bytes", context=32)
    assert [model["name"] for model in result.document["models"]] == [
        "someone/tiny@main",
        "someone/tiny@main2",
    ]
