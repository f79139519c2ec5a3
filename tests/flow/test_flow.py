"""What tokens know of each other, against brute force and against what masks allow."""

import importlib

import numpy as np
import pytest
import torch
import transformers

import headscan
from headscan import load
from headscan.flow import VARIANTS, codebook, distances, leaks, noise_accuracy, recovery, variant
from headscan.model import Lens
from tests.reference import flow as reference

IDS = [5, 17, 3, 42, 8]


def encoder_decoder(family):
    torch.manual_seed(0)
    if family == "t5":
        config = transformers.T5Config(
            vocab_size=60,
            d_model=16,
            d_kv=4,
            d_ff=32,
            num_layers=2,
            num_heads=4,
            decoder_start_token_id=0,
            pad_token_id=0,
            initializer_factor=1.5,
            feed_forward_proj="gated-gelu",
        )
        model = transformers.T5ForConditionalGeneration(config)
    else:
        config = transformers.BartConfig(
            vocab_size=60,
            d_model=16,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=32,
            decoder_ffn_dim=32,
            max_position_embeddings=64,
            decoder_start_token_id=2,
            scale_embedding=True,
            init_std=0.3,
        )
        model = transformers.BartForConditionalGeneration(config)
    return Lens(model.eval(), name=f"tiny {family}")


@pytest.fixture(scope="module")
def gpt2():
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=50,
        n_positions=32,
        n_embd=16,
        n_layer=1,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    return Lens(transformers.GPT2LMHeadModel(config).eval(), name="tiny gpt2")


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_leak_goes_where_the_cut_lets_it(llama, name):
    leak = leaks(llama, variant(name, ["block.0", "block.1"]), [IDS], trials=2)[0]
    assert leak.shape == (2, 5, 5)
    upper = np.triu_indices(5, 1)
    lower = np.tril_indices(5, -1)
    diagonal = np.diagonal(leak, axis1=1, axis2=2)
    assert (diagonal > 1e-3).all()
    assert (leak[:, lower[0], lower[1]] > 1e-6).all() == (name == "no-mask")
    if name != "no-mask":
        assert (leak[:, lower[0], lower[1]] == 0).all()
    assert (leak[:, upper[0], upper[1]] > 0).all() == (name != "mlp")


def test_recovery_is_brute_force_at_every_site(llama):
    cut = variant("whole", ["block.0", "block.1"])
    result = recovery(llama, cut, [IDS], rows=7)
    assert result.exhaustive
    assert result.candidates == 50
    for site in (0, 1):
        site_cut = variant("whole", [f"block.{site}"])
        for position, output in ((0, 0), (0, 4), (1, 3), (3, 1)):
            expected = reference.margin(
                lambda ids, site_cut=site_cut: site_cut.run(llama, ids), IDS, position, output, 50
            )
            assert result.margin[site, position, output] == pytest.approx(
                expected, rel=1e-3, abs=1e-5
            )
    assert (result.recoverable[0] == np.triu(np.ones((5, 5)))).all()


def test_a_token_whose_embedding_is_anothers_cannot_be_told(gpt2):
    twin = gpt2.random_init(1)
    with torch.no_grad():
        twin.model.transformer.wte.weight[IDS[2]] = twin.model.transformer.wte.weight[30]
    result = recovery(twin, variant("whole", ["block.0"]), [IDS])
    assert (result.recoverable[0][2] == 0).all()
    assert result.recoverable[0][1, 4] == 1


def test_the_noiseless_channel_is_exact_and_the_bounds_are_kept():
    torch.manual_seed(0)
    book = torch.randn(256, 64)
    for row in noise_accuracy(book, noises=(1e-6,), widths=(2, 64)):
        assert row.accuracy == 1.0
    rows = {
        (r.noise, r.width): r
        for r in noise_accuracy(book, noises=(0.5, 2.0), widths=(2, 64), trials=500)
    }
    assert rows[0.5, 64].accuracy == 1.0
    assert rows[0.5, 2].accuracy < 0.5
    for row in rows.values():
        assert row.accuracy <= row.highest + 4 * row.standard_error
    assert rows[2.0, 2].bits == pytest.approx(2 * 0.5 * np.log2(1.25), rel=0.1)
    assert rows[2.0, 2].accuracy < rows[2.0, 64].accuracy < 1


def test_distances_see_duplicates_and_the_round_cloud():
    torch.manual_seed(0)
    book = torch.randn(300, 64)
    spread = distances(book)
    assert 0.5 < spread.median / spread.expected < 1.1
    assert spread.duplicates == 0
    book[1] = book[0]
    assert distances(book).duplicates == 2


def test_a_codebook_row_is_the_models_own_output(llama):
    book = codebook(llama, "block.1", IDS[:3], rows=16)
    expected = llama.run([[*IDS[:3], 21]], sites="block.1")["block.1"][0, -1]
    assert torch.allclose(book[21], expected, atol=1e-5)


