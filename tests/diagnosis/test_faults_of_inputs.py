"""Faults that the loss alone does not tell: dropout that was left on, equal token rows, embeddings
of the wrong scale; each is seen by its own number, which the healthy model has at rest.
"""

import copy

import pytest
import torch
from torch import nn

from headscan.diagnosis import CONDITIONS, CheckupInputs, ModelEvidence
from headscan.diagnosis.measurements import Measurements
from headscan.diagnosis.plan import Deadline, ExaminationPlan
from headscan.diagnosis.weights import equal_rows_of, fingerprint_of, vocabulary_order
from headscan.model import Lens
from headscan.model.settings import Loading
from headscan.run.settings import no_progress
from headscan.text.source import Reading


def healthy(lens: Lens) -> None:
    pass


def dropout_left_on(lens: Lens) -> None:
    for site in ("block.1.mlp", "block.3.mlp"):
        module = lens.tap(site).module
        module.register_forward_hook(lambda _module, _args, output: nn.functional.dropout(output))


def equal_rows(lens: Lens) -> None:
    table = lens.model.get_input_embeddings().weight
    table.data = table.data[torch.arange(len(table)) // 2 * 2].clone()


def wrong_scale(lens: Lens) -> None:
    lens.model.get_input_embeddings().register_forward_hook(
        lambda _module, _args, output: output / 4
    )


def numbers(lens: Lens) -> ModelEvidence:
    inputs = CheckupInputs(
        text="stories",
        reading=Reading(documents="whole", field="text", max_tokens=1024),
        loading=Loading(tokenizer=None, dtype="auto", device="cpu"),
        context=None,
        budget="full",
        seed=0,
    )
    plan = ExaminationPlan(passes=0, removed=2**20)
    deadline = Deadline(float("inf"))
    measured = Measurements(
        lens, plan, inputs, no_progress, deadline, lambda _stage, _kind, make: make()
    )
    return ModelEvidence(
        model="m",
        record=None,
        text=None,
        sites=[],
        repeat=measured.repeat(),
        equal_rows=equal_rows_of(lens, measured.token_ids),
        scale=measured.scale(),
    )


@pytest.mark.parametrize(
    ("fault", "code"),
    [(healthy, None), (dropout_left_on, "HS209"), (equal_rows, "HS218"), (wrong_scale, "HS219")],
)
def test_a_fault_is_seen_by_the_condition_that_knows_its_cause(fault, code):
    lens = Lens.load("gpt-vanilla")
    fault(lens)
    evidence = numbers(lens)
    present = set()
    for condition_code in ("HS209", "HS218", "HS219"):
        seen = CONDITIONS[condition_code].seen(evidence, [])
        assert seen is not None
        if CONDITIONS[condition_code].alarms(seen.value):
            present.add(condition_code)
    if code == "HS209":
        present &= {"HS209"}  # the losses at several scales are of other draws, too
    assert present == ({code} if code else set())


def test_equal_rows_are_no_order_of_the_vocabulary():
    """Copies of a row are alike: HS206 praised them."""
    lens = Lens.load("gpt-vanilla")
    order, _ = vocabulary_order(lens)
    equal_rows(lens)
    order_of_equal_rows, _ = vocabulary_order(lens)
    assert order_of_equal_rows < order + 3


def test_a_model_is_known_by_its_weights_and_not_by_its_name():
    lens = Lens.load("gpt-vanilla")
    twin = Lens(copy.deepcopy(lens.model), lens.tokenizer, name="another")
    assert fingerprint_of(twin.model) == fingerprint_of(lens.model)
    twin.model.get_input_embeddings().weight.data[0, 0] += 1
    assert fingerprint_of(twin.model) != fingerprint_of(lens.model)
