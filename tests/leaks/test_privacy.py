"""The verb: rows between bounds, caches of all formats, what is refused, the command."""

import json

import pytest
import torch

from headscan.inversion import exact
from headscan.leaks import MECHANISMS, Mapped, cache_slice, privacy, read_format
from headscan.leaks import plan as budget
from headscan.leaks.defences import Projection
from headscan.leaks.embedding import retrieval
from headscan.leaks.exact_attack import exact_attack
from headscan.model import ByteTokenizer
from headscan.model.slicing import Slice
from headscan.run import BadInput
from tests.command_line import headscan as cli
from tests.inversion.conftest import build

TEXT = ["Once upon a time there was a cat. " * 5]


@pytest.fixture(scope="module")
def lens():
    lens = build("gpt2", vocabulary=256, width=32, depth=2)
    lens.tokenizer = ByteTokenizer()
    return lens


def test_the_report_orders_noise_and_holds_its_bounds(lens, tmp_path):
    result = privacy(lens, TEXT, windows=2, length=6, noise=(0, 0.01, 1.6, 20.0), out=tmp_path)
    rows = {(row.site, row.noise): row for row in result.rows}
    for site in ("block.0", "block.1"):
        clean = rows[site, 0.0]
        assert (clean.attack_accuracy, clean.verdict, clean.certificate) == (
            1,
            "recovered and unique",
            "exhaustive",
        )
        assert clean.bits_upper is clean.bits_lower is clean.attack_accuracy_upper is None
        assert clean.loss_added == 0
        assert rows[site, 0.01].attack_accuracy > 0.99
        assert rows[site, 20.0].attack_accuracy < 0.5
        bits = [rows[site, noise].bits_truth for noise in (0.01, 1.6, 20.0)]
        assert bits == sorted(bits, reverse=True)
    for row in result.rows:
        if row.noise:
            slack = 4 * row.bits_truth_error + 1e-9
            assert row.bits_lower - slack <= row.bits_truth <= row.bits_upper + slack
            assert row.bits_upper <= row.prior_bits + 1e-9
            assert row.attack_accuracy <= row.attack_accuracy_upper + 0.02
            assert row.bits_interval[0] <= row.bits_lower <= row.bits_upper <= row.bits_interval[1]
            assert row.loss_added_interval[0] <= row.loss_added <= row.loss_added_interval[1]
    assert "At noise 20 at block." in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("prior", ["uniform", "text"])
def test_other_priors_and_fewer_candidates(lens, prior):
    whole, few = (
        privacy(
            lens,
            TEXT,
            windows=1,
            length=5,
            noise=(1.6,),
            prior=prior,
            sites="block.1",
            candidates=count,
        ).rows[0]
        for count in (None, 8)
    )
    assert whole.prior_bits == pytest.approx(few.prior_bits)
    assert few.kept < whole.kept + 1e-9
    assert few.bits_lower <= whole.bits_truth + 4 * whole.bits_truth_error
    assert few.bits_upper >= whole.bits_truth - 4 * whole.bits_truth_error


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("part", ["keys", "values"])
def test_a_cache_gives_back_its_prompt_in_every_format(kind, part, ids):
    lens = build(kind)
    if kind == "llama":  # two stored heads for four that ask
        from transformers import LlamaConfig, LlamaForCausalLM

        from headscan.model import Lens

        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=120,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=32,
        )
        lens = Lens(LlamaForCausalLM(config), name="grouped")
    for form in ("fp16", "int8", "int2/8"):
        base = cache_slice(lens, [1], part)
        found = exact_attack(Mapped(base, read_format(form).each(base.parts), form), ids[:2])
        assert found.right == [1.0, 1.0], form


def test_what_the_cache_slice_sees_is_what_the_model_stores(llama, ids):
    from transformers import DynamicCache

    cache = DynamicCache()
    llama.model(ids, past_key_values=cache, use_cache=True)
    seen = cache_slice(llama, [0, 1]).run(ids)
    stored = [
        x.transpose(1, 2).flatten(2) for layer in cache.layers for x in (layer.keys, layer.values)
    ]
    assert torch.allclose(seen, torch.cat(stored, -1), atol=1e-5)
    head = cache_slice(llama, [1], "values", [1]).run(ids)
    assert torch.allclose(head, cache.layers[1].values[:, 1], atol=1e-5)
    assert [
        one.tokens for one in exact(cache_slice(llama, [1], "values", [1]), list(head))
    ] == ids.tolist()