def test_the_result_is_typed_and_loads_again(llama, tmp_path):
    models = [llama, llama.random_init(0)]
    result = headscan.flow.run(models, [IDS, IDS[::-1]], cuts="whole,attention", out=tmp_path)
    again = load(tmp_path)
    assert [part.cut for part in again.parts] == ["whole", "attention"] * 2
    assert again.arrays["leak"].shape == (2, 5, 5)
    assert (again.arrays["recoverable"] == again.arrays["recoverable/0"]).all()
    assert again.document == result.document
    assert again.site == "block.1"
    assert again.parts[0].sites[0].leak_of_later == again.leak.of_later == 0
    assert again.leak.of_earlier == again.parts[0].sites[-1].leak_of_earlier
    assert len(result.frame()) == 8
    assert result.plot() is not None
    assert (tmp_path / "report.html").read_text().count("<script") >= 3


def test_the_package_is_called_like_its_verb(llama):
    called = headscan.flow(llama, IDS).arrays["leak"]
    assert (called == headscan.flow.run(llama, IDS).arrays["leak"]).all()


def test_prompts_are_taken_alike_as_lists_tensors_and_arrays(llama):
    matrices = [
        headscan.flow.run(llama, prompt, recover=False).arrays["leak"]
        for prompt in (
            IDS,
            tuple(IDS),
            torch.tensor(IDS),
            np.array(IDS),
            [IDS],
            torch.tensor([IDS]),
        )
    ]
    assert all((matrix == matrices[0]).all() for matrix in matrices)


def test_means_over_prompts_have_intervals_of_students_over_prompts(llama):
    prompts = np.random.default_rng(0).integers(0, 50, (6, 4)).tolist()
    site = headscan.flow.run(llama, prompts, at="block.0", candidates=5).parts[0].sites[0]
    cut = variant("whole", ["block.0"])
    upper = np.triu_indices(4, 1)
    alone = [recovery(llama, cut, [prompt]).recoverable[0][upper].mean() for prompt in prompts]
    # so nothing varies, and how many there are says how many could be otherwise
    assert set(alone) == {1.0}
    assert site.recoverable_of_earlier_interval == pytest.approx([0.025 ** (1 / 6), 1.0])
    generator = torch.Generator().manual_seed(0)
    moved = []
    for prompt in prompts:  # four others in each place, as `leak` draws them
        shift = torch.randint(1, 50, (16,), generator=generator)
        changed = torch.tensor(prompt).repeat(16, 1)
        position = torch.arange(4).repeat_interleave(4)
        changed[torch.arange(16), position] = (changed[torch.arange(16), position] + shift) % 50
        states = llama.run(torch.tensor([prompt, *changed.tolist()]), sites="block.0")[
            "block.0"
        ].double()
        apart = (states[1:] - states[:1]).norm(dim=-1) / states[:1].norm(dim=-1)
        moved.append(float(apart.reshape(4, 4, 4).mean(1).numpy()[upper].mean()))
    low, high = site.leak_of_earlier_interval
    reach = 2.5706 * np.std(moved, ddof=1) / 6**0.5
    assert site.leak_of_earlier == pytest.approx(np.mean(moved), rel=1e-5)
    assert (low, high) == pytest.approx((np.mean(moved) - reach, np.mean(moved) + reach), rel=1e-4)
    assert site.leak_of_later_interval == [0.0, 0.0]
    assert (
        headscan.flow.run(llama, prompts[:2], recover=False)
        .parts[0]
        .sites[0]
        .leak_of_earlier_interval
        is None
    )


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_of_an_encoder_decoder_the_encoder_is_looked_at(family):
    lens = encoder_decoder(family)
    result = headscan.flow.run(lens, IDS)
    assert result.sites == ["encoder.block.0", "encoder.block.1"]
    assert result.leak.of_later > 0
    assert headscan.flow.run(lens, IDS, cuts="causal").leak.of_later == 0
    assert result.tokens == [f"<id {i}>" for i in IDS]
    with pytest.raises(headscan.BadInput, match="the encoder is looked at"):
        headscan.flow.run(lens, IDS, at="decoder.block.*")


