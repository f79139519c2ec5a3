"""The page of a scan."""

from __future__ import annotations

from datetime import datetime

import numpy as np

from headscan.errors import BadInput
from headscan.report import cone, extras, page, pictures, plots, sites
from headscan.report.words import grouped, interval, number, value_of

__all__ = ["scan_page"]

SMALL = ("effective_rank", "participation_ratio", "top_direction_share", "isoscore")
BOUNDED = ("average_cosine", "top_direction_share", "isoscore")
TITLES = {
    "average_cosine": "Average cosine", "mean_norm": "Mean norm", "mean_vector_norm": "Norm of the mean",
    "top_direction_share": "Top-direction share", "effective_rank": "Effective rank",
    "participation_ratio": "Participation ratio", "isoscore": "IsoScore",
}  # fmt: skip


def scan_page(document: dict, arrays: dict[str, np.ndarray]) -> str:
    """One self-contained HTML file that shows a scan: it opens without a network, in any current browser.

    Args:
        document: a scan's `result.json`. Values may be null; the entry's notes then say why.
        arrays: "picture/{model}/{site}" float [k, 3], the sampled tokens on the site's top three directions, and
            "picture_share/{model}/{site}" float [3]. Sites without a picture are left out of the CAT scan.

    Returns:
        The page's text, about 5 MB, nearly all of it plotly.js.

    Raises:
        BadInput: the document is no scan.
    """
    if document.get("kind") != "scan" or not document.get("models") or not document.get("sites"):
        raise BadInput("The result is no scan: it has no models or no sites.")
    names = sites.models(document)
    figures = {"cosine": plots.average_cosine(document, "both"), "norms": plots.norms(document, "both")}
    figures |= {f"small-{key}": small(document, key) for key in SMALL}
    figures |= {f"spectrum-{k}": plots.spectrum(document, name, "both") for k, name in enumerate(names)}
    same_floor(figures, len(names))
    figures |= extras.figures(document)
    clouds = pictures.clouds(document, arrays)
    return page.render(
        "scan.html.j2", title=f"headscan: {', '.join(names)}", data={"clouds": clouds}, figures=figures,
        scripts=("projection.js", "cat_scan.js"), depth=max(len(sites.of_model(document["sites"], n)) for n in names),
        document=document, names=names, heads=[head(document, model) for model in document["models"]],
        findings=document.get("findings", []), clouds=clouds, table=table(document), titles=titles(document), small=SMALL,
        nulls=sorted({e["null"] for e in document.get("nulls", [])}, reverse=True), when=when(document), alt=alt(document),
        facts=facts(document), extras=extras.sections(document),
        ends=[sites.of_model(document["sites"], names[0])[k]["site"] for k in (0, -1)],
    )  # fmt: skip


def head(document: dict, model: dict) -> dict:
    """What the top of the page says of one model."""
    entry = sites.last_block(sites.of_model(document["sites"], model["name"])) or {}
    cosine = value_of(entry.get("average_cosine"))
    return {
        "name": model["name"], "site": entry.get("site", ""), "cosine": cosine, "cone": cone.drawing(cosine),
        "interval": interval(entry.get("average_cosine_interval")), "notes": entry.get("notes") or [], "model": model,
    }  # fmt: skip


def small(document: dict, measure: str):
    """A small multiple: no legend (Fig. 1 has it), little margin."""
    figure = plots.by_layer(document, measure, "both")
    figure.update_layout(showlegend=False, margin={"l": 44, "r": 8, "t": 6, "b": 36})
    figure.update_yaxes(title_text="", nticks=5)
    # Beside the Gaussian, which uses all directions, a model's ranks would lie flat on the axis.
    values = [v for trace in figure.data for v in trace.y if v is not None]
    if measure != "top_direction_share" and values and min(values) > 0 and max(values) > 8 * min(values):
        figure.update_yaxes(type="log", dtick=1, tickformat="~g")
    else:
        figure.update_yaxes(rangemode="tozero")
    figure.update_xaxes(title_text="")
    return figure


def same_floor(figures: dict, count: int) -> None:
    """Gives the spectra of all models one scale, so that they can be compared by eye."""
    spectra = [figures[f"spectrum-{k}"] for k in range(count)]
    values = [v for figure in spectra for trace in figure.data for v in trace.y if v]
    # Beyond a cloud's rank its singular values are rounding errors: such a line falls out of the picture.
    real = [v for v in values if v > 1e-6]
    low = max(float(np.quantile(real, 0.01)), 1e-4) if real else 1e-3
    for figure in spectra:
        figure.update_yaxes(range=[float(np.log10(low)) - 0.1, 0.16])


def table(document: dict) -> dict:
    """The rows of the table of all numbers; notes are numbered as they come."""
    notes: list[str] = []
    groups = []
    for name in sites.models(document):
        kinds = [("", sites.of_model(document["sites"], name))]
        for null in ("random-init", "gaussian"):
            kinds.append((null, sites.of_model(document.get("nulls", []), name, null)))
        groups += [
            {"model": name, "null": null, "rows": [row(e, notes) for e in found]} for null, found in kinds if found
        ]
    return {"groups": groups, "notes": notes, "measures": list(titles(document))}


