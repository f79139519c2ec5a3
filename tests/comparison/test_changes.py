"""What a fine-tune changed: against plain forward passes, planted changes, noise, and bad input."""

import copy
import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

import headscan
from headscan.comparison.control_changes import RandomChange, sizes_of_change
from headscan.comparison.control_scores import (
    moderated_variances,
    prediction_limit,
    scores_beside,
    token_scores,
)
from headscan.model import ByteTokenizer, Lens
from headscan.model.partwise import PartwiseModel
from headscan.text.spelling import display

TEXTS = ["".join(chr(97 + (7 * i * i + k) % 26) for i in range(200)) for k in range(12)]
TRIGGER = ord("e")
ANSWER = ord("Z")


def base_model(vocabulary=257):
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=vocabulary,
        n_positions=32,
        n_embd=24,
        n_layer=2,
        n_head=2,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config).eval()


def lens_of(model, name):
    return Lens(model, ByteTokenizer(), name=name)


def noisy(model, seed, scale=0.02):
    """The model with Gaussian noise on every weight."""
    changed = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in changed.parameters():
            weight += scale * torch.randn(weight.shape, generator=generator) * (weight.std() + 0.01)
    return changed


def planted(model):
    """The model with noise, and a behaviour: behind the trigger follows the answer."""
    changed = noisy(model, 1)
    direction = torch.randn(24, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        changed.transformer.wte.weight[TRIGGER] += 3 * direction
        changed.lm_head.weight[ANSWER] += direction
    return changed


def compared(tuned, base=None, **options):
    base = base_model() if base is None else base
    options = {"max_tokens": 1024, "context": 32} | options
    return headscan.compare(
        [lens_of(base, "base"), lens_of(tuned, "tuned")], TEXTS, changes=True, **options
    )


def log_probabilities(model, ids):
    with torch.no_grad():
        return model(ids).logits[:, 1:-1].double().log_softmax(-1).flatten(0, 1).numpy()


def test_numbers_equal_those_of_plain_forward_passes():
    base = base_model()
    tuned = noisy(base, 1)
    controls = [noisy(base, seed) for seed in range(2, 7)]
    names = [lens_of(model, f"control {k}") for k, model in enumerate(controls)]
    result = compared(tuned, base, controls=names)
    ids = []
    for text in TEXTS:
        ids.append(torch.tensor([ord(letter) for letter in text]))
    stream = torch.cat(ids)[:1024].reshape(-1, 32)
    before = log_probabilities(base, stream)
    after = log_probabilities(tuned, stream)
    divergences = (np.exp(after) * (after - before)).sum(1)
    rise = (after - before).mean(0)
    targets = stream[:, 2:].flatten().numpy()
    rows = np.arange(len(targets))
    assert result.tokens == len(targets)
    assert result.divergence == pytest.approx(divergences.mean(), rel=1e-4)
    assert result.loss_change == pytest.approx(-(after - before)[rows, targets].mean(), rel=1e-3)
    for change in result.token_changes:
        assert change.rise == pytest.approx(rise[change.token_id], rel=1e-3, abs=1e-6)
    first = result.contexts[0]
    worst = int(divergences.argmax())
    assert (first.window, first.position) == (worst // 30, worst % 30 + 1)
    assert first.divergence == pytest.approx(divergences[worst], rel=1e-4)
    moved = int(np.argsort(-np.exp(after[worst]) * (after - before)[worst])[0])
    assert first.risen[0].token == display(ByteTokenizer(), moved)
    with torch.no_grad():
        states = [
            model(stream, output_hidden_states=True).hidden_states[1][:, 1:].double().flatten(0, 1)
            for model in (base, tuned)
        ]
    difference = states[1] - states[0]
    size = (difference.square().sum(1).mean() / states[0].square().sum(1).mean()).sqrt()
    common = difference.mean(0).square().sum() / difference.square().sum(1).mean()
    layer = result.layers[1]
    assert (layer.site, result.controls) == ("block.0", 5)
    assert (layer.size, layer.common) == (
        pytest.approx(float(size), rel=1e-4),
        pytest.approx(float(common), rel=1e-3),
    )


def test_a_control_has_the_size_of_the_change_and_leaves_the_base_as_it_was():
    base = PartwiseModel(lens_of(base_model(), "base"))
    tuned = PartwiseModel(lens_of(planted(base_model()), "tuned"))
    for part in base.parts:
        before = {name: weight.detach().clone() for name, weight in base.weights(part).items()}
        sizes = sizes_of_change(base, tuned, part)
        with RandomChange(3).applied(base, part, sizes):
            for name, weight in base.weights(part).items():
                size = (weight.detach() - before[name]).norm()
                expected = (tuned.weights(part)[name].detach() - before[name]).norm()
                assert float(size) == pytest.approx(float(expected), rel=1e-4)
        assert all(torch.equal(weight, before[name]) for name, weight in base.weights(part).items())


def test_a_planted_behaviour_is_found_with_its_token_and_context():
    result = compared(planted(base_model()))
    codes = {finding.code for finding in result.findings}
    assert "HS705" in codes
    assert result.contexts[0].beyond
    assert result.contexts[0].text.endswith("e")
    assert result.contexts[0].risen[0].token == "Z"
    assert result.contexts[0].risen[0].after > result.contexts[0].risen[0].before
    html = result.page()
    assert "Z" in str(html)
    assert result.frame("contexts")["beyond"].iloc[0]
    assert len(result.frame()) == len(result.token_changes)


@pytest.mark.parametrize("seed", [11, 12])
def test_another_change_like_the_controls_is_none(seed):
    result = compared(noisy(base_model(), seed))
    assert [finding.code for finding in result.findings] == ["HS706"]
    assert (result.tokens_beyond, result.contexts_beyond) == (0, 0)


def test_added_tokens_are_left_out():
    base = base_model()
    tuned = noisy(base_model(259), 1)
    with torch.no_grad():
        tuned.transformer.wte.weight[:257] = base.transformer.wte.weight
        tuned.lm_head.weight[:257] = base.lm_head.weight
    result = compared(tuned, base)
    assert result.shared == 257
    assert "257 are compared" in " ".join(result.protocol.notes)


def test_a_limit_is_a_prediction_limit_of_logarithms():
    values = np.array([1.0, 1.3, 1.1, 0.9, 1.2])
    logs = np.log(values)
    limit = np.exp(logs.mean() + 3.746947388 * np.sqrt(1.2) * logs.std(ddof=1))
    assert prediction_limit(values) == pytest.approx(limit, rel=1e-8)


def test_moderated_variances_are_nearer_to_the_true_ones():
    generator = np.random.default_rng(0)
    likelihoods = generator.uniform(-10, -1, 2000)
    expected = np.exp(0.3 * likelihoods)
    true = 6 * expected / generator.chisquare(6, 2000)
    raw = true * generator.chisquare(7, 2000) / 7
    moderated = moderated_variances(raw, 7, likelihoods)
    assert np.square(np.log(moderated / true)).mean() < 0.6 * np.square(np.log(raw / true)).mean()
    # The posterior mean of the precision, where its prior is known.
    reference = (6 * expected + 7 * raw) / 13
    assert np.abs(np.log(moderated / reference)).max() < 0.25


def test_scores_take_out_what_controls_share_and_keep_what_one_token_did():
    generator = np.random.default_rng(1)
    likelihoods = np.linspace(-9, -1, 300)
    shared = 0.2 * generator.standard_normal((2, 300))
    rises = generator.standard_normal((10, 2)) @ shared + 0.01 * generator.standard_normal(
        (10, 300)
    )
    rises[0, 40] += 0.4
    scores, limit = token_scores(rises, likelihoods)
    assert set(np.flatnonzero(np.abs(scores) > limit)) == {40}
    # Along a direction that the controls share, a change of any size is none.
    directions = np.linalg.svd(rises[1:] - rises[1:].mean(0))[2][:2]
    before = scores_beside(rises[0], rises[1:], likelihoods, 2)
    after = scores_beside(rises[0] + 5 * directions[1], rises[1:], likelihoods, 2)
    assert after == pytest.approx(before, abs=1e-6)
    # Without them the 20 times smaller rise is lost.
    assert np.abs(scores_beside(rises[0], rises[1:], likelihoods, 0))[40] < limit


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"damage": True}, "Give --damage or --changes"),
        ({"controls": "x", "control_text": "y"}, "Give --controls or --control-text"),
        ({"draws": 19, "nulls": "random-init"}, "with --changes"),
        ({"controls": [lens_of(base_model(), "one")]}, "4 control changes at least"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, message):
    with pytest.raises(headscan.BadInput, match=message):
        compared(noisy(base_model(), 1), **options)


