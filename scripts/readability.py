"""Print how the code reads, in numbers that do not depend on how its lines are cut.

    python scripts/readability.py [--worst N] [PATH ...]

tests/test_readability.py holds the limits. The numbers, for each group of folders:

nodes: nodes of the syntax trees, without docstrings.
tokens_a_line: tokens on a line of code; a string is one token.
lines_30: lines of code with 30 tokens or more.
vague_names: the share (in %) of bound names that say nothing of what they hold (`VAGUE`).
walrus, tuple_assignments, skips: `:=`, assignments of a tuple to a tuple, `fmt: skip` and `off`.
unread: parameters that the body of their function never reads.
hooks: registrations of torch hooks outside src/headscan/model/recording.py.
"""

import argparse
import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GROUPS = {
    "packages": ("src", "lab/src"),
    "tests": ("tests", "lab/tests", "conftest.py"),
    "scripts": ("scripts", "benchmarks", "lab/scripts"),
}
HOOK_LAYER = "model/recording.py"
HOOK = re.compile(r"register_(?:forward|full_backward|backward)\w*hook")
SKIP = re.compile(r"# fmt: (?:skip|off)")
DENSE = 30
VAGUE = frozenset(
    "one ones other others found place places words own given asked kept said told taken made "  # noqa: SIM905 (fifty words in three lines)
    "each every some more less whole rest alike far near own theirs thing what which who seen "
    "there here held wanted chosen back after before".split()
)
NOT_CODE = {
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.COMMENT,
    tokenize.ENDMARKER,
}
Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
OWNERS = (ast.Module, ast.ClassDef, *FUNCTIONS)


@dataclass
class Counts:
    """Counts over files; they are added with `add`."""

    files: int = 0
    nodes: int = 0
    tokens: int = 0
    code_lines: int = 0
    lines_30: int = 0
    names: int = 0
    vague: int = 0
    walrus: int = 0
    tuple_assignments: int = 0
    skips: int = 0
    unread: int = 0
    hooks: int = 0

    @property
    def tokens_a_line(self) -> float:
        """Return the mean number of tokens on a line of code."""
        return self.tokens / max(self.code_lines, 1)

    @property
    def vague_names(self) -> float:
        """Return the share of bound names that say nothing, in percent."""
        return 100 * self.vague / max(self.names, 1)

    def add(self, counts: "Counts") -> None:
        """Add the counts of another file."""
        for field in fields(self):
            total = getattr(self, field.name) + getattr(counts, field.name)
            setattr(self, field.name, total)


def python_files(paths: Iterable[str]) -> list[Path]:
    """Return the Python files at these paths of the repository."""
    files = []
    for path in paths:
        full = ROOT / path
        files += [full] if full.is_file() else sorted(full.rglob("*.py"))
    return files


def docstrings(nodes: Iterable[ast.AST]) -> list[ast.stmt]:
    """Return the statements that are docstrings."""
    statements = []
    for node in nodes:
        if isinstance(node, OWNERS) and node.body and _is_text(node.body[0]):
            statements.append(node.body[0])
    return statements


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _is_constant(statement: ast.stmt) -> bool:
    """Return whether a statement is a text or `...` alone."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def tokens_by_line(text: str, outside: Iterable[ast.stmt]) -> Counter[int]:
    """Return the number of tokens on each line of code, without docstrings and comments."""
    skipped = set[int]()
    for docstring in outside:
        skipped.update(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))

    counts = Counter[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line = token.start[0]
        if token.type not in NOT_CODE and line not in skipped:
            counts[line] += 1
    return counts


def bound_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield every name that a parameter or an assignment binds."""
    for node in nodes:
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def unread_parameters(function: Function) -> list[str]:
    """Return the parameters that the body of a function never reads; stubs have none."""
    body = [statement for statement in function.body if not _is_constant(statement)]
    if all(isinstance(statement, ast.Pass | ast.Raise) for statement in body):
        return []
    read = set()
    for statement in body:
        read |= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}

    arguments = function.args
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    names = [parameter.arg for parameter in parameters]
    return [
        name
        for name in names
        if name not in read and name not in ("self", "cls") and not name.startswith("_")
    ]


def count(path: Path) -> Counts:
    """Return the counts of one file."""
    text = path.read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(text)))
    outside = docstrings(nodes)
    lines = tokens_by_line(text, outside)
    names = [name for name in bound_names(nodes) if name != "self"]

    tuple_assignments = [
        node
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
    ]
    functions = [node for node in nodes if isinstance(node, FUNCTIONS)]
    in_hook_layer = path.as_posix().endswith(HOOK_LAYER)
    return Counts(
        files=1,
        nodes=len(nodes) - 2 * len(outside),
        tokens=sum(lines.values()),
        code_lines=len(lines),
        lines_30=sum(size >= DENSE for size in lines.values()),
        names=len(names),
        vague=sum(name in VAGUE for name in names),
        walrus=sum(isinstance(node, ast.NamedExpr) for node in nodes),
        tuple_assignments=len(tuple_assignments),
        skips=len(SKIP.findall(text)),
        unread=sum(len(unread_parameters(function)) for function in functions),
        hooks=0 if in_hook_layer else len(HOOK.findall(text)),
    )


def total(paths: Iterable[str]) -> Counts:
    """Return the counts of all Python files at these paths."""
    counts = Counts()
    for path in python_files(paths):
        counts.add(count(path))
    return counts


def densest_lines(paths: Iterable[str], limit: int) -> list[tuple[int, str]]:
    """Return (tokens, FILE:LINE) of the lines with the most tokens, the densest first."""
    lines = []
    for path in python_files(paths):
        text = path.read_text(encoding="utf-8")
        outside = docstrings(ast.walk(ast.parse(text)))
        for line, size in tokens_by_line(text, outside).items():
            lines.append((size, f"{path.relative_to(ROOT)}:{line}"))
    return sorted(lines, reverse=True)[:limit]


def main() -> None:
    """Print the numbers of the paths, or of each group of folders."""
    parser = argparse.ArgumentParser(description="Print how the code reads, in numbers.")
    parser.add_argument("paths", nargs="*", help="files or folders; default: each group")
    parser.add_argument("--worst", type=int, default=0, help="print the N densest lines")
    options = parser.parse_args()

    groups = {"paths": tuple(options.paths)} if options.paths else GROUPS
    for name, paths in groups.items():
        counts = total(paths)
        print(
            f"{name}: {counts.files} files, {counts.nodes:,} nodes, {counts.tokens_a_line:.2f} "
            f"tokens a line, {counts.lines_30} lines of {DENSE} tokens, {counts.vague_names:.1f} "
            f"% vague names, {counts.walrus} walrus, {counts.tuple_assignments} tuple "
            f"assignments, {counts.skips} skips, {counts.unread} unread parameters, "
            f"{counts.hooks} hooks"
        )
        for size, line in densest_lines(paths, options.worst):
            print(f"{size:4} tokens  {line}")


if __name__ == "__main__":
    main()
