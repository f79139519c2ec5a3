"""A new objective, regulariser, recovery or task is one class or function; options that it does not
use are refused.
"""

import importlib.util
from dataclasses import dataclass
from typing import Annotated

import pytest
from headscan_lab.evaluation.task import TASKS

from headscan import BadInput
from headscan.run import Option
from headscan.training import (
    OBJECTIVES,
    RECOVERIES,
    REGULARISERS,
    LossInputs,
    Objective,
    ce_loss,
    recipe_of,
    recover,
    train,
)
from headscan.training.heads import head_of

OPTIONS = {
    "steps": 4,
    "batch": 4,
    "context": 16,
    "vocabulary": 300,
    "trainer": {"save_strategy": "no"},
    "geometry_every": 0,
}


@pytest.fixture
def registries(monkeypatch):
    """Forget after a test whatever it registered."""
    for registry in (OBJECTIVES, REGULARISERS, RECOVERIES, TASKS):
        _ = registry.names()
        monkeypatch.setattr(registry, "_items", dict(registry._items))


def test_a_new_objective_with_a_parameter_is_one_class(registries, story_file, tmp_path):
    @OBJECTIVES.register("focal")
    @dataclass(frozen=True, kw_only=True)
    class Focal(Objective):
        """Cross-entropy in which hard tokens weigh more."""

        focus: Annotated[float, Option("Power of the weight of a token.", low=0)] = 2.0

        def loss(self, inputs: LossInputs):
            head = head_of(inputs.model)
            losses = ce_loss(
                inputs.rows, head.rows, inputs.targets, bias=head.bias, reduction="none"
            )
            weighed = losses * (1 - (-losses.detach()).exp()) ** self.focus
            return weighed.mean() if inputs.reduction == "mean" else weighed.sum()

    plain = train("gpt", str(story_file), out=tmp_path / "a", objective="ce", **OPTIONS)
    mine = train(
        "gpt",
        str(story_file),
        out=tmp_path / "b",
        objective=OBJECTIVES.build("focal", {"focus": 0}),
        **OPTIONS,
    )
    assert mine.loss == plain.loss
    assert mine.objective.name == "focal"
    assert mine.objective.parameters == {"focus": 0}
    assert "focal, focus 0" in mine.page()
    assert (
        train("gpt", str(story_file), out=tmp_path / "c", objective="focal", **OPTIONS).loss
        < plain.loss
    )
    assert [field.name for field in OBJECTIVES.parameters()["focal"]] == ["focus"]
    with pytest.raises(
        BadInput, match="focus is not a parameter of the objective cwt; it belongs to focal"
    ):
        OBJECTIVES.build("cwt", {"focus": 1.0})
    with pytest.raises(BadInput, match=r"^focus must be at least 0"):
        Focal(focus=-1)


def test_a_new_regulariser_is_one_function(registries, story_file, tmp_path):
    @REGULARISERS.register("norm")
    def norm(inputs: LossInputs):
        return inputs.rows.square().mean()

    result = train("gpt", str(story_file), out=tmp_path, regulariser="norm:0.5", **OPTIONS)
    assert result.curve[-1].penalty > 0


@pytest.mark.parametrize(
    ("objective", "options", "message"),
    [
        (
            "ce",
            {"temperature": 2.0},
            "temperature is not a parameter of the objective ce; it belongs to",
        ),
        (
            "cwt",
            {"projection": "full"},
            "projection is not a parameter of the objective cwt; it belongs to ce",
        ),
        ("cwt", {"temperature": 0.0}, "temperature must be greater than 0"),
        ("cwt", {"temperature": float("nan")}, "temperature must be a finite number"),
    ],
)
def test_options_of_another_objective_are_refused(objective, options, message):
    with pytest.raises(BadInput, match=message):
        OBJECTIVES.build(objective, options)


def test_options_of_another_recovery_are_refused():
    with pytest.raises(
        BadInput,
        match="steps is not a parameter of the head recovery bias; it belongs to finetune, probe",
    ):
        RECOVERIES.build("bias", {"steps": 3})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pool": "all", "objective": "ce"}, "--pool is not used by the objective ce"),
        ({"tied": True}, "--tied is not used by the objective cwt"),
        ({"tokenizer": "x", "vocabulary": 300}, "--vocabulary is not used"),
        ({"geometry_every": 2, "held_out": 0.0}, "--geometry-every is not used"),
        ({"rate": -1.0}, "rate must be greater than 0"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"regulariser": "sine:1"}, "no regulariser 'sine'"),
        ({"out": None}, "give --out"),
        ({"trainer": {"no_such": 1}}, "does not take these arguments"),
    ],
)
def test_options_that_mean_nothing_are_refused_before_the_text_is_read(options, message, tmp_path):
    with pytest.raises(BadInput, match=message):
        train("gpt", "/no/such/text.txt", **({"out": tmp_path} | options))


def test_a_missing_package_is_named_with_its_extra(monkeypatch, tmp_path):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *a: None if name == "accelerate" else real(name, *a),
    )
    with pytest.raises(BadInput, match=r'accelerate: pip install "headscan\[train\]"'):
        train("gpt", "/no/such/text.txt", out=tmp_path)


def test_recover_takes_what_it_can_check_before_the_model(tmp_path):
    with pytest.raises(BadInput, match="no head recovery 'magic'"):
        recover("/no/such/model", "/no/such/text.txt", out=tmp_path, mode="magic")
    with pytest.raises(BadInput, match="give --out"):
        recover("/no/such/model", "/no/such/text.txt")


def test_words_and_kinds():
    for name, item in {**OBJECTIVES, **RECOVERIES, **TASKS, **REGULARISERS}.items():
        assert item.__doc__.strip().splitlines()[0], name
    headless = {name for name, item in OBJECTIVES.items() if item.headless}
    assert headless == {"cwt"}
    kinds = {name for name, item in OBJECTIVES.items() if item.contrastive}
    assert kinds == {"cwt", "ce+cwt"}


@pytest.mark.parametrize(
    ("mixing", "kernels", "field", "expected"),
    [
        ("flat", None, "mixing_branches", 2),
        ("parallel", 3, "mixing_branches", 3),
        ("expanded", 1, "mixing_expansion", 1),
    ],
)
def test_a_mixer_mixes_as_asked(mixing, kernels, field, expected):
    config = recipe_of("mixer").mixing(mixing, kernels).config(300)
    assert config.mixing == mixing
    assert getattr(config, field) == expected
    assert config.vocab_size == 300


def test_mixing_belongs_to_mixers():
    with pytest.raises(BadInput, match="belong to the recipe mixer"):
        recipe_of("gpt").mixing("flat", None)
    with pytest.raises(BadInput, match="--kernels belongs to --mixing parallel"):
        recipe_of("mixer").mixing("flat", 2)
