"""The page, table and plot of a prediction (`headscan ntp`), from saved data alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscan.errors import BadInput
from headscan.report import ntp_plots, page
from headscan.report.scan import flat, when
from headscan.report.terminal import clean, finding
from headscan.report.words import number

__all__ = ["ntp_page", "ntp_plot", "ntp_table"]

METRICS = (
    ("CE − H, nats a token", ("SC6", "excess"), "cross-entropy above the entropy bound; 0 where the data are fitted"),
    ("in-support distance", ("SC3",), "‖P_F(L) − L^in‖ / ‖L^in‖; 0 at the limit of training"),
    ("direction", ("direction",), "cosine of the part of the logits that grows with the predicted L^mm"),
    ("growth R", ("growth",), "length of that part along L^mm; it grows with the logarithm of training"),
    ("words", ("SC2_words",), "cosine of the Gram matrix of words with the predicted one"),
    ("contexts", ("SC2_contexts",), "cosine of the Gram matrix of contexts with the predicted one"),
    ("top-k = support", ("SC4",), "share of contexts whose k largest logits are exactly their support"),
    ("margin > 0", ("SC5", "positive"), "share of contexts with every logit of the support above all others"),
    ("outside the support", ("SC6", "outside_mass"), "probability put where the text never went"),
)
COLLAPSE = (
    ("NC1 CDNV", "NC1_cdnv"), ("NC2 equinorm", "NC2_equinorm"), ("NC2 simplex", "NC2_etf"), ("GNC2 spread", "GNC2_variance"),
    ("NC3 cosine", "NC3_cosine"), ("UNC3 variance", "UNC3_variance"), ("NC4 agreement", "NC4_agreement"),
)  # fmt: skip


def ntp_page(document: dict, arrays: dict[str, np.ndarray]) -> str:
    """One self-contained HTML file that shows a prediction and the models held against it."""
    if document.get("kind") != "ntp" or "data" not in document:
        raise BadInput("The result is no prediction: it has no data.")
    names = [model["name"] for model in document["models"]]
    figures: dict[str, go.Figure] = {
        "spectrum": ntp_plots.spectra(document, arrays),
        "sizes": ntp_plots.thresholds(document),
        "words": ntp_plots.words(document, arrays),
        "heat-predicted": ntp_plots.heat(document, arrays, "predicted"),
    }
    for index, name in enumerate(names):
        figures[f"heat-{index}"] = ntp_plots.heat(document, arrays, name)
        figures[f"scatter-{index}"] = ntp_plots.scatter(arrays, name)
    course = ntp_plots.course(document)
    if course:
        figures |= {
            "gap": ntp_plots.gap(course), "norms": ntp_plots.norms(course), "alignment": ntp_plots.alignment(course)
        }  # fmt: skip
    if any(any(spread.values()) for _, spread in ntp_plots.spreads(document)):
        figures["collapse"] = ntp_plots.collapse(document)
    protocol = document.get("protocol", {})
    return page.render(
        "ntp.html.j2", title=f"headscan ntp: {(protocol.get('text') or {}).get('source', 'text')}", figures=figures,
        document=document, names=names, when=when(document), numbers=numbers(document), metrics=table(document),
        collapse_rows=collapse_rows(document), collapse="collapse" in figures,
        findings=document.get("findings", []), course=course,
        facts={
            "run": flat({k: v for k, v in protocol.items() if k not in ("text", "versions", "command")}),
            "text": flat(protocol.get("text") or {}), "versions": flat(protocol.get("versions") or {}),
        },
    )  # fmt: skip


def numbers(document: dict) -> list[tuple[str, str, str]]:
    """The data's own numbers as (name, value, what it means)."""
    d, s, c = document["data"], document.get("solution"), document.get("certificate")
    bootstrap = (document.get("uncertainty") or {}).get("bootstrap") or {}
    error = bootstrap.get("entropy_bound_error")
    rows = [
        ("entropy bound H", number(d["entropy_bound"]) + (f" ± {number(error)}" if error else ""),
         "nats a token: no model of this order gets below it" + (" (± over documents)" if error else "")),
        ("contexts", number(d["contexts"]), "distinct contexts of the text"),
        ("distinct supports", number(d["supports"]), f"{d['contexts_per_support']:.1f} contexts share one on average"),
        ("single successor", f"{d['single_successor_share']:.1%}", "of the contexts have one next token only"),
        ("mean support", number(d["support_size_mean"]), "next tokens a context"),
        ("unseen mass", f"{d['unseen_mass']:.1%}", "Good–Turing: next occurrences that would enlarge a support"),
        ("Zipf exponent", number(d["zipf_exponent"]), "of the contexts' frequencies"),
    ]  # fmt: skip
    if s:
        gap = f"certified to {number(s['gap'])} of it" + ("" if s["converged"] else ", stopped early")
        rows += [
            ("‖L^mm‖", number(s["primal"]), f"nuclear norm of the growing part, {gap}"),
            ("rank", number(s["rank"]), "width that embeddings need for it"),
            ("cheap proxy", number(s["proxy_word_gram_cosine"]),
             f"cosine of its Gram of words with the certified one ({number(s['unrooted_word_gram_cosine'])} without the root)"),
        ]  # fmt: skip
    if c:
        verdict = (
            "is optimal" if c["optimal"] else f"is not: {c['violating_share']:.1%} of the entries have the wrong sign"
        )
        rows.append(("centred supports", "yes" if c["optimal"] else "no", f"S̃ {verdict}"))
    return rows