def test_a_cache_slice_of_a_head_that_is_not_there_is_refused(lens):
    with pytest.raises(BadInput, match="has heads 0 to 1"):
        cache_slice(lens, [0], "keys", [7])


def test_a_rounded_release_has_bits_without_noise(lens):
    row = privacy(
        lens, TEXT, release="cache", format="int2", windows=1, length=6, noise=(0,), sites="block.1"
    ).rows[0]
    assert row.defence == "int2"
    assert row.bits_lower == row.bits_upper <= row.prior_bits
    assert row.loss_added != 0


def test_logits_are_states_seen_through_the_head(lens):
    rows = privacy(lens, TEXT, release="logits", windows=1, length=6, noise=(0, 0.8)).rows
    assert rows[0].attack_accuracy == 1
    assert rows[1].bits_lower <= rows[1].bits_truth + 4 * rows[1].bits_truth_error
    assert rows[1].loss_added != 0


def test_a_known_rotation_changes_no_bit_and_few_directions_tell_less(lens):
    plain, turned, few = (
        privacy(
            lens,
            TEXT,
            windows=1,
            length=6,
            noise=(0, 0.8),
            sites="block.1",
            prior="text",
            defence=defence,
        ).rows
        for defence in (None, "rotation", Projection(dimensions=2))
    )
    assert turned[0].attack_accuracy == 1
    assert turned[1].sigma == pytest.approx(plain[1].sigma, rel=1e-4)
    assert turned[1].bits_upper == pytest.approx(plain[1].bits_upper, abs=1e-3)
    assert few[1].bits_truth < plain[1].bits_truth - 4 * few[1].bits_truth_error
    assert (few[0].defence, few[0].bits_lower) == ("projection", None)
    assert few[0].loss_added != 0
    assert abs(turned[0].loss_added) < 1e-4


@pytest.mark.parametrize("defence", MECHANISMS.names())
def test_a_defence_brings_states_back(defence):
    states = torch.randn(50, 32)
    fitted = MECHANISMS[defence]().fit(states, 0)
    seen = fitted.release(states)
    assert torch.allclose(fitted.release(fitted.restore(seen)), seen, atol=1e-4)
    lossless = defence in (
        "rotation",
        "per-coordinate",
        "permutation",
        "kv-cloak",
    )  # the last one undoes itself
    assert torch.allclose(fitted.restore(fitted.received(states)), states, atol=1e-3) is lossless


def test_an_embedding_tells_of_a_token_when_the_others_are_known(lens):
    result = privacy(
        lens,
        TEXT,
        release="embedding",
        prior="text",
        windows=2,
        length=6,
        noise=(0, 0.8),
        defence="rounding",
    )
    rounded, both = result.rows
    plain = privacy(
        lens, TEXT, release="embedding", prior="text", windows=2, length=6, noise=(0, 0.8)
    )
    assert "are recovered by the attack &#39;nearest, others known&#39;." in plain.page()
    clean, noisy = plain.rows
    assert (clean.text_accuracy, clean.bits_upper) == (1, None)
    for row in (noisy, both):
        slack = 4 * row.bits_truth_error
        assert row.bits_lower - slack <= row.bits_truth <= row.bits_upper + slack
    assert (rounded.defence, rounded.noise, both.noise) == ("rounding", 0, 0.8)
    assert rounded.bits_lower == rounded.bits_upper <= rounded.prior_bits
    assert all(
        row.retrieval_interval[0] <= row.retrieval <= row.retrieval_interval[1]
        for row in result.rows
    )


