"""The page, table, plot and notebook view of an attribution (`headscan attribute`), from saved data alone."""

from __future__ import annotations

import html
import re
from typing import Any

import numpy as np
import plotly.graph_objects as go
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscan.errors import BadInput
from headscan.report import page, palette
from headscan.report.plots import layout
from headscan.report.scan import flat, when
from headscan.report.terminal import clean
from headscan.report.words import DASH, literal, number, value_of

__all__ = ["attribute_page", "attribute_plot", "attribute_snippet", "attribute_table"]

FOR = {"light": (232, 131, 58), "dark": (168, 80, 15), "terminal": (214, 96, 20)}
AGAINST = {"light": (91, 155, 213), "dark": (42, 95, 149), "terminal": (31, 104, 178)}
"""Orange speaks for the target, blue against it: told apart in every common form of colour blindness, and underlined
solid or dashed as well."""

TABLE_ROWS = 5000
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star")
"""One a method, since colours come round again and are not seen alike by all."""
SIGNS = re.compile("([␣⏎⇥␍])")


def attribute_page(document: dict, arrays: dict[str, np.ndarray]) -> str:
    """One self-contained HTML page: the text coloured by its scores, how far to trust it, every number."""
    if document.get("kind") != "attribute" or "tokens" not in document:
        raise BadInput("The result is no attribution: it has no tokens.")
    methods = [entry["method"] for entry in document["maps"]]
    scores = {method: _rounded(arrays[f"scores/{method}"]) for method in methods}
    first = np.asarray(arrays[f"scores/{methods[0]}"], dtype=float).mean(0)
    data = {
        "tokens": document["tokens"], "ids": document["ids"], "roles": document["roles"], "methods": methods,
        "scores": scores, "steps": [step["token"] for step in document["steps"]],
        "positions": [-1 if document.get("decoder") else step["position"] for step in document["steps"]],
        "units": [span["tokens"] for span in document["spans"]], "signed": document["signed"],
    }  # fmt: skip
    checked = [entry for entry in document["maps"] if entry.get("faithfulness")]
    figures = {"curves": curves(document)} if checked else {}
    protocol = document.get("protocol") or {}
    return page.render(
        "attribute.html.j2", title="headscan attribute", data=data, figures=figures, scripts=("attribute.js",),
        styles=("attribute.css",), document=document, when=when(document), pieces=pieces(document, first),
        methods=methods, checked=checked, heading=heading(document), target=document["target"], rows=rows(document, arrays),
        cut=max(0, len(document["tokens"]) - TABLE_ROWS),
        gaps=[e for e in document["maps"] if e.get("completeness")],
        facts={
            "run": flat({k: v for k, v in protocol.items() if k not in ("versions", "command")}),
            "model": flat(document.get("model") or {}), "versions": flat(protocol.get("versions") or {}),
        },
    )  # fmt: skip


def heading(document: dict) -> str:
    """What is explained, in a few words."""
    steps = document["steps"]
    if len(steps) > 1:
        return f"{len(steps)} predictions"
    if steps[0].get("against"):
        return f"{steps[0]['token']}, not {steps[0]['against']['token']}"
    return steps[0]["token"] if document["target"]["kind"] not in ("entropy", "all") else document["target"]["kind"]


def pieces(document: dict, scores: np.ndarray) -> list[dict[str, Any]]:
    """The tokens with what colours them: strength in [0, 1], sign, and where a line ends."""
    largest = float(np.nanmax(np.abs(scores))) if len(scores) else 0.0
    predicted = {step["position"] + 1 for step in document["steps"]} if len(document["steps"]) > 1 else set()
    if document.get("decoder"):  # positions are the decoder's; the text is the encoder's
        predicted = set()
    found = []
    for index, token in enumerate(document["tokens"]):
        value = value_of(float(scores[index])) or 0.0
        found.append(
            {
                "index": index,
                "parts": [(part, bool(SIGNS.fullmatch(part))) for part in SIGNS.split(token) if part],
                "strength": f"{abs(value) / largest:.3f}" if largest else "0",
                "sign": "for" if value > 0 else "against" if value < 0 else "none",
                "breaks": token.endswith("⏎"),
                "special": document["special"][index],
                "predicted": index in predicted,
            }
        )
    return found