def _value(metrics: dict, path: tuple[str, ...]) -> Any:
    found: Any = metrics
    for key in path:
        found = None if found is None else found.get(key)
    return found


def table(document: dict) -> list[dict]:
    """One row a support-aware metric: its name, what it means, and a value for each model."""
    return [
        {"name": name, "meaning": meaning, "values": [number(_value(m["metrics"], path)) for m in document["models"]]}
        for name, path, meaning in METRICS
    ]


def collapse_rows(document: dict) -> list[dict]:
    """One row a neural-collapse metric."""
    return [
        {"name": name, "values": [number(model["collapse"].get(key)) for model in document["models"]]}
        for name, key in COLLAPSE
    ]


def ntp_plot(document: dict, arrays: dict[str, np.ndarray], what: str = "words") -> go.Figure:
    """One figure: "words", "spectrum", "heat", "collapse" or, after training, "gap", "norms", "alignment"."""
    makers = {
        "words": lambda: ntp_plots.words(document, arrays),
        "spectrum": lambda: ntp_plots.spectra(document, arrays),
        "heat": lambda: ntp_plots.heat(document, arrays, "predicted"),
        "collapse": lambda: ntp_plots.collapse(document),
        "gap": lambda: ntp_plots.gap(ntp_plots.course(document)),
        "norms": lambda: ntp_plots.norms(ntp_plots.course(document)),
        "alignment": lambda: ntp_plots.alignment(ntp_plots.course(document)),
    }
    if what not in makers:
        raise BadInput(f'There is no figure "{what}"; there are {", ".join(makers)}.')
    return makers[what]()


def ntp_table(document: dict) -> RenderableType:
    """A rich renderable for the terminal: the data's numbers, then a column a model, then the findings."""
    head = Text(f"\n{document['order']} tokens of context", style="bold")
    source = (document.get("protocol", {}).get("text") or {}).get("source")
    head.append(
        f"  {number(document['tokens'])} positions" + (f" of {clean(source)}" if source else ""), style="not bold dim"
    )
    own = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_header=False)
    own.add_column("", no_wrap=True)
    own.add_column("", justify="right", no_wrap=True)
    own.add_column("", style="dim", overflow="fold")
    for name, value, meaning in numbers(document):
        own.add_row(name, value, meaning)
    parts: list[RenderableType] = [head, own]
    if document["models"]:
        against = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        against.add_column("against the prediction", no_wrap=True)
        for model in document["models"]:
            against.add_column(clean(model["name"]), justify="right", overflow="fold")
        for row in table(document):
            against.add_row(row["name"], *row["values"])
        parts.append(against)
    parts += [Text(f"— {clean(note)}", style="dim") for note in document.get("notes") or []]
    parts += [finding(item, len(document["models"]) > 1) for item in document.get("findings", [])]
    return Group(*parts)
