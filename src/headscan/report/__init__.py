"""Pages, tables and plots from saved results; this package reads plain data only and never loads a model.

- `present.Report`: what the façade installs, so that results show themselves
- `kit`: the parts that all pages are made of, and the four ways to show them
- `pages`: one module a kind of result
"""

from __future__ import annotations

from importlib import import_module

_MODULES = {
    "attribute": "attribute", "evaluation": "evaluation", "flow": "flow", "gradient": "gradient", "invert": "invert",
    "privacy": "invert", "ntp": "ntp", "train": "train", "twins": "twins",
}  # fmt: skip


def __getattr__(name: str) -> object:
    if name == "scan_table":
        return import_module("headscan.report.terminal").scan_table
    if name in ("scan_page", "scan_plot"):
        return getattr(import_module(f"headscan.report.{'scan' if name == 'scan_page' else 'plots'}"), name)
    kind, _, what = name.partition("_")
    if kind in _MODULES and what in ("page", "plot", "table", "snippet"):
        return getattr(import_module(f"headscan.report.{_MODULES[kind]}"), name)
    raise AttributeError(name)