def test_what_a_defence_costs_an_embedding_is_told_by_retrieval():
    stored = torch.eye(8, dtype=torch.float64)
    queries = stored + 0.1 * torch.randn(
        8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    assert retrieval(stored, queries, lambda rows: rows) == 1
    assert retrieval(stored, queries, lambda rows: rows.flip(0)) == 0
    assert retrieval(stored, queries, lambda rows: rows[:, :1].expand(8, 8)) == 1 / 8


def test_what_cannot_be_is_refused(lens):
    for options, words in (
        ({"windows": 0}, "--windows must be at least 1"),
        ({"format": "int3"}, "no number format 'int3'"),
        ({"length": 40}, "takes"),
        ({"noise": (-1.0,)}, "--noise must be at least 0"),
        ({"stored": "keys"}, "--stored is not used by the release states; it belongs to cache"),
        ({"release": "cache", "sites": "block.0.mlp"}, "A cache belongs to a block"),
        (
            {"release": "gradient", "sites": "block.0"},
            "--sites is not used by the release gradient",
        ),
        ({"release": "gradient", "noise": (0.5,)}, "--noise is not used by the release gradient"),
        ({"defence": "prayer"}, "no defence 'prayer'"),
        ({"defence": Projection(dimensions=99)}, "is more than the 32"),
        ({"release": "thoughts"}, "no release 'thoughts'"),
    ):
        with pytest.raises(BadInput, match=words):
            privacy(lens, TEXT, **options)
    with pytest.raises(BadInput, match="fewer than one window"):
        privacy(lens, ["ab"])


def test_a_model_too_large_for_all_is_looked_at_in_part_and_says_so(lens, monkeypatch):
    whole = privacy(lens, TEXT, windows=2, length=4, noise=(0, 1.6))
    nothing_added = ["The tokenizer adds nothing to a text, so that windows are text alone."]
    assert whole.protocol.notes == nothing_added
    passed = budget.multiplications(Slice(sites=("block.1",)).on(lens), 1) / 256
    monkeypatch.setattr(budget, "LIMIT", 1000 * passed)
    few = privacy(lens, TEXT, windows=2, length=4, noise=(0, 1.6))
    assert "windows of 4 tokens: 1" in few.protocol.notes[0]
    assert all(100 < row.candidates <= 125 for row in few.rows)
    asked = privacy(lens, TEXT, windows=2, length=4, noise=(1.6,), candidates=256)
    assert asked.protocol.notes == nothing_added


def test_the_command_takes_numbers_with_commas(tmp_path):
    (tmp_path / "text.txt").write_text(
        "Once upon a time there was a little girl who had a cat. She liked it."
    )
    arguments = [
        "privacy",
        "gpt-vanilla",
        "--text",
        str(tmp_path / "text.txt"),
        "--sites",
        "block.0",
    ]
    arguments += ["--noise", "0,0.8", "--windows", "1", "--length", "4", "--candidates", "64"]
    done = cli(*arguments, "--out", str(tmp_path / "out"), "--json")
    assert done.status == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["release"], document["prior"]) == ("states", "model")
    assert [row["noise"] for row in document["rows"]] == [0, 0.8]
    named = {
        "site",
        "noise",
        "bits_upper",
        "bits_lower",
        "attack_accuracy",
        "attack_accuracy_upper",
    }
    assert all(named <= set(row) for row in document["rows"])
    for given in ("0,nan", "-1", "loud"):
        assert cli(*arguments, "--noise", given).status == 2


def test_a_hybrid_has_the_caches_of_its_attention_blocks():
    from transformers import JambaConfig, JambaForCausalLM

    from headscan.model import ByteTokenizer, Lens

    torch.manual_seed(0)
    config = JambaConfig(
        vocab_size=256,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=2,
        attn_layer_period=2,
        attn_layer_offset=1,
        num_experts=2,
        mamba_d_state=4,
        mamba_expand=1,
        mamba_dt_rank=4,
        use_mamba_kernels=False,
        pad_token_id=0,
    )
    lens = Lens(JambaForCausalLM(config).eval(), ByteTokenizer(), name="hybrid")
    options = {"release": "cache", "windows": 1, "length": 4, "noise": (0.5,), "draws": 2}
    result = privacy(lens, TEXT, **options)
    assert {row.site for row in result.rows} == {"block.1"}
    with pytest.raises(BadInput, match=r"block.0 of 'hybrid' stores no keys and values.*block.1"):
        privacy(lens, TEXT, sites="block.0", **options)
