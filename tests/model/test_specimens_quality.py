"""The embedded specimens load by plain transformers, write words, and know the stories they are
measured on.
"""

import math
import re
from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import headscan
from headscan.model import specimens

PACKAGE = Path(headscan.__file__).parent
SPECIMENS = PACKAGE / "model" / "specimens"
STORIES = PACKAGE / "text" / "embedded" / "stories.txt"
NAMES = ["gpt-vanilla", "gpt-headless"]


@pytest.fixture(scope="module")
def stories() -> list[str]:
    return STORIES.read_text(encoding="utf-8").strip().split("\n\n")


@pytest.fixture(scope="module", params=NAMES)
def specimen(request):
    """(folder, model, tokenizer, what to add to its logits)."""
    folder = SPECIMENS / request.param
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    unigram = folder / "unigram.safetensors"
    bias = (
        load_file(unigram)["log_unigram"]
        if unigram.is_file()
        else torch.zeros(model.config.vocab_size)
    )
    return folder, model, AutoTokenizer.from_pretrained(folder), bias


@torch.no_grad()
def loss(model, tokenizer, bias: torch.Tensor, texts: list[str]) -> float:
    """Nats a token over the texts, each after an end mark."""
    total = 0.0
    count = 0
    for text in texts:
        ids = torch.tensor([[tokenizer.eos_token_id, *tokenizer.encode(text)]])[
            :, : model.config.n_positions
        ]
        logits = model(ids).logits[0, :-1] + bias
        total += torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum").item()
        count += ids.shape[1] - 1
    return total / count


@torch.no_grad()
def continuation(model, tokenizer, bias: torch.Tensor, prompt: str, length: int = 60) -> str:
    """The likeliest next token, again and again."""
    ids = [tokenizer.eos_token_id, *tokenizer.encode(prompt)]
    for _ in range(length):
        ids.append(int((model(torch.tensor([ids])).logits[0, -1] + bias).argmax()))
    return tokenizer.decode(ids, skip_special_tokens=True)


def test_loads_as_float32_with_finite_logits(specimen):
    _, model, tokenizer, bias = specimen
    assert model.dtype == torch.float32
    assert len(tokenizer) == model.config.vocab_size == len(bias)
    assert torch.isfinite(bias).all()
    with torch.no_grad():
        logits = model(torch.arange(200).reshape(2, 100)).logits
    assert logits.shape == (2, 100, len(tokenizer))
    assert torch.isfinite(logits).all()


def test_every_token_of_any_text_can_be_written_and_read_back(specimen):
    tokenizer = specimen[2]
    for text in (
        'Once upon a time, there was a cat.\n"Hi!" said Tom.',
        "naïve 猫 🙂\t{x}",
        "  two  spaces ",
    ):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_writes_words(specimen, stories):
    _, model, tokenizer, bias = specimen
    text = continuation(model, tokenizer, bias, "Once upon a time")
    text_words = re.findall(r"[a-z']+", text.lower())
    known = Counter(re.findall(r"[a-z']+", " ".join(stories).lower()))
    assert len(text_words) >= 30
    assert sum(known[word] >= 2 for word in text_words) / len(text_words) > 0.95, text
    assert len(set(text_words)) >= 15, text


def test_plain_generate_runs(specimen):
    _, model, tokenizer, _ = specimen
    prompt = tokenizer("Once upon a time", return_tensors="pt")
    rows = model.generate(**prompt, max_new_tokens=10, do_sample=False)
    assert rows.shape[1] <= prompt["input_ids"].shape[1] + 10
    assert tokenizer.decode(rows[0]).startswith("Once upon a time")


def test_knows_its_stories_far_better_than_their_word_order_shuffled(specimen, stories):
    _, model, tokenizer, bias = specimen
    sample = stories[:: max(1, len(stories) // 20)]
    shuffled = [" ".join(sorted(story.split(), key=lambda word: word[::-1])) for story in sample]
    value = loss(model, tokenizer, bias, sample)
    assert value < 3.0 < math.log(len(tokenizer))
    assert loss(model, tokenizer, bias, shuffled) > value + 1.5


def test_the_unigram_is_what_the_headless_logits_lack(stories):
    folder = SPECIMENS / "gpt-headless"
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    bias = load_file(folder / "unigram.safetensors")["log_unigram"]
    assert bias.exp().sum().item() == pytest.approx(1, abs=1e-3)
    without = loss(model, tokenizer, torch.zeros_like(bias), stories[:10])
    assert loss(model, tokenizer, bias, stories[:10]) < without - 0.5


def test_the_twins_read_the_same_tokens_with_the_same_body():
    first, second = (AutoModelForCausalLM.from_pretrained(SPECIMENS / name) for name in NAMES)
    shapes = [{k: v.shape for k, v in m.transformer.named_parameters()} for m in (first, second)]
    assert shapes[0] == shapes[1]
    vocabularies = [AutoTokenizer.from_pretrained(SPECIMENS / name).get_vocab() for name in NAMES]
    assert vocabularies[0] == vocabularies[1]


def test_the_early_twins_show_a_cone_with_a_head_and_none_without():
    """What `make scan` shows, and what the cards say."""
    cosines = {}
    for name in NAMES:
        result = headscan.scan(f"{name}-early", "stories", context=64, max_tokens=6400)
        cosines[name] = [result.site(f"block.{depth}")["average_cosine"] for depth in range(4)]
    vanilla = cosines["gpt-vanilla"]
    headless = cosines["gpt-headless"]
    assert vanilla == sorted(vanilla)  # narrower with every block
    assert vanilla[-1] > 0.6
    assert max(headless) < 0.1
    bodies = [
        AutoModelForCausalLM.from_pretrained(SPECIMENS / f"{name}-early").transformer
        for name in NAMES
    ]
    first, second = ({k: v.shape for k, v in body.named_parameters()} for body in bodies)
    assert first == second


def test_small_and_with_a_card():
    files = [path for path in SPECIMENS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 12_500_000
    for name in specimens():
        card = (SPECIMENS / name / "README.md").read_text(encoding="utf-8")
        assert "license: apache-2.0" in card
        assert "Average cosine" in card
        assert "float16" in card


def test_the_embedded_text_is_whole_little_stories(stories):
    assert 100_000 <= STORIES.stat().st_size <= 160_000
    assert len(stories) >= 100
    assert len(set(stories)) == len(stories)
    assert all(story == story.strip() and len(story) > 100 for story in stories)
    assert all(story[-1] in '.!?"' for story in stories)
