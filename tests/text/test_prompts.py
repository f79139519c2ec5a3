"""Prompts are read alike, whatever they are given as."""

import numpy as np
import pytest
import torch

from headscan.model.tokenizer import ByteTokenizer
from headscan.run.errors import BadInput
from headscan.text.prompts import Limits, read_prompt, read_prompts

LIMITS = Limits("bytes", 256, 8)
IDS = [104, 105]


@pytest.mark.parametrize(
    "prompt_form",
    [
        "hi",
        IDS,
        tuple(IDS),
        np.array(IDS),
        torch.tensor(IDS),
        ["hi"],
        [IDS],
        np.array([IDS]),
        torch.tensor([IDS]),
        [np.array(IDS)],
        [torch.tensor(IDS)],
    ],
    ids=repr,
)
def test_every_form_gives_the_same_ids(prompt_form):
    [prompt] = read_prompts(prompt_form, ByteTokenizer(), LIMITS, special=False)
    assert prompt.ids == tuple(IDS)
    assert prompt.tokens == ("h", "i")
    assert read_prompts(prompt, ByteTokenizer(), LIMITS) == [prompt]


def test_several_of_different_kinds():
    prompts = read_prompts(
        ["hi", IDS, torch.tensor([1, 2, 3])], ByteTokenizer(), LIMITS, special=False
    )
    assert [prompt.ids for prompt in prompts] == [(104, 105), (104, 105), (1, 2, 3)]
    with pytest.raises(BadInput, match="One prompt"):
        read_prompt(["a", "b"], ByteTokenizer(), LIMITS)


def test_ids_need_no_tokenizer():
    prompt = read_prompt(IDS, None, LIMITS)
    assert prompt.tokens == ("<id 104>", "<id 105>")
    with pytest.raises(BadInput, match="without a tokenizer"):
        read_prompt("hi", None, LIMITS)


@pytest.mark.parametrize(
    ("bad_prompt", "says"),
    [
        ("", "empty"),
        ([], "empty"),
        ([[]], "empty"),
        (np.zeros((0,), int), "empty"),
        ("123456789", "takes at most 8"),
        ([1, 256], "Token id 256"),
        ([-1], "Token id -1"),
        ([1.5], "whole numbers"),
        (torch.tensor([0.5]), "whole"),
        ([True, False], "whole numbers"),
        (torch.zeros((1, 1, 1)), "shape"),
        (7, "not int"),
        (np.array(3), "shape"),
        ([{"role": "user"}], "chat template"),
        (["a", []], "empty"),
        ([[[1]]], "whole numbers"),
        ([1, None], "whole"),
    ],
)
def test_bad_prompts_are_told_in_a_sentence(bad_prompt, says):
    with pytest.raises(BadInput, match=says):
        read_prompts(bad_prompt, ByteTokenizer(), LIMITS, special=False)
