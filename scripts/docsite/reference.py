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
    rows = [(name, f"headscan {name}", cell(what)) for name, what in verbs().items()]
    said = (
        "Each is a function of Python, too, with the same options as keywords. Exit status: 0 "
        "done, 2 bad input (one sentence), 3 a finding named by `--fail-on`, 130 interrupted, 1 a "
        "fault of headscan's own."
    )
    made = {"commands/index.md": listing("Commands", said, rows, "command", sidebar=True)}
    for name, what in verbs().items():
        command = None if name in BARE else command_of(name)
        shown = [
            page
            for page, text in pages.items()
            if f"headscan {name} " in text and "/" not in page and page != "index.md"
        ]
        seen = ", ".join(f"[{_title(pages[page])}](../{page})" for page in shown)
        text = [
            f"# headscan {name}",
            what,
            *(_options(name, command) if command else [f"    headscan {name} [--json]"]),
        ]
        made[f"commands/{name}.md"] = (
            "\n\n".join([*text, f"Shown in: {seen}." if seen else ""]) + "\n"
        )
    return made


def _options(name: str, command: Any) -> list[str]:
    call = command.verb()
    fields = [one for one in call.verb.options() if not one.option.python]
    needed = [
        f"{one.flag} {_metavar(one)}"
        for one in fields
        if one.required and one.name not in command.arguments
    ]
    usage = " ".join(
        filter(
            None,
            ["headscan", name, command.subject, *command.arguments.values(), *needed, "[OPTIONS]"],
        )
    )
    lines = ["| option | default | what it is |", "|---|---|---|"]
    for one in fields:
        bounds = [
            f"{word} {bound:g}"
            for word, bound in (
                ("at least", one.option.low),
                ("at most", one.option.high),
                ("above", one.option.above),
            )
            if bound is not None
        ]
        said = one.option.help + (f" ({', '.join(bounds)})" if bounds else "")
        if isinstance(one.option.choices, Registry):
            said += f" One of, or of a plug-in: {', '.join(one.option.choices.names())}."
        named = (
            f"`{command.arguments[one.name]}`" if one.name in command.arguments else f"`{one.flag}`"
        )
        default = (
            "required"
            if one.required
            else ""
            if one.default in (None, (), [])
            else f"`{_shown(one.default)}`"
        )
        lines.append(f"| {named} | {cell(default)} | {cell(said)} |")
    for extra, (_, said) in command.extra.items():
        lines.append(f"| `--{extra.replace('_', '-')}` | | {cell(said)} |")
    home = call.__module__
    package = max((one for one in PACKAGES if home == one or home.startswith(f"{one}.")), key=len)
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


def _metavar(one: OptionField) -> str:
    return one.option.metavar or one.flag.removeprefix("--").upper()


def _shown(default: Any) -> str:
    return (
        ",".join(map(str, default))
        if isinstance(default, list | tuple)
        else str(getattr(default, "name", default))
    )


def _title(text: str) -> str:
    return next(line.removeprefix("# ") for line in text.splitlines() if line.startswith("# "))


def _packages() -> Pages:
    said = (
        "`import headscan` has what most programs need, loaded when it is first asked for. Each "
        "question has a package; names in no list below are internal."
    )
    rows = [("headscan", "headscan", "The public names, in one place.")]
    rows += [(name, name, sentence(import_module(name).__doc__)) for name in PACKAGES]
    made = {
        "python/index.md": listing("Python", said, rows, "package", sidebar=True).replace(
            ".md) |", ".rst) |"
        )
    }
    made["python/headscan.rst"] = _facade()
    return made | {f"python/{name}.rst": _package(import_module(name)) for name in PACKAGES}


def _facade() -> str:
    import headscan

    lines = ["headscan", "========", "", ".. automodule:: headscan", "   :no-members:", ""]
    own = ["headscan.load"]
    for name in sorted(set(headscan.__all__) - {"load", "__version__"}, key=str.lower):
        one = getattr(headscan, name)
        home = one.__name__ if inspect.ismodule(one) else _public(one)
        if home not in PACKAGES:
            own.append(f"headscan.{name}")
            continue
        role = "mod" if inspect.ismodule(one) else "class" if inspect.isclass(one) else "func"
        target = home if role == "mod" else f"{home}.{name}"
        lines.append(
            f"- :py:{role}:`headscan.{name} <{target}>`: "
            f"{sentence(inspect.getdoc(one)).replace('*', '')}"
        )
    for name in own:
        kind = "class" if inspect.isclass(getattr(headscan, name.partition(".")[2])) else "function"
        lines += ["", f".. auto{kind}:: {name}", *(["   :members:"] if kind == "class" else [])]
    return "\n".join([*lines, ""])


def _public(one: Any) -> str:
    """The public package in which something is described: the innermost that names it."""
    homes = [
        name for name in PACKAGES if one.__name__ in getattr(import_module(name), "__all__", ())
    ]
    own = [home for home in homes if f"{one.__module__}.".startswith(f"{home}.")]
    return max(own or homes or [one.__module__], key=len)


def _package(module: ModuleType) -> str:
    title = module.__name__
    lines = [title, "=" * len(title), "", f".. automodule:: {title}", "   :no-members:", ""]
    for name in getattr(module, "__all__", ()):
        one = getattr(module, name)
        if inspect.isclass(one) or inspect.isfunction(one):
            home = _public(one)
            if home != title and one.__name__ == name:
                role = "class" if inspect.isclass(one) else "func"
                lines += [f":py:{role}:`{name} <{home}.{name}>` is described with ``{home}``.", ""]
            elif inspect.isclass(one):
                lines += [
                    f".. autoclass:: {title}.{name}",
                    "   :members:",
                    "   :show-inheritance:",
                    "",
                ]
            else:
                lines += [f".. autofunction:: {title}.{name}", ""]
        elif not inspect.ismodule(one):
            home = _defined(module, name)
            again = (
                ["   :no-index:"]
                if any(home.startswith(f"{title}.{one}.") for one in ("monitor",))
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
            and any(one.name == name for one in node.names)
        ):
            return _defined(import_module(node.module), name)
    return module.__name__
