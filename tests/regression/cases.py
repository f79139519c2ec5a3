"""What is computed and kept: one function a case, each returning name -> number, list or array.

This is the only file here that knows headscan's interface. Where the interface changes, its calls
change here; the names and the numbers stay. Everything is seeded and runs on one thread: the order
of a sum depends on the threads.
"""

import functools
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

import headscan
from headscan.inversion import Direct, Indirect, Joint
from tests.regression.flat import Value, flat, prefixed, sha256

__all__ = ["CASES"]

Numbers = dict[str, Value]
CASES: dict[str, Callable[[], Numbers]] = {}
PROMPTS = ["Once upon a time there was a little boy.", "Tom saw a big red dog.", "The sky is blue."]
# Which row of a table it is, rather than a number of the row.
PLACE = ("model", "site", "null", "set", "depth")


def case(function: Callable[[], Numbers]) -> Callable[[], Numbers]:
    """Register a case; it runs on one thread, whatever the process has."""

    @functools.wraps(function)
    def alone() -> Numbers:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        torch.manual_seed(0)
        try:
            with threadpool_limits(1):  # numpy's and scipy's own
                return prefixed(function.__name__.replace("_", "-"), function())
        finally:
            torch.set_num_threads(threads)

    CASES[function.__name__.replace("_", "-")] = alone
    return alone


@functools.cache
def lens_of(name: str) -> Any:
    """An embedded specimen, loaded once."""
    return headscan.Lens.load(name)


# Geometry


def _scanned(result: Any) -> Numbers:
    """MODEL/SITE[/NULL][/PROBE[.SET][.ROW]]/NUMBER of every table of a scan, and its arrays."""
    document = result.document
    tables = [("", document["sites"] + document["nulls"])]
    tables += [(probe["name"], document[probe["name"]]) for probe in document["probes"]]
    numbers: Numbers = {}
    for table, rows in tables:
        keys = [_place(table, row) for row in rows]
        numbers_of_key: dict[str, int] = {}
        for key, row in zip(keys, rows, strict=True):
            number = numbers_of_key.get(key, 0)
            numbers_of_key[key] = number + 1
            path = f"{key}.{number}" if keys.count(key) > 1 else key
            numbers |= flat(path, {name: value for name, value in row.items() if name not in PLACE})
    account = document["protocol"]["text"]
    counted = {name: account[name] for name in ("documents", "characters", "tokens", "windows")}
    counted |= {"dropped_tokens": account["dropped"], "unknown_tokens": account["unknown"]}
    numbers |= flat("text", counted)
    for model, shown in document["pictures"].items():
        numbers |= flat(
            f"picture/{model}", {name: shown[name] for name in ("id", "position", "frequency")}
        )
    return numbers | flat("arrays", result.arrays)


def _place(table: str, row: Any) -> str:
    parts = [
        row["model"],
        row["site"],
        row.get("null"),
        f"{table}.{row['set']}" if row.get("set") else table,
    ]
    return "/".join(part for part in parts if part)


MEASURES = (
    "rankme,drift,alignment,attention,axis,collapse,dimension,frequency,head,loss,partition,rogue,"
    "sphere,words,zipf"
)
"""All that 0.1 had and this version has."""


@case
def scan() -> Numbers:
    models = ["gpt-vanilla", "gpt-headless"]
    return _scanned(
        headscan.scan(models, "stories", context=64, max_tokens=6400, null=True, measures=MEASURES)
    )


@case
def scan_skip_first() -> Numbers:
    models = ["gpt-vanilla-early", "gpt-headless-early"]
    return _scanned(
        headscan.scan(
            models,
            "stories",
            context=64,
            max_tokens=6400,
            skip_first=1,
            documents="paragraphs",
            sample=50,
        )
    )


@case
def scan_alignment() -> Numbers:
    return _scanned(
        headscan.scan(
            "gpt-headless-early", "stories", context=64, max_tokens=3200, measures="alignment"
        )
    )


# Counts


