"""The whole way: targets, units, chats, masked models, faithfulness, and every fault of the input
in one sentence.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pytest
import torch

import headscan
from headscan import load
from headscan.attribution import METHODS, AttributionMethod, MethodWords, attribute, find_units
from headscan.run import Option
from headscan.text.prompts import read_prompt
from tests.attribution.attribution_cases import IDS, WIPERS, build


class Words:
    """A tokenizer of whole words with a mask and a chat template."""

    all_special_ids = (0, 1)
    mask_token = "[MASK]"
    mask_token_id = 1
    eos_token_id = 0
    chat_template = "x"

    def __init__(self):
        self.words = {"[EOS]": 0, "[MASK]": 1}

    def encode(self, text, add_special_tokens=True):
        return [self.words.setdefault(word, len(self.words)) for word in text.split()]

    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": self.encode(text)}

    def decode(self, ids):
        return {i: w for w, i in self.words.items()}.get(ids[0], "?")

    def apply_chat_template(self, messages, **_):
        return " ".join(f"<{m['role']}> {m['content']}" for m in messages) + " <assistant>"


def with_words(family):
    lens = build(family)
    lens.tokenizer = Words()
    return lens


def test_the_seeds_prompt_on_a_real_model_has_all_methods_and_loads_again(stories, tmp_path):
    found = attribute(stories, WIPERS, method="all", out=tmp_path)
    document = load(tmp_path).document
    assert len(document["tokens"]) == len(document["scores"]) == len(document["ids"]) == 22
    assert document["tokens"][1] == "␣The"
    assert [one["method"] for one in document["maps"]] == METHODS.names()
    trust = document["faithfulness"]
    assert trust["deletion"]["probability"][0] == pytest.approx(
        document["steps"][0]["probability"], abs=1e-5
    )
    assert trust["insertion"]["probability"][-1] == pytest.approx(
        document["steps"][0]["probability"], abs=1e-5
    )
    assert trust["deletion"]["probability"][-1] == pytest.approx(
        trust["insertion"]["probability"][0], abs=1e-5
    )
    occlusion = document["maps"][METHODS.names().index("occlusion")]["faithfulness"]
    assert occlusion["deletion"]["area"] < occlusion["random"]["deletion"]
    assert found.frame().shape == (22, 6)
    assert "<script" not in found._repr_html_()


def test_a_masked_model_is_asked_at_its_masks():
    lens = with_words("bert")
    found = attribute(
        lens, "the cat [MASK] on the [MASK]", method="occlusion,gradient-x-input", substitute="mask"
    )
    steps = found.document["steps"]
    assert [step["position"] for step in steps] == [2, 5]
    assert found.arrays["scores/occlusion"].shape == (2, 6)
    assert abs(found.arrays["scores/occlusion"][0, 5]) < 1e-6  # a mask replaced by a mask
    assert found.arrays["scores/occlusion"][0, 4] != 0  # what stands behind counts
    with pytest.raises(headscan.BadInput, match=r"put \[MASK\] where"):
        attribute(lens, "no mask here")


def test_a_chat_goes_through_the_template_and_roles_are_kept():
    lens = with_words("gpt2")
    found = attribute(
        lens,
        [{"role": "system", "content": "be brief"}, {"role": "user", "content": "why so"}],
        faithfulness=False,
    )
    assert found.document["prompt"] == "<system> be brief <user> why so <assistant>"
    assert found.document["roles"] == [None, "system", "system", None, "user", "user", None]


def test_units_fall_on_words_and_sentences(stories):
    prompt = read_prompt(
        "One day, Lily went out. She didn't cry! Why?\nNo one", stories.tokenizer, stories.limits
    )
    words = [unit.text.replace("␣", "") for unit in find_units(prompt, "word")]
    assert words == [
        "<s>",
        "One",
        "day",
        ",",
        "Lily",
        "went",
        "out",
        ".",
        "She",
        "didn't",
        "cry",
        "!",
        "Why",
        "?⏎",
        "No",
        "one",
    ]
    sentences = [unit.text for unit in find_units(prompt, "sentence")]
    assert sentences == ["<s>", "␣One␣day,␣Lily␣went␣out.", "␣She␣didn't␣cry!", "␣Why?⏎", "No␣one"]
    for kind in ("token", "word", "sentence"):
        assert sorted(i for unit in find_units(prompt, kind) for i in unit.tokens) == list(
            range(len(prompt))
        )


def test_bfloat16_gives_the_same_order_as_float32(stories, assets):
    half = headscan.Lens.load(str(assets / "models" / "stories260K"), dtype="bfloat16")
    for method in ("gradient-x-input", "occlusion"):
        whole = np.array(
            attribute(stories, WIPERS, method=method, token=426, faithfulness=False).scores
        )
        short = np.array(
            attribute(half, WIPERS, method=method, token=426, faithfulness=False).scores
        )
        assert np.corrcoef(whole, short)[0, 1] > 0.98


def test_rounded_weights_that_carry_no_gradient_are_refused_for_gradients_only():
    lens = build("gpt2")

    class NoGradient(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x.detach())

    for block in lens.model.transformer.h:
        block.mlp.c_fc = NoGradient(block.mlp.c_fc)
        block.attn.c_attn = NoGradient(block.attn.c_attn)
    lens.model.transformer.ln_f = NoGradient(lens.model.transformer.ln_f)
    for weight in lens.model.parameters():
        weight.requires_grad_(False)
    with pytest.raises(
        headscan.BadInput, match=r"No gradient comes through 'tiny gpt2'.*occlusion"
    ):
        attribute(lens, IDS)
    assert len(attribute(lens, IDS, method="occlusion", substitute="mean").scores) == len(IDS)


@pytest.mark.parametrize(
    ("prompt", "options", "sentence"),
    [
        ("", {}, "prompt is empty"),
        ("   ", {}, "The prompt is empty"),
        ([], {}, "The prompt is empty"),
        ([7], {}, "single token"),
        ([7] * 65, {}, "has 65 tokens, but 'tiny gpt2' takes at most 64"),
        ([7, 60], {}, "Token id 60 is not in the vocabulary"),
        ("a b", {"token": "two words"}, "must be one token, but it is 2"),
        ("a b", {"token": 99}, "Token id 99"),
        ("a b", {"method": "magic"}, "There is no attribution method 'magic'"),
        ("a b", {"target": "vibes"}, "--target must be next, .* or sentence, not 'vibes'"),
        ("a b", {"target": "contrast"}, "needs the other token"),
        ("a b", {"token": 3, "against": 3}, "with itself"),
        ("a b", {"substitute": "pad"}, "no pad token"),
        ("a b", {"units": "chapter"}, "--units must be token, word or sentence"),
        ("a b", {"generate": 70}, "exceed|takes at most"),
        ("a b", {"generate": 0}, "at least 1"),
        (
            "a b c",
            {"generate": 2, "method": "occlusion", "substitute": "remove"},
            "removed only before one prediction",
        ),
    ],
)
def test_a_fault_of_the_input_is_one_sentence(prompt, options, sentence):
    with pytest.raises(headscan.BadInput, match=sentence) as raised:
        attribute(with_words("gpt2"), prompt, **options)
    assert str(raised.value).endswith((".", "?"))
    assert "\n" not in str(raised.value)


def test_models_that_predict_no_next_token_are_refused():
    from transformers import GPT2Config, GPT2Model, T5Config, T5ForConditionalGeneration

    headless = GPT2Model(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=1, n_head=2))
    translator = T5ForConditionalGeneration(
        T5Config(vocab_size=60, d_model=16, d_kv=4, d_ff=32, num_layers=1, num_heads=4)
    )
    for model, sentence in (
        (headless, "no output layer over the vocabulary"),
        (translator, "is an encoder-decoder"),
    ):
        with pytest.raises(headscan.BadInput, match=sentence):
            attribute(headscan.Lens(model), [1, 2, 3])


def test_memory_is_flat_in_the_length_of_the_prompt(gpt2):
    from headscan.attribution.engine import plan

    budget = 2**22
    for length in (8, 64, 512, 4096):
        made = plan(gpt2, length, 1, budget=budget)
        assert made.rows == 1 or made.rows * made.row_bytes <= budget


def test_a_method_of_ones_own_is_found_everywhere(gpt2, tmp_path):
    @METHODS.register("from-the-end")
    @dataclass(frozen=True, kw_only=True)
    class FromTheEnd(AttributionMethod):
        """A token counts by its distance from the end."""

        words = MethodWords(
            title="From the end", sentence="How late.", formula="k", cost="none", source="nobody"
        )
        power: Annotated[float, Option("Of the distance.", above=0)] = 1.0

        def explain(self, task):
            return task.of_tokens(np.arange(1.0, len(task.prompt) + 1)[None] ** self.power)

    try:
        found = attribute(
            gpt2, IDS, method=[FromTheEnd(power=2), "occlusion"], substitute="mean", out=tmp_path
        )
        assert found.scores[:3] == [1, 4, 9]
        assert [field.name for field in METHODS.parameters()["from-the-end"]] == ["power"]
        with pytest.raises(
            headscan.BadInput, match="power is not a parameter of the attribution method occlusion"
        ):
            METHODS.build("occlusion", {"power": 3.0})
        with pytest.raises(headscan.BadInput, match="power must be greater than 0"):
            FromTheEnd(power=0)
    finally:
        METHODS._items.pop("from-the-end")
    again = load(tmp_path)  # shown without the method being installed
    assert again.maps[0].parameters == {"power": 2}
    assert again.maps[0].words.title == "From the end"
    assert "From the end" in (tmp_path / "report.html").read_text()
    assert list(again.frame().columns) == ["token", "id", "from-the-end", "occlusion"]
    assert {finding.name for finding in again.findings} <= {"FAITHFUL", "UNFAITHFUL", "UNDECIDED"}


def test_maps_that_an_interrupted_run_had_finished_are_read_back(gpt2, tmp_path, monkeypatch):
    from headscan.attribution import run

    done = []
    score = run.score

    def counted(method, task, settings):
        done.append(method.name)
        if len(done) == 2:
            raise KeyboardInterrupt
        return score(method, task, settings)

    monkeypatch.setattr(run, "score", counted)
    options = {"method": "occlusion,combined", "substitute": "mean"}
    with pytest.raises(KeyboardInterrupt):
        attribute(gpt2, IDS, out=tmp_path, **options)
    with pytest.raises(headscan.BadInput, match="the prompt was"):
        attribute(gpt2, IDS[::-1], out=tmp_path, resume=True, **options)
    with pytest.raises(headscan.BadInput, match="--substitute was"):
        attribute(
            gpt2, IDS, out=tmp_path, resume=True, method="occlusion,combined", substitute="zero"
        )
    found = attribute(gpt2, IDS, out=tmp_path, resume=True, **options)
    assert done == ["occlusion", "combined", "combined"]
    stages = []
    again = attribute(gpt2, IDS, progress=lambda *told: stages.append(told), **options)
    assert found.scores == again.scores
    assert found.cost == again.cost
    assert (found.arrays["scores/combined"] == again.arrays["scores/combined"]).all()
    assert stages == [
        ("attribution · occlusion", 0, 2, "methods"),
        ("attribution · combined", 1, 2, "methods"),
        ("attribution", 2, 2, "methods"),
    ]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"substitute": "mean", "faithfulness": False}, "--substitute is not used"),
        ({"continuation": "x", "generate": 2}, "not both"),
        ({"generate": 2, "token": 3}, "names its own tokens"),
        ({"method": []}, "at least one attribution method"),
    ],
)
def test_options_that_nothing_uses_or_that_exclude_each_other_are_refused(gpt2, options, sentence):
    with pytest.raises(headscan.BadInput, match=sentence):
        attribute(gpt2, IDS, **options)


@pytest.mark.parametrize(
    "given", [tuple(IDS), torch.tensor(IDS), np.array(IDS), torch.tensor([IDS])]
)
def test_ids_are_taken_alike_and_need_no_tokenizer(gpt2, given):
    options = {"method": "occlusion", "substitute": "mean", "faithfulness": False, "generate": 2}
    found = attribute(gpt2, given, **options)
    assert found.scores == attribute(gpt2, IDS, **options).scores
    assert found.tokens[0] == f"<id {IDS[0]}>"


def test_of_an_encoder_without_a_head_the_sentence_vector_is_explained(tmp_path):
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        initializer_range=0.2,
    )
    lens = headscan.Lens(BertModel(config).eval(), name="encoder")
    ids = [3, 1, 4, 1, 5, 9]

    def vector(tokens):
        with torch.no_grad():
            return lens.model(torch.tensor([tokens])).last_hidden_state[0].mean(0).double().numpy()

    def cosine(one, other):
        return one @ other / np.linalg.norm(one) / np.linalg.norm(other)

    whole = vector(ids)
    expected = [1 - cosine(whole, vector([*ids[:k], 30, *ids[k + 1 :]])) for k in range(6)]
    found = attribute(lens, ids, substitute=30, out=tmp_path)
    assert found.method == "occlusion"
    assert found.scores == pytest.approx(expected, abs=1e-5)
    assert (found.target.kind, found.target.judged, found.target.ids) == ("sentence", "cosine", [])
    assert "the mean over tokens" in found.target.sentence
    assert found.faithfulness.deletion.probability[0] == pytest.approx(1, abs=1e-5)
    assert headscan.load(tmp_path).document == found.document
    assert "sentence vector" in (tmp_path / "report.html").read_text()
    removed = attribute(
        lens, ids, method="occlusion", substitute="remove", faithfulness=False
    ).scores
    assert removed == pytest.approx(
        [1 - cosine(whole, vector(ids[:k] + ids[k + 1 :])) for k in range(6)], abs=1e-5
    )
    path = attribute(lens, ids, method="integrated-gradients", substitute=30, faithfulness=False)
    assert sum(path.scores) == pytest.approx(1 - cosine(whole, vector([30] * 6)), rel=1e-2)
    with pytest.raises(headscan.BadInput, match="has no slope"):
        attribute(lens, ids, method="combined")
    with pytest.raises(headscan.BadInput, match="predicts no token"):
        attribute(lens, ids, generate=2)


def test_a_sentence_vector_put_against_another_text_has_a_slope():
    lens = with_words("bert")  # whose sentence vector is explained where it is asked for
    found = attribute(
        lens, "the cat sat", target="sentence", against="a dog ran", faithfulness=False
    )
    assert found.method == "gradient-x-input"
    assert "that of 'a dog ran'" in found.target.sentence
    embeds = lens.model.get_input_embeddings()(torch.tensor([found.ids])).detach().requires_grad_()

    def mean(**inputs):
        return lens.model.bert(**inputs).last_hidden_state[0].mean(0)

    other = mean(
        input_ids=torch.tensor(
            [attribute(lens, "a dog ran", target="sentence", faithfulness=False).ids]
        )
    )
    torch.cosine_similarity(mean(inputs_embeds=embeds), other.detach(), dim=0).backward()
    assert found.scores == pytest.approx(
        (embeds.grad * embeds)[0].sum(-1).tolist(), rel=1e-3, abs=1e-7
    )