def test_an_interrupted_run_goes_on_where_it_stopped(llama, tmp_path, monkeypatch):
    verbs = importlib.import_module("headscan.flow.run")

    done = []
    measure = verbs.leaks

    def counted(lens, cut, *arguments, **options):
        done.append(str(cut))
        if len(done) == 2:
            raise KeyboardInterrupt
        return measure(lens, cut, *arguments, **options)

    monkeypatch.setattr(verbs, "leaks", counted)
    with pytest.raises(KeyboardInterrupt):
        headscan.flow.run(llama, IDS, cuts="whole,mlp", out=tmp_path)
    with pytest.raises(headscan.BadInput, match="prompts of model 1"):
        headscan.flow.run(llama, IDS[::-1], cuts="whole,mlp", out=tmp_path, resume=True)
    result = headscan.flow.run(llama, IDS, cuts="whole,mlp", out=tmp_path, resume=True)
    assert len(done) == 3
    assert (result.arrays["leak/0"] == headscan.flow.run(llama, IDS).arrays["leak"]).all()


@pytest.mark.parametrize(
    ("prompt", "options", "sentence"),
    [
        ([], {}, "empty"),
        ([4], {}, "one token"),
        ([4, 50], {}, "not in the vocabulary"),
        ([4] * 33, {}, "takes at most 32"),
        (IDS, {"cuts": "magic"}, "no cut 'magic'"),
        (IDS, {"at": "block.9"}, "block.9"),
        (IDS, {"trials": -1}, "--trials must be at least 1, not -1"),
        (IDS, {"candidates": 1}, "--candidates must be at least 2"),
        (IDS, {"candidates": 9, "recover": False}, "--candidates is not used"),
        (IDS, {"length": 1}, "--length must be at least 2"),
        (IDS, {"windows": 3}, "--windows is not used without --text"),
        ([1.5, 2.5], {}, "whole numbers"),
    ],
)
def test_a_fault_of_the_input_is_one_sentence(llama, prompt, options, sentence):
    with pytest.raises(headscan.BadInput, match=sentence):
        headscan.flow.run(llama, prompt, **options)


def mixer(seed=0):
    from headscan.model.mixer import MixerConfig, MixerForCausalLM

    torch.manual_seed(seed)
    config = MixerConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, max_position_embeddings=8
    )
    return Lens(MixerForCausalLM(config).eval(), name="tiny mixer")


def test_models_of_all_kinds_are_compared_on_the_same_prompts(llama):
    result = headscan.flow.run([llama, mixer()], [IDS, IDS[::-1]], null=True)
    names = [(part.model, part.cut) for part in result.parts]
    assert [name for name, cut in names if cut == "whole"] == ["tiny llama", "tiny mixer"]
    for part in result.parts:
        assert part.sites[-1].leak_of_later == 0
        assert part.sites[-1].leak_of_earlier > 0


class Letters:
    eos_token_id = 0
    splits_anywhere = True

    def encode(self, text, add_special_tokens=False):
        return [ord(letter) % 50 for letter in text]

    def decode(self, ids):
        return f"<{ids[0]}>"


def test_prompts_are_windows_of_a_text(llama, tmp_path):
    lens = llama.random_init(0)
    lens.tokenizer = Letters()
    path = tmp_path / "text.txt"
    path.write_text("the sky is blue and the sea is green")
    result = headscan.flow.run(lens, text=str(path), windows=3, length=6, recover=False)
    ids = [[ord(letter) % 50 for letter in path.read_text()[k : k + 6]] for k in (0, 6, 12)]
    assert (
        result.arrays["leak"] == headscan.flow.run(lens, ids, recover=False).arrays["leak"]
    ).all()
    assert result.protocol.text.tokens == 18
    assert result.prompts == 3
    with pytest.raises(headscan.BadInput, match="Give a prompt, or a text"):
        headscan.flow.run(lens)


def test_the_channel_has_noise_and_bounds(llama, tmp_path):
    result = headscan.flow.channel(llama, [IDS], at="block.1", out=tmp_path)
    measured = result.parts[0]
    assert measured.bounds[1].noise == 0.5
    assert 0 < measured.bounds[1].bits <= np.log2(50)
    assert load(tmp_path).document == result.document
    assert len(result.frame("bounds")) == 4
    assert (tmp_path / "report.html").is_file()
    with pytest.raises(headscan.BadInput, match="no 'magic'"):
        result.frame("magic")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"noise": float("nan")}, "--noise must be a finite number"),
        ({"noise": [0.5, 0.0]}, "--noise must be greater than 0"),
        ({"noise": "loud"}, "--noise takes numbers"),
        ({"noise": []}, "at least one number"),
    ],
)
def test_a_fault_of_the_channels_options_is_one_sentence(llama, options, sentence):
    with pytest.raises(headscan.BadInput, match=sentence):
        headscan.flow.channel(llama, IDS, **options)


def test_noise_is_taken_as_text_or_numbers(llama):
    from_text = headscan.flow.channel(llama, IDS, noise="0.5,1")
    from_numbers = headscan.flow.channel(llama, IDS, noise=[0.5, 1.0])
    assert from_text.parts == from_numbers.parts
    assert {row.noise for row in from_text.parts[0].noise} == {0.5, 1.0}
