"""Pages, tables and plots from saved results; this package reads plain data only and never loads a model.

- `present.Report`: what the façade installs, so that results show themselves
- `kit`: the parts that all pages are made of, and the four ways to show them
- `pages`: one module a kind of result
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace

_MODULES = {
    "attribute": "attribute", "flow": "flow",
}  # fmt: skip


def __getattr__(name: str) -> object:
    kind, _, what = name.partition("_")
    if kind in _MODULES and what in ("page", "plot", "table", "snippet"):
        return getattr(import_module(f"headscan.report.{_MODULES[kind]}"), name)
    if kind == "scan" and what in ("page", "plot", "table"):
        return _old_scan(what)
    raise AttributeError(name)


def _old_scan(what: str) -> Callable[..., object]:
    """Until every result is a `headscan.run.Result`: the scan's page by its document and arrays."""

    def shown(document: dict[str, object], arrays: object = None, *arguments: str, **options: str) -> object:
        from headscan.report.present import Report

        result = SimpleNamespace(kind="scan", document=document, arrays=arrays or {})
        return getattr(Report(), what)(result, *arguments, **options)

    return shown