def _counted(counted: Any) -> Numbers:
    numbers = {
        name: sha256(np.asarray(getattr(counted, name)))
        for name in ("contexts", "indptr", "indices", "counts")
    }
    return numbers | {
        "contexts_found": len(counted.indptr) - 1,
        "entries": len(counted.indices),
        "total": int(np.asarray(counted.counts).sum()),
        "largest": int(np.asarray(counted.counts).max()),
        "tokens": int(counted.tokens),
        "documents": int(counted.documents),
    }


@case
def counts() -> Numbers:
    from headscan.model.tokenizer import load_tokenizer
    from headscan.text.counts import count_tokens
    from headscan.text.source import Counting, Reading
    from headscan.text.token_store import store_text

    numbers: Numbers = {}
    for name in ("bytes", "gpt-vanilla"):
        cutter = load_tokenizer("bytes") if name == "bytes" else lens_of(name).require_tokenizer()
        for order in (1, 2):
            for least in (1, 3):
                store, _ = store_text("stories", cutter, Reading(documents="paragraphs"))
                counted = count_tokens(store, Counting(order=order, min_count=least))
                numbers |= prefixed(f"{name}/order-{order}/at-least-{least}", _counted(counted))
        counted = count_tokens(
            store_text("stories", cutter, Reading(max_tokens=20_000))[0], Counting(order=2)
        )
        numbers |= prefixed(f"{name}/order-2/whole/20000-tokens", _counted(counted))
    return numbers


# Next-token prediction and the NTP-SVM


@case
def ntp() -> Numbers:
    result = headscan.ntp.run(
        "stories", order=2, tokenizer="bytes", max_tokens=6000, documents="paragraphs", groups=4
    )
    document = result.document
    names = (
        "tokens",
        "contexts",
        "supports",
        "entropy_bound",
        "single_successor_share",
        "data",
        "certificate",
        "solution",
        "uncertainty",
    )
    numbers: Numbers = {}
    for name in names:
        numbers |= flat(name, document[name])
    numbers |= flat("axes", [axis["strength"] for axis in document["axes"]])
    numbers |= flat(
        "cost", {name: document["cost"][name] for name in ("rows", "columns", "multiplications")}
    )
    return numbers | flat(
        "arrays", {name: result.arrays[name] for name in ("sigma", "sigma_centred")}
    )


@case
def ntp_prediction() -> Numbers:
    from headscan.model.tokenizer import load_tokenizer
    from headscan.ntp import certificate, predict
    from headscan.text.counts import count_tokens
    from headscan.text.source import Counting, Reading
    from headscan.text.token_store import store_text

    reading = Reading(documents="paragraphs", max_tokens=6000)
    counted = count_tokens(
        store_text("stories", load_tokenizer("bytes"), reading)[0], Counting(order=1)
    )
    prediction = predict(counted.matrix(), gap=1e-8)
    numbers = _solved(prediction.solution) | flat("sparse", prediction.sparse)
    numbers |= flat("spectrum", np.asarray(prediction.spectrum.sigma))
    numbers |= flat("gram", np.asarray(prediction.contexts @ prediction.contexts.T)[:8])
    numbers |= flat("certificate", dict(vars(certificate(prediction.labels.supports))))
    return numbers | flat("entropy", prediction.labels.entropy())


def _solved(solution: Any) -> Numbers:
    names = ("primal", "dual", "gap", "rank", "iterations", "converged", "penalty")
    numbers = {name: getattr(solution, name) for name in names}
    distinct = np.asarray(solution.distinct_logits)
    numbers |= {
        "supports": solution.distinct.contexts,
        "logits_norm": float(np.sqrt((solution.logits**2).sum())),
    }
    numbers |= {"inverse": sha256(solution.inverse), "weights": sha256(solution.weights)}
    singular = np.linalg.svd(np.sqrt(solution.weights)[:, None] * distinct, compute_uv=False)
    return numbers | {
        "logits": distinct[:40],
        "dual_logits": solution.distinct_dual[:40],
        "singular": singular,
    }