def rows(document: dict, arrays: dict[str, np.ndarray]) -> list[list[str]]:
    """Index, id, token and each method's score (averaged over steps), as text."""
    means = [np.asarray(arrays[f"scores/{e['method']}"], dtype=float).mean(0) for e in document["maps"]]
    return [
        [str(index), str(document["ids"][index]), token, *(signed(mean[index]) for mean in means)]
        for index, token in enumerate(document["tokens"][:TABLE_ROWS])
    ]


def signed(value: float) -> str:
    """A number with its sign always shown.

    >>> signed(0.25), signed(-2.0)
    ('+0.250', '−2.00')
    """
    text = number(float(value))
    return f"+{text}" if value > 0 else text


def _rounded(scores: np.ndarray) -> list[list[float]]:
    return [[float(f"{value:.5g}") for value in row] for row in np.asarray(scores, dtype=float).tolist()]


def curves(document: dict) -> go.Figure:
    """Deletion and insertion curves of each method: the token's probability as units are replaced or put back."""
    figure = go.Figure(layout=layout())
    for index, entry in enumerate(e for e in document["maps"] if e.get("faithfulness")):
        for name, dash in (("deletion", "solid"), ("insertion", "dash")):
            curve = entry["faithfulness"][name]
            figure.add_scatter(
                x=curve["share"], y=curve["probability"], mode="lines+markers", name=f"{literal(entry['method'])}, {name}",
                line={"color": palette.model_colour(index), "dash": dash},
                marker={"symbol": SYMBOLS[index % len(SYMBOLS)], "size": 6},
            )  # fmt: skip
    figure.update_xaxes(title_text="share of the units replaced (deletion) or put back (insertion)", range=[0, 1])
    figure.update_yaxes(title_text="probability", rangemode="tozero")
    return figure


def attribute_plot(document: dict, arrays: dict[str, np.ndarray], method: str | None = None) -> go.Figure:
    """Scores of units as bars, in reading order; of a continuation, as a matrix of predictions by tokens."""
    method = method or document["method"]
    if len(document["steps"]) > 1:
        values = np.asarray(arrays[f"scores/{method}"], dtype=float)
        top = float(np.abs(values).max()) or 1.0
        figure = go.Figure(layout=layout())
        figure.add_heatmap(
            z=values.tolist(), zmin=-top, zmax=top, colorscale=[[0, "#5b9bd5"], [0.5, "#fbfaf6"], [1, "#e8833a"]],
            x=[f"{k} {literal(token)}" for k, token in enumerate(document["tokens"])],
            y=[f"{k} {literal(step['token'])}" for k, step in enumerate(document["steps"])],
        )  # fmt: skip
        figure.update_yaxes(autorange="reversed")
        return figure
    units = np.asarray(arrays[f"units/{method}"], dtype=float)[0]
    figure = go.Figure(layout=layout())
    names = [f"{k} {literal(span['text'])}" for k, span in enumerate(document["spans"])]
    colours = ["#e8833a" if value > 0 else "#5b9bd5" for value in units]
    figure.add_bar(x=names, y=units.tolist(), marker={"color": colours}, showlegend=False)
    figure.update_xaxes(type="category")
    figure.update_yaxes(title_text=f"{literal(method)}, {document['target']['kind']}")
    return figure


