"""One page a command, from its settings, and one a public package, from its docstrings."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from types import ModuleType
from typing import Any

from entries import Pages, cell, listing, sentence

from headscan.cli import BARE, command_of, verbs
from headscan.run import OptionField, Registry

__all__ = ["reference"]

PACKAGES = (
    "headscan.run",
    "headscan.text",
    "headscan.model",
    "headscan.model.mixer",
    "headscan.states",
    "headscan.statistics",
    "headscan.measures",
    "headscan.scanner",
    "headscan.comparison",
    "headscan.ntp",
    "headscan.inversion",
    "headscan.attribution",
    "headscan.flow",
    "headscan.leaks",
    "headscan.training",
    "headscan.training.monitor",
    "headscan.remedies",
    "headscan.weights",
    "headscan.diagnosis",
    "headscan.report.kit",
    "headscan_lab.ledger",
    "headscan_lab.theory",
    "headscan_lab.tournament",
    "headscan_lab.evaluation",
)


def reference(pages: Pages) -> Pages:
    """All of them by their places; a command's page names those of `pages` that show it."""
    return _commands(pages) | _packages()


def _commands(pages: Pages) -> Pages:
    rows = [(name, f"headscan {name}", cell(summary)) for name, summary in verbs().items()]
    introduction = (
        "Each is a function of Python, too, with the same options as keywords. Exit status: 0 "
        "done, 2 bad input (one sentence), 3 a finding named by `--fail-on`, 130 interrupted, 1 a "
        "fault of headscan's own."
    )
    pages_by_path = {
        "commands/index.md": listing("Commands", introduction, rows, "command", sidebar=True)
    }
    for name, summary in verbs().items():
        command = None if name in BARE else command_of(name)
        shown = [
            page
            for page, text in pages.items()
            if f"headscan {name} " in text and "/" not in page and page != "index.md"
        ]
        links = ", ".join(f"[{_title(pages[page])}](../{page})" for page in shown)
        text = [
            f"# headscan {name}",
            summary,
            *(_options(name, command) if command else [f"    headscan {name} [--json]"]),
        ]
        pages_by_path[f"commands/{name}.md"] = (
            "\n\n".join([*text, f"Shown in: {links}." if links else ""]) + "\n"
        )
    return pages_by_path


def _options(name: str, command: Any) -> list[str]:
    call = command.verb()
    fields = [option for option in call.verb.options() if not option.option.python]
    needed = [
        f"{field.flag} {_metavar(field)}"
        for field in fields
        if field.required and field.name not in command.arguments
    ]
    usage = " ".join(
        filter(
            None,
            ["headscan", name, command.subject, *command.arguments.values(), *needed, "[OPTIONS]"],
        )
    )
    lines = ["| option | default | what it is |", "|---|---|---|"]
    for field in fields:
        limits = {
            "at least": field.option.low,
            "at most": field.option.high,
            "above": field.option.above,
        }
        bounds = [f"{word} {bound:g}" for word, bound in limits.items() if bound is not None]
        text = field.option.help + (f" ({', '.join(bounds)})" if bounds else "")
        if isinstance(field.option.choices, Registry):
            text += f" One of, or of a plug-in: {', '.join(field.option.choices.names())}."
        named = (
            f"`{command.arguments[field.name]}`"
            if field.name in command.arguments
            else f"`{field.flag}`"
        )
        lines.append(f"| {named} | {cell(_default(field))} | {cell(text)} |")
    for extra, (_, text) in command.extra.items():
        lines.append(f"| `--{extra.replace('_', '-')}` | | {cell(text)} |")
    home = call.__module__
    package = max(
        (package for package in PACKAGES if home == package or home.startswith(f"{package}.")),
        key=len,
    )
    details = inspect.cleandoc(call.__doc__ or "").split(">>>")[0].strip()
    parts = [
        f"    {usage}",
        f"`{command.subject}`: {command.subject_help}" if command.subject else "",
        "\n".join(lines),
    ]
    parts += [
        f"## In Python\n\n`{call.__name__}` of [{package}](../python/{package}.rst), the same "
        "options as keywords."
    ]
    return [*filter(None, parts), f"```text\n{details}\n```"]


