"""Weights of few bits are recognised where they are saved in full precision, and pages say so."""

import pytest
import torch

import headscan
from headscan.model import Lens, specimen_path
from headscan.model.grid import dequantised


def rounded(weight):
    """Return a matrix on 16 levels a group of 32 columns, as formats of 4 bits have."""
    groups = weight.reshape(-1, 32)
    step = groups.abs().amax(1, keepdim=True) / 7
    return ((groups / step).round() * step).reshape(weight.shape)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    lens = Lens.load("gpt-vanilla")
    assert dequantised(lens.model) == ""
    assert lens.provenance().dequantised == ""
    with torch.no_grad():
        for name, weight in lens.model.named_parameters():
            if weight.ndim == 2 and "wte" not in name and "wpe" not in name:
                weight.copy_(rounded(weight))
    out = tmp_path_factory.mktemp("rounded") / "model"
    lens.model.save_pretrained(out)
    for file in specimen_path("gpt-vanilla").glob("token*"):
        (out / file.name).write_bytes(file.read_bytes())
    return out


def test_a_dequantised_folder_is_named_in_protocol_and_page(folder):
    result = headscan.scan(str(folder), text="stories", max_tokens=256, context=32)
    (record,) = result.models
    assert record.dequantised.startswith("The weights were rounded before they were saved: 64")
    assert "The weights were rounded before they were saved" in result.page()


def test_weights_that_were_never_trained_are_not_called_rounded():
    assert dequantised(torch.nn.Linear(128, 128)) == ""
    model = torch.nn.Linear(128, 128)
    torch.nn.init.zeros_(model.weight)
    assert dequantised(model) == ""