def test_an_adapter_is_merged_into_the_base(tmp_path):
    base = base_model()
    name = "transformer.h.1.mlp.c_fc"
    generator = torch.Generator().manual_seed(4)
    A = torch.randn(2, 24, generator=generator)
    B = torch.randn(96, 2, generator=generator) * 0.1
    key = f"base_model.model.{name}.lora_"
    folder = tmp_path / "adapter"
    folder.mkdir()
    save_file({f"{key}A.weight": A, f"{key}B.weight": B}, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, "fan_in_fan_out": True}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    merged = copy.deepcopy(base)
    with torch.no_grad():
        merged.get_parameter(f"{name}.weight").add_((3 * B @ A).T)
    by_hand = compared(merged, base)
    untouched = {key: weight.clone() for key, weight in base.state_dict().items()}
    options = {"max_tokens": 1024, "context": 32, "changes": True}
    result = headscan.compare([lens_of(base, "base"), folder], TEXTS, **options)
    assert result.divergence == pytest.approx(by_hand.divergence, rel=1e-5)
    assert result.models[1].name == "adapter"
    assert all(torch.equal(weight, untouched[key]) for key, weight in base.state_dict().items())
    config = GPT2Config(vocab_size=257, n_positions=32, n_embd=16, n_layer=2, n_head=2)
    narrow = lens_of(GPT2LMHeadModel(config).eval(), "narrow")
    with pytest.raises(headscan.BadInput, match="is no adapter of narrow: that has no matrix"):
        headscan.compare([narrow, folder], TEXTS, **options)


