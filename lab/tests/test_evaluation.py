"""Evaluating a folder's model: the result, its page, its faults."""

import json

import pytest
import torch
from headscan_lab.evaluation.result import EvaluationResult
from headscan_lab.evaluation.run import evaluate
from transformers import AutoModel, GPT2Config, GPT2LMHeadModel

from headscan import BadInput, load
from headscan.model.rounding import round_block
from headscan.training import fit_tokenizer


@pytest.mark.parametrize("headless", [True, False])
def test_a_folder_is_evaluated_and_the_result_loads_again(headless, story, tmp_path):
    torch.manual_seed(0)
    tokenizer = fit_tokenizer([story], 300)
    config = GPT2Config(
        vocab_size=300,
        n_embd=16,
        n_layer=1,
        n_head=2,
        n_positions=64,
        bos_token_id=0,
        eos_token_id=0,
    )
    (AutoModel.from_config(config) if headless else GPT2LMHeadModel(config)).save_pretrained(
        tmp_path / "model"
    )
    tokenizer.save_pretrained(tmp_path / "model")
    sets = tmp_path / "sets"
    (sets / "lambada").mkdir(parents=True)
    (sets / "lambada" / "l.jsonl").write_text(
        '{"text": "ba de fi go"}\n{"text": "ku la <b>ba</b>"}\n'
    )
    result = evaluate(str(tmp_path / "model"), sets, out=tmp_path / "out")
    assert {score.task for score in result.scores} == (
        {"synonyms"} if headless else {"lambada", "synonyms"}
    )
    assert isinstance(load(tmp_path / "out"), EvaluationResult)
    assert len(result.frame()) == len(result.scores) >= 6
    assert "synonyms" in (tmp_path / "out" / "report.html").read_text()
    with pytest.raises(BadInput, match="holds no cola"):
        evaluate(str(tmp_path / "model"), sets, out=tmp_path / "refused", tasks=["cola"])
    with pytest.raises(BadInput, match="There is no folder"):
        evaluate(str(tmp_path / "nowhere"), sets, out=tmp_path / "refused")
    with pytest.raises(
        BadInput, match=r"Say which folder holds the evaluation sets: --text FOLDER\."
    ):
        evaluate(str(tmp_path / "model"), out=tmp_path / "refused")
    with pytest.raises(BadInput, match=r"There is no folder '.*gone' of evaluation sets"):
        evaluate(str(tmp_path / "model"), tmp_path / "gone", out=tmp_path / "refused")


def test_a_rounding_changes_scores_by_what_two_evaluations_say(story, tmp_path):
    torch.manual_seed(0)
    tokenizer = fit_tokenizer([story], 300)
    config = GPT2Config(
        vocab_size=300, n_embd=32, n_layer=2, n_head=2, n_positions=64, bos_token_id=0
    )
    model = GPT2LMHeadModel(config).eval()
    sets = tmp_path / "sets"
    (sets / "lambada").mkdir(parents=True)
    lines = [
        json.dumps({"text": f"ba de fi {word}"})
        for word in ["go", "ku", "la", "fi", "ba", "de", "du", "me"]
    ]
    (sets / "lambada" / "l.jsonl").write_text("\n".join(lines))
    for name in ("plain", "rounded"):
        if name == "rounded":
            for block in model.transformer.h:
                round_block(block, "q2_k")
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    options = {"tasks": ["lambada"]}
    result = evaluate(
        str(tmp_path / "plain"), sets, against="q2_k", out=tmp_path / "out", **options
    )
    numbers = result.of("lambada")
    apart = {}
    for name in ("plain", "rounded"):
        out = tmp_path / f"{name}-out"
        apart[name] = evaluate(str(tmp_path / name), sets, out=out, **options).of("lambada")
    for name in ("nats_per_word", "accuracy"):
        difference = apart["rounded"][name] - apart["plain"][name]
        assert numbers[f"{name} change"] == pytest.approx(difference, abs=1e-6)
        assert numbers[name] == apart["plain"][name]
    [change] = [score for score in result.scores if score.number == "nats_per_word change"]
    [whole] = [score for score in result.scores if score.number == "nats_per_word"]
    assert change.interval[0] <= change.value <= change.interval[1]
    assert change.interval[1] - change.interval[0] < whole.interval[1] - whole.interval[0]
    with pytest.raises(BadInput, match="--against is for tasks of sets"):
        evaluate(
            str(tmp_path / "plain"), against="q2_k", tasks=["lm-eval:piqa"], out=tmp_path / "no"
        )