def _default(field: OptionField) -> str:
    if field.required:
        return "required"
    if field.default in (None, (), []):
        return ""
    return f"`{_shown(field.default)}`"


def _metavar(option: OptionField) -> str:
    return option.option.metavar or option.flag.removeprefix("--").upper()


def _shown(default: Any) -> str:
    return (
        ",".join(map(str, default))
        if isinstance(default, list | tuple)
        else str(getattr(default, "name", default))
    )


def _title(text: str) -> str:
    return next(line.removeprefix("# ") for line in text.splitlines() if line.startswith("# "))


def _packages() -> Pages:
    introduction = (
        "`import headscan` has what most programs need, loaded when it is first asked for. Each "
        "question has a package; names in no list below are internal."
    )
    rows = [("headscan", "headscan", "The public names, in one place.")]
    rows += [(name, name, sentence(import_module(name).__doc__)) for name in PACKAGES]
    pages_by_path = {
        "python/index.md": listing("Python", introduction, rows, "package", sidebar=True).replace(
            ".md) |", ".rst) |"
        )
    }
    pages_by_path["python/headscan.rst"] = _facade()
    return pages_by_path | {
        f"python/{name}.rst": _package(import_module(name)) for name in PACKAGES
    }


def _facade() -> str:
    import headscan

    lines = ["headscan", "========", "", ".. automodule:: headscan", "   :no-members:", ""]
    names = ["headscan.load"]
    for name in sorted(set(headscan.__all__) - {"load", "__version__"}, key=str.lower):
        item = getattr(headscan, name)
        home = item.__name__ if inspect.ismodule(item) else _public(item)
        if home not in PACKAGES:
            names.append(f"headscan.{name}")
            continue
        if inspect.ismodule(item):
            role = "mod"
            target = home
        else:
            role = "class" if inspect.isclass(item) else "func"
            target = f"{home}.{name}"
        lines.append(
            f"- :py:{role}:`headscan.{name} <{target}>`: "
            f"{sentence(inspect.getdoc(item)).replace('*', '')}"
        )
    for name in names:
        if inspect.isclass(getattr(headscan, name.partition(".")[2])):
            lines += ["", f".. autoclass:: {name}", "   :members:"]
        else:
            lines += ["", f".. autofunction:: {name}"]
    return "\n".join([*lines, ""])


def _public(item: Any) -> str:
    """The public package in which something is described: the innermost that names it."""
    homes = [
        name for name in PACKAGES if item.__name__ in getattr(import_module(name), "__all__", ())
    ]
    own_homes = [home for home in homes if f"{item.__module__}.".startswith(f"{home}.")]
    return max(own_homes or homes or [item.__module__], key=len)


def _package(module: ModuleType) -> str:
    title = module.__name__
    lines = [title, "=" * len(title), "", f".. automodule:: {title}", "   :no-members:", ""]
    for name in getattr(module, "__all__", ()):
        item = getattr(module, name)
        if inspect.isclass(item) or inspect.isfunction(item):
            home = _public(item)
            if home != title and item.__name__ == name:
                role = "class" if inspect.isclass(item) else "func"
                lines += [f":py:{role}:`{name} <{home}.{name}>` is described with ``{home}``.", ""]
            elif inspect.isclass(item):
                lines += [
                    f".. autoclass:: {title}.{name}",
                    "   :members:",
                    "   :show-inheritance:",
                    "",
                ]
            else:
                lines += [f".. autofunction:: {title}.{name}", ""]
        elif not inspect.ismodule(item):
            home = _defined(module, name)
            again = (
                ["   :no-index:"]
                if any(home.startswith(f"{title}.{package}.") for package in ("monitor",))
                else []
            )
            lines += [f".. autodata:: {home}.{name}", "   :no-value:", *again, ""]
    return "\n".join(lines)


def _defined(module: ModuleType, name: str) -> str:
    """The module in which a constant is written, along the imports."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and any(child.name == name for child in node.names)
        ):
            return _defined(import_module(node.module), name)
    return module.__name__