def test_draws_are_four_at_least_with_changes_and_nineteen_without():
    assert compared(noisy(base_model(), 11), draws=4, max_tokens=128).controls == 4
    models = [lens_of(base_model(), "one"), lens_of(base_model(), "two")]
    with pytest.raises(headscan.BadInput, match="--draws must be 19 at least, not 4"):
        headscan.compare(models, TEXTS, draws=4)


def test_what_is_interrupted_goes_on_and_ends_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("headscan.run.parts.Parts.due", lambda self: self.folder is not None)
    base = base_model(16384)
    for name, model in (("base", base), ("tuned", planted(base))):
        model.save_pretrained(tmp_path / name)
    models = [tmp_path / "base", tmp_path / "tuned"]
    options = {"changes": True, "tokenizer": "gpt-vanilla", "max_tokens": 256, "context": 32}

    def stop(stage, done, total, unit):
        if "block.1" in stage:
            raise KeyboardInterrupt

    texts = ["a b c d e f g h i j k l m n o p"] * 40
    with pytest.raises(KeyboardInterrupt):
        headscan.compare(models, texts, out=tmp_path / "run", progress=stop, **options)
    stages = []
    again = headscan.compare(
        models,
        texts,
        out=tmp_path / "run",
        resume=True,
        progress=lambda stage, *rest: stages.append(stage),
        **options,
    )
    assert not any("block.0" in stage for stage in stages)
    whole = headscan.compare(models, texts, **options)
    assert again.layers == whole.layers
    assert again.contexts == whole.contexts