def row(entry: dict, notes: list[str]) -> dict:
    """One line: each measure with and without position 0, and the numbers of the notes that belong to the site."""
    marks = []
    for note in entry.get("notes") or []:
        if note not in notes:
            notes.append(note)
        marks.append(notes.index(note) + 1)
    cells = []
    for key in TITLES:
        for field in (key, f"{key}_without_first"):
            value = value_of(entry.get(field))
            places = 4 if key in BOUNDED else None
            bounds = interval(entry.get(f"{field}_interval"), places=places)
            cells.append({"value": None if value is None else number(value, places=places), "interval": bounds})
    return {
        "entry": entry,
        "cells": cells,
        "marks": marks,
        "why": " ".join(entry.get("notes") or []) or "not defined here",
    }


def titles(document: dict) -> dict[str, str]:
    """The measures of the contract with the document's own titles where it has them."""
    given = document.get("measures", {})
    return {key: given.get(key, {}).get("title") or title for key, title in TITLES.items()}


def when(document: dict) -> str:
    """The day and time the scan started, as a person writes it."""
    started = document.get("protocol", {}).get("started")
    try:
        moment = datetime.fromisoformat(str(started))
    except ValueError:
        return str(started or "")
    return f"{moment.day} {moment:%B %Y, %H:%M}" + (
        " UTC" if moment.utcoffset() is not None and not moment.utcoffset() else ""
    )


def alt(document: dict) -> dict[str, str]:
    """For each figure, a sentence with the numbers that it shows."""
    found = {
        "cosine": course(document, "average_cosine"),
        "norms": f"{course(document, 'mean_norm')} {course(document, 'mean_vector_norm')}",
    }
    found |= {f"small-{key}": course(document, key) for key in SMALL}
    for index, name in enumerate(sites.models(document)):
        entries = sites.of_model(document["sites"], name)
        parts = [f"{e['site']} {number(tenth(e))}" for e in ends(entries) if tenth(e) is not None]
        found[f"spectrum-{index}"] = (
            f"Singular values of {name} by rank, divided by the first. "
            f"The tenth over the first: {', '.join(parts) or 'not defined'}."
        )
    return found


def course(document: dict, measure: str) -> str:
    """How a measure runs through the layers: 'Average cosine of m: 0.05 at embedding, ..., highest 0.98 at block.5.'"""
    sentences = []
    for name in sites.models(document):
        entries = [e for e in sites.of_model(document["sites"], name) if value_of(e.get(measure)) is not None]
        if not entries:
            sentences.append(f"{TITLES[measure]} of {name}: not defined.")
            continue
        top, low = max(entries, key=lambda e: e[measure]), min(entries, key=lambda e: e[measure])
        steps = ", ".join(f"{number(e[measure])} at {e['site']}" for e in ends(entries))
        sentences.append(
            f"{TITLES[measure]} of {name}: {steps}; lowest {number(low[measure])} at {low['site']}, "
            f"highest {number(top[measure])} at {top['site']}."
        )
    return " ".join(sentences)


def ends(entries: list[dict]) -> list[dict]:
    """The first, the middle and the last entry."""
    return [entries[k] for k in sorted({0, len(entries) // 2, len(entries) - 1})] if entries else []


def tenth(entry: dict) -> float | None:
    """The tenth singular value over the first."""
    values = entry.get("singular_values") or []
    if len(values) < 10 or not value_of(values[0]) or value_of(values[9]) is None:
        return None
    return values[9] / values[0]


def facts(document: dict) -> dict:
    """The protocol as lists of (name, value), nothing left out: what has no name of its own keeps the document's."""
    protocol = document.get("protocol") or {}
    aside = ("command", "text", "versions")
    return {
        "run": flat({k: v for k, v in protocol.items() if k not in aside}),
        "text": flat(protocol.get("text") or {}),
        "versions": flat(protocol.get("versions") or {}),
        "models": [
            {"name": m["name"], "rows": flat({k: v for k, v in m.items() if k != "name"})} for m in document["models"]
        ],
    }


def flat(values: dict, prefix: str = "") -> list[tuple[str, str]]:
    """Nested names and values as one list: {'a': {'b': 1}} -> [('a: b', '1')].

    >>> flat({"dropped_tokens": 97, "sha256": {"x": "5e"}, "max_tokens": None})
    [('dropped tokens', '97'), ('sha256: x', '5e'), ('max tokens', 'none')]
    """
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        name = prefix + str(key).replace("_", " ")
        if isinstance(value, dict):
            rows += flat(value, f"{name}: ")
        elif isinstance(value, (list, tuple)):
            rows.append((name, ", ".join(map(str, value)) or "none"))
        else:
            rows.append((name, exact(value)))
    return rows


def exact(value: object) -> str:
    """A value of the protocol, unrounded: it must serve to repeat the run."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return grouped(value) if isinstance(value, int) else str(value)