def attribute_table(document: dict) -> RenderableType:
    """The coloured text for the terminal, the prediction, and how far to trust the map."""
    scores = [value_of(value) or 0.0 for value in document["scores"]]
    largest = max(map(abs, scores), default=0.0) or 1.0
    text = Text()
    for token, value in zip(document["tokens"], scores, strict=True):
        share = abs(value) / largest
        colour = (FOR if value > 0 else AGAINST)["terminal"]
        shade = [round(255 + (c - 255) * share) for c in colour]
        style = f"{'#ffffff' if share > 0.75 else '#111111'} on #{shade[0]:02x}{shade[1]:02x}{shade[2]:02x}"
        text.append(clean(token), style=style if share >= 0.02 else "")
        if token.endswith("⏎"):
            text.append("\n")
    parts: list[RenderableType] = [text]
    steps = document["steps"]
    kind = document["target"]["kind"]
    for step in steps[:8]:
        against = f", not {clean(step['against']['token'])}" if step.get("against") else ""
        parts.append(
            Text(f"{clean(step['token'])}{against}", style="bold").append(
                f"  probability {number(step['probability'])}, {kind} {number(step['value'])}", style="not bold dim"
            )
        )
    if len(steps) > 8:
        parts.append(Text(f"… {len(steps) - 8} more", style="dim"))
    parts += [_strongest(document), _trust(document)]
    return Group(*parts)


def _strongest(document: dict) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), title_justify="left")
    for name, side in (("tokens", "left"), ("text", "left"), (document["method"], "right")):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    spans = sorted(document["spans"], key=lambda span: -abs(value_of(span["score"]) or 0.0))[:10]
    for span in spans:
        first, last = span["tokens"][0], span["tokens"][-1]
        where = str(first) if first == last else f"{first}–{last}"
        table.add_row(where, Text(clean(span["text"])[:40]), signed(span["score"]))
    return table


def _trust(document: dict) -> RenderableType:
    found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    found.add_column("")
    for head in ("deletion", "insertion", "comprehen-\nsiveness", "sufficiency", "gap"):
        found.add_column(head, justify="right")
    for entry in document["maps"]:
        trust, gap = entry.get("faithfulness") or {}, entry.get("completeness")
        worst = f"{100 * max(gap['relative_gap']):.2g} %" if gap else ""
        cells = [number(trust[k]["area"]) if trust else DASH for k in ("deletion", "insertion")]
        cells += [number(trust.get(k)) for k in ("comprehensiveness", "sufficiency")]
        found.add_row(entry["method"], *cells, worst)
    random = (document.get("faithfulness") or {}).get("random")
    if random:
        keys = ("deletion", "insertion", "comprehensiveness", "sufficiency")
        found.add_row("random order", *(number(random[key]) for key in keys), "", style="dim")
    return found


def attribute_snippet(document: dict, arrays: dict[str, np.ndarray]) -> str:
    """The coloured text as a piece of HTML without scripts, for notebooks; everything in it is escaped."""
    found = []
    for piece, score in zip(
        pieces(document, np.asarray(document["scores"], dtype=float)), document["scores"], strict=True
    ):
        colour = FOR["light"] if piece["sign"] == "for" else AGAINST["light"]
        line = "solid" if piece["sign"] == "for" else "dashed"
        strength = float(piece["strength"])
        title = html.escape(
            f"token {piece['index']}, id {document['ids'][piece['index']]}: {signed(score)}", quote=True
        )
        text = "".join(html.escape(part) for part, _ in piece["parts"])
        style = (
            f"background:rgba({colour[0]},{colour[1]},{colour[2]},{strength:.3f});"
            f"border-bottom:2px {line if strength >= 0.02 else 'none'} currentColor"
        )
        found.append(f'<span style="{style}" title="{title}">{text}</span>' + ("<br>" if piece["breaks"] else ""))
    heads = ", ".join(html.escape(step["token"]) for step in document["steps"][:20])
    note = f"{html.escape(document['method'])}, {html.escape(document['target']['sentence'])}: <b>{heads}</b>"
    return (
        f'<div dir="auto" style="line-height:2;font-family:serif;overflow-wrap:anywhere">{"<wbr>".join(found)}'
        f'<div style="font:12px sans-serif">{note}. Orange, solid line: for; blue, dashed: against.</div></div>'
    )