def _problems() -> dict[str, tuple[np.ndarray, np.ndarray | None]]:
    """Random supports (Zipf-like, repeated, weighted) and ones made to be hard."""
    problems: dict[str, tuple[np.ndarray, np.ndarray | None]] = {}
    for seed, (contexts, vocabulary) in enumerate([(3, 4), (9, 7), (20, 12), (40, 16), (12, 30)]):
        draw = np.random.default_rng(seed)
        chance = 1 / np.arange(1, vocabulary + 1)
        supports = np.zeros((contexts, vocabulary), dtype=bool)
        for row in supports:
            size = draw.integers(1, vocabulary // 2 + 1)
            row[draw.choice(vocabulary, size, False, chance / chance.sum())] = True
        supports[-1] = supports[0]
        problems[f"random-{seed}"] = supports, draw.uniform(0.5, 3, contexts) if seed % 2 else None
    nested = np.tril(np.ones((8, 9), dtype=bool))
    hub = np.eye(10, dtype=bool)
    hub[:, 0] = True
    hub[0, 1] = True
    problems["two-tokens"] = np.eye(2, dtype=bool), None
    problems["one-full"] = np.concatenate([np.eye(5), np.ones((1, 5))]).astype(bool), None
    problems["nested"] = nested, None
    problems["hub"] = hub, None
    problems["all-but-one"] = ~np.eye(7, dtype=bool), None
    problems["wide-weights"] = np.tril(np.ones((6, 7), dtype=bool)), 10.0 ** np.linspace(-6, 6, 6)
    problems["unused-tokens"] = np.pad(np.eye(4, dtype=bool), ((0, 0), (0, 9))), None
    return problems


@case
def svm() -> Numbers:
    from headscan.ntp import svm as solve

    numbers: Numbers = {}
    for name, (supports, weights) in _problems().items():
        numbers |= prefixed(
            name, _solved(solve(supports, weights=weights, gap=1e-8, max_iterations=2000))
        )
    return numbers


# Inversion


def _inverted(result: Any) -> Numbers:
    """Tokens, residuals, margins, evaluations and verdicts of each prompt."""
    numbers: Numbers = {}
    for number, prompt in enumerate(result.document["prompts"]):
        names = (
            "tokens",
            "recovered",
            "token_accuracy",
            "verdict",
            "verdicts",
            "evaluations",
            "evaluations_per_token",
        )
        entries = {name: prompt[name] for name in (*names, "passes", "top", "known")}
        proof = prompt["certificate"]
        entries |= {
            name: proof[name]
            for name in ("residual", "residuals", "tolerance", "margin", "margins", "unseen")
        }
        entries["equivalent"] = [len(rivals) for rivals in proof["equivalent"]]
        numbers |= flat(f"prompt-{number}", entries)
    return numbers | flat("token_accuracy", result.document["token_accuracy"])


@case
def inversion_exact() -> Numbers:
    numbers: Numbers = {}
    for model, sites in (
        ("gpt-vanilla", ("embedding", "block.0", "block.3")),
        ("gpt-headless-early", ("block.3",)),
    ):
        for site in sites:
            result = headscan.invert(lens_of(model), PROMPTS, at=site, method="exact")
            numbers |= prefixed(f"{model}/{site}", _inverted(result))
    return numbers


@case
def inversion_joint() -> Numbers:
    method = Joint(restarts=2, steps=40, budget=4000)
    return _inverted(
        headscan.invert(
            lens_of("gpt-vanilla-early"), "The sky is blue.", at="block.1", method=method
        )
    )


@case
def inversion_descent() -> Numbers:
    numbers: Numbers = {}
    methods = {"adam": Indirect(steps=60), "seed": Indirect(preset="seed", steps=20)}
    for name, method in (methods | {"seed-direct": Direct(preset="seed", steps=20)}).items():
        result = headscan.invert(lens_of("gpt-vanilla"), PROMPTS[2], at="block.0", method=method)
        numbers |= prefixed(name, _inverted(result))
    return numbers


# Attribution and flow


@case
def attribution() -> Numbers:
    methods = ["gradient-x-input", "occlusion", "combined", "integrated-gradients"]
    result = headscan.attribute(lens_of("gpt-vanilla"), PROMPTS[1], method=methods, target="next")
    numbers = flat("scores", result.arrays)
    not_numbers = ("method", "parameters", "words")
    for attribution_map in result.document["maps"]:
        numeric_fields = {
            name: value
            for name, value in attribution_map.items()
            if name not in not_numbers and value is not None
        }
        numbers |= flat(attribution_map["method"], numeric_fields)
    numbers |= flat("target", result.document["target"]["ids"]) | flat(
        "ids", result.document["ids"]
    )
    step = result.document["steps"][0]
    return numbers | flat(
        "step", {name: step[name] for name in ("position", "value", "probability")}
    )


@case
def flow() -> Numbers:
    result = headscan.flow.run(
        lens_of("gpt-vanilla-early"), "Tom saw a", at=["block.0", "block.3"], trials=3
    )
    names = ("leak", "recoverable", "margin")
    numbers = flat("arrays", {name: result.arrays[name] for name in names})
    for part in result.document["parts"]:
        numbers |= flat("noise", part["noise"]) | flat("candidates", part["candidates"])
        for site in part["sites"]:
            numbers |= flat(
                site["site"], {name: value for name, value in site.items() if name != "site"}
            )
    return numbers


# Training


def _story() -> str:
    """A small artificial language, so that the numbers rest on no file."""
    draw = random.Random(0)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    vocabulary = ["".join(draw.choices(syllables, k=draw.randint(1, 3))) for _ in range(120)]
    weights = [1 / (rank + 2) for rank in range(len(vocabulary))]
    return "\n".join(
        " ".join(draw.choices(vocabulary, weights, k=draw.randint(4, 9))) + "." for _ in range(800)
    )


@case
def training() -> Numbers:
    from headscan.training import recipe_of, train

    numbers: Numbers = {}
    for objective in ("cwt", "ce"):
        with tempfile.TemporaryDirectory() as folder:
            text = Path(folder) / "story.txt"
            text.write_text(_story())
            result = train(
                recipe_of("gpt").but(rate=1e-3, warmup=2),
                str(text),
                out=Path(folder) / "out",
                objective=objective,
                steps=12,
                batch=4,
                context=16,
                vocabulary=300,
                geometry_every=0,
                seed=0,
                trainer={"logging_steps": 1, "save_strategy": "no"},
            )
        curve = result.document["curve"]
        for name in ("loss", "floor_corrected_loss", "in_batch_accuracy", "learning_rate"):
            numbers |= flat(
                f"{objective}/{name}", [entry[name] for entry in curve if name in entry]
            )
        numbers |= flat(f"{objective}/heldout", result.document["heldout"])
    return numbers


@case
def contrastive_loss() -> Numbers:
    from headscan.training import cwt_loss, has_fused

    draw = torch.Generator().manual_seed(7)
    hidden = torch.randn(24, 10, generator=draw)
    table = torch.randn(15, 10, generator=draw)
    targets = torch.randint(0, 15, (24,), generator=draw)
    pool = torch.cat([targets, torch.randint(0, 15, (9,), generator=draw)])
    numbers: Numbers = {}
    for form in sorted(["chunked", "dense", "unique", *(["fused"] if has_fused() else [])]):
        for name, options in {
            "plain": {},
            "cosine": {"normalize": True, "temperature": 0.2},
            "pool": {"pool": pool, "temperature": 2.0},
        }.items():
            hidden_leaf = hidden.clone().requires_grad_()
            table_leaf = table.clone().requires_grad_()
            rows = cwt_loss(
                hidden_leaf, table_leaf, targets, form, reduction="none", chunk=8, **options
            )
            loss = cwt_loss(hidden_leaf, table_leaf, targets, form, chunk=8, **options)
            loss.backward()
            results = {
                "loss": loss.item(),
                "rows": rows,
                "hidden_gradient": hidden_leaf.grad,
                "table_gradient": table_leaf.grad,
            }
            numbers |= flat(f"{form}/{name}", results)
    return numbers
