"""A head that the weights lack: the model is read without it, and says so; anything else that is
missing is refused.
"""

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, MPNetConfig, MPNetForMaskedLM

from headscan import scan
from headscan.model import Lens
from headscan.run import BadInput
from tests.model.tiny import gpt2, ids, llama

SIZES = {
    "vocab_size": 61,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
MASKED = {
    "mpnet": lambda: MPNetForMaskedLM(MPNetConfig(**SIZES, max_position_embeddings=40)),
    "bert": lambda: BertForMaskedLM(BertConfig(**SIZES, max_position_embeddings=40)),
    "llama": lambda: llama(tie_word_embeddings=False),
}


def without(folder, *prefixes: str) -> None:
    """Take the weights that begin with one of `prefixes` out of the file."""
    file = folder / "model.safetensors"
    remaining = {
        name: value for name, value in load_file(file).items() if not name.startswith(prefixes)
    }
    save_file(remaining, file, {"format": "pt"})


@pytest.fixture(params=MASKED)
def saved(request, tmp_path):
    torch.manual_seed(0)
    model = MASKED[request.param]().eval()
    model.save_pretrained(tmp_path / "encoder")
    return model, tmp_path / "encoder"


def test_a_model_without_its_head_is_read_as_its_base(saved):
    original, folder = saved
    without(folder, "lm_head", "cls")
    lens = Lens.load(folder, device="cpu")
    assert type(lens.model) is type(original.base_model)
    assert "head" not in lens.sites
    notes = [note for note in lens.provenance().notes if type(original).__name__ in note]
    assert len(notes) == 1
    assert f"read as {type(original.base_model).__name__}, which has no logits" in notes[0]
    site = "block.1"
    assert torch.equal(
        lens.run(ids(), sites=site)[site], Lens(original).run(ids(), sites=site)[site]
    )
    twin = lens.random_init(0)
    assert type(twin.model) is type(lens.model)


def test_weights_saved_without_the_prefix_of_the_head_are_found(saved):
    """Sentence encoders are saved as the bare model, under names without the prefix."""
    original, folder = saved
    config = (folder / "config.json").read_text()
    original.base_model.save_pretrained(folder)
    (folder / "config.json").write_text(config)
    lens = Lens.load(folder, device="cpu")
    assert type(lens.model) is type(original.base_model)
    assert torch.equal(lens.input_embeddings, original.get_input_embeddings().weight)


def test_more_than_the_head_missing_is_refused(saved):
    original, folder = saved
    prefix = original.base_model_prefix
    last = "encoder.layer.1." if prefix != "model" else "layers.2."
    without(folder, "lm_head", "cls", f"{prefix}.{last}")
    with pytest.raises(
        BadInput, match=rf"do not fit its configuration: \d+ that {type(original).__name__} needs"
    ):
        Lens.load(folder, device="cpu")


def test_no_file_at_all_of_the_base_is_refused(tmp_path):
    gpt2().save_pretrained(tmp_path)
    save_file({"something.else": torch.zeros(3)}, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(BadInput, match="would be random"):
        Lens.load(tmp_path, device="cpu")


def test_the_scan_of_it_says_so_in_record_and_page(tmp_path):
    torch.manual_seed(0)
    sizes = SIZES | {"vocab_size": 256, "max_position_embeddings": 40}
    BertForMaskedLM(BertConfig(**sizes)).save_pretrained(tmp_path / "encoder")
    without(tmp_path / "encoder", "cls")
    result = scan(
        tmp_path / "encoder",
        ["Once there was a hen. " * 20],
        context=16,
        tokenizer="bytes",
        device="cpu",
    )
    (note,) = result.document["models"][0]["notes"]
    assert "names BertForMaskedLM, but the file lacks its head" in note
    assert "is read as BertModel, which has no logits" in result.page()


def test_the_real_sentence_encoder(real):
    lens = Lens.load(real / "all-mpnet-base-v2", device="cpu")
    assert type(lens.model).__name__ == "MPNetModel"
    assert (lens.depth, lens.width("block.0")) == (12, 768)
    assert any("names MPNetForMaskedLM" in note for note in lens.notes)
    encoded = lens.require_tokenizer()(["A cat."], return_tensors="pt")
    with torch.no_grad():
        states = lens.model(**encoded, output_hidden_states=True).hidden_states
    mine = lens.run(
        encoded["input_ids"], attention_mask=encoded["attention_mask"], sites="embedding, block.*"
    )
    for site, state in zip(mine, states, strict=True):
        assert torch.equal(mine[site], state)
