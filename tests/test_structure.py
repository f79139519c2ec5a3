"""The structure of the code: which package may import which, sizes of files and functions, and that
generated pages are true.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "headscan"
LABORATORY = ROOT / "lab" / "src" / "headscan_lab"
FILES = sorted(SOURCE.rglob("*.py"))
LAB_FILES = sorted(LABORATORY.rglob("*.py"))
LONGEST_FILE = 640  # lines
# From below: a package may import the layers under it, and itself. Packages of one layer do not
# import each other.
LAYERS = [
    {"run"},
    {"text"},
    {"model"},
    {"states"},
    {"statistics"},
    {"measures", "ntp", "inversion", "attribution"},
    {"scanner"},
    {"comparison"},
    {"flow", "leaks", "training", "remedies", "weights"},
    {"diagnosis"},
    {"report"},
    {"__init__"},
    {"cli"},
    {"__main__"},
]
LAYER = {name: height for height, layer in enumerate(LAYERS) for name in layer}
# `statistics` and `ntp` know no model, `report` reads results and loads none; results it must know
# by their types.
BLIND = {"statistics": {"text", "model", "states"}, "report": set()}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(tree(path)))


@cache
def imports(path: Path) -> set[str]:
    """Modules named by the import statements of a file, wherever they stand in it."""
    modules: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for name in (f"{node.module}.{alias.name}" for alias in node.names):
                modules.add(name if node.module == "headscan" or is_module(name) else node.module)
    return modules


def is_module(name: str) -> bool:
    path = SOURCE.parent.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def module_name(path: Path) -> str:
    return ".".join(("headscan", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(
        ".__init__"
    )


def package(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def named(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def docstrings(path: Path) -> set[int]:
    """The ids of the nodes that are docstrings (or texts that stand alone, as the words on a
    constant do).
    """
    return {id(node.value) for node in nodes(path) if isinstance(node, ast.Expr)}


@pytest.mark.parametrize("path", FILES, ids=named)
def test_imports_run_one_way(path):
    home = package(path)
    for name in imports(path):
        if not name.startswith("headscan."):
            assert not (
                home in ("run", "statistics", "ntp") and name.split(".")[0] == "transformers"
            ), f"{home} knows no model"
            continue
        home_of_import = name.split(".")[1]
        if home_of_import in LAYER:
            below = LAYER[home_of_import] < LAYER[home]
            assert home_of_import == home or below, f"{home} must not know {name}"
            assert home_of_import not in BLIND.get(home, set()), f"{home} must not know {name}"


@pytest.mark.parametrize("path", FILES, ids=named)
def test_nothing_reaches_up_by_a_string(path):
    home = package(path)
    if home in ("__init__", "cli"):
        return
    skipped = docstrings(path)
    for node in nodes(path):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in skipped
        ):
            for named_package in re.findall(r"\bheadscan\.(\w+)", node.value):
                if named_package in LAYER and is_module(f"headscan.{named_package}"):
                    assert LAYER[named_package] <= LAYER[home], f"{home} names {node.value!r}"


def test_no_circle_in_the_imports():
    known = {
        ".".join(("headscan", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(
            ".__init__"
        ): path
        for path in FILES
    }
    arrows = {
        name: {module for module in imports(path) if module in known and module != name}
        for name, path in known.items()
    }
    # A package's own __init__ lists what is in it; a module that imports its package would close a
    # circle with every other.
    state: dict[str, int] = {}
    circles: list[list[str]] = []

    def walk(name: str, way: list[str]) -> None:
        state[name] = 1
        for module in sorted(arrows[name]):
            if state.get(module) == 1:
                circles.append(
                    [*way[way.index(module) :], module] if module in way else [name, module]
                )
            elif module not in state:
                walk(module, [*way, module])
        state[name] = 2

    sys.setrecursionlimit(10_000)
    for name in sorted(arrows):
        if name not in state:
            walk(name, [name])
    assert circles == []


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_files_are_neither_huge_nor_fragments():
    """Few files are small, none is huge, and no package dominates.

    Package faces may be small, and so may the declarations of a verb's findings (kinds.py).
    """
    faces = ("__init__.py", "__main__.py", "kinds.py")
    lengths = {path: lines(path) for path in FILES + LAB_FILES if path.name not in faces}
    assert {str(path): length for path, length in lengths.items() if length > LONGEST_FILE} == {}
    assert sum(length < 60 for length in lengths.values()) <= 0.05 * len(lengths)

    packages = defaultdict(int)
    for path in FILES:
        packages[package(path)] += lines(path)
    largest = 0.14 * sum(lengths.values())
    assert {name: size for name, size in packages.items() if size > largest} == {}


def test_functions_are_short():
    long = {
        f"{path.name}:{node.name}": _body(node)
        for path in FILES + LAB_FILES
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef) and _body(node) > 80
    }
    assert long == {}


def _body(node: ast.FunctionDef) -> int:
    """Lines of a function without its signature and docstring: words are not what makes a function
    long.
    """
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(node.body) > 1:
        first = node.body[1]
    return node.end_lineno - first.lineno + 1


def test_class_names_are_unique_within_a_package():
    homes = defaultdict(list)
    for path in FILES + LAB_FILES:
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                homes[
                    package(path) if path in FILES else path.parent.name, node.name.lstrip("_")
                ].append(path.name)
    assert {
        name: homes_of_name for name, homes_of_name in homes.items() if len(homes_of_name) > 1
    } == {}


@pytest.mark.parametrize("path", FILES + LAB_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_package_faces_list_their_names(path):
    listed = any(
        getattr(node.targets[0], "id", "") == "__all__"
        for node in tree(path).body
        if isinstance(node, ast.Assign)
    )
    assert not listed or path.name == "__init__.py"


def test_public_names_have_docstrings():
    """What a package's face offers says what it is; overrides and helpers need not."""
    bare = []
    for face in (path for path in FILES if path.name == "__init__.py"):
        names = {
            element.value
            for node in tree(face).body
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
            for element in node.value.elts
        }
        for path in sorted(face.parent.rglob("*.py")):
            defined = [
                node
                for node in tree(path).body
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names
            ]
            documented = {node.name for node in defined if ast.get_docstring(node)}
            bare += [
                f"{named(path)}:{node.name}" for node in defined if node.name not in documented
            ]
    assert bare == []


def test_the_instrument_knows_nothing_of_the_laboratory():
    assert [
        named(path)
        for path in FILES
        if any(name.startswith("headscan_lab") for name in imports(path))
    ] == []


def test_intervals_have_one_home():
    """Nobody else writes a normal or a Student's quantile by hand: headscan.statistics.uncertainty
    has them all.
    """
    by_hand = re.compile(
        r"\b(1\.96|1\.95996\d*|1\.645|2\.576|stdtrit)\b|\bt\.ppf\(|\bstudent\.ppf\(|\bnorm\.ppf\("
    )
    definitions = [
        str(path.relative_to(ROOT))
        for path in FILES + LAB_FILES
        if path.relative_to(ROOT) != Path("src/headscan/statistics/uncertainty.py")
        and by_hand.search(path.read_text(encoding="utf-8"))
    ]
    assert definitions == []


def test_no_open_dictionary_passes_between_modules():
    """`dict[str, Any]` stands only where data come from outside or go there: JSON, and the
    arguments of a model's own call.
    """
    open_dictionaries = []
    for path in FILES:
        for node in nodes(path):
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            notes = [
                argument.annotation for argument in (*node.args.args, *node.args.kwonlyargs)
            ] + [node.returns]
            if any(note is not None and "dict[str, Any]" in ast.unparse(note) for note in notes):
                open_dictionaries.append(f"{named(path)}:{node.name}")
    allowed = (
        "run/",
        "cli/",
        "diagnosis/plan.py:reading_of",  # the options of a verb's call
        "training/healthy_runs.py:of_json",
        "scanner/result.py",
        "states/stored.py:flat_items",  # what a user's file holds
        "report/kit/reading.py",
        "model/inputs.py",
        "model/sites.py",
        "model/recording.py",
        "model/slicing/",
        "model/recording.py",
        "training/trainer.py",
    )
    assert [name for name in open_dictionaries if not name.startswith(allowed)] == []


def test_importing_the_package_loads_no_heavy_library():
    heavy = ("numpy", "torch", "transformers", "plotly", "pandas", "pydantic", "rich", "typer")
    code = f"import sys, headscan; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (["--help"], ("numpy", "torch", "transformers", "plotly")),
        (
            [
                "scan",
                "gpt-vanilla",
                "--text",
                "stories",
                "--max-tokens",
                "128",
                "--sites",
                "block.0",
                "--sample",
                "9",
            ],
            (
                "pandas",
                "scipy.stats",
                "sklearn",
                "headscan.diagnosis",
                "headscan.inversion",
                "headscan.leaks",
            ),
        ),
    ],
)
def test_a_command_loads_no_library_that_it_does_not_use(arguments, unwanted, tmp_path):
    argv = [
        "headscan",
        *arguments,
        *(["--out", str(tmp_path / "out")] if "scan" in arguments else []),
    ]
    code = (
        f"import sys; sys.argv = {argv}\nfrom headscan.cli import main\ntry:\n    "
        "main()\nfinally:\n"
    )
    code += f"    print([m for m in {unwanted} if m in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip().splitlines()[-1] == "[]"


def test_written_pages_are_up_to_date():
    """In a process of its own, where nothing but headscan has registered anything."""
    code = (
        "import runpy, sys\nsys.argv = ['', '--check']\nfor path in {paths}:\n"
        "    try:\n        runpy.run_path(path, run_name='__main__')\n"
        "    except SystemExit as end:\n        if end.code:\n            raise"
    )
    paths = [
        str(ROOT / "scripts" / script) for script in ("measures.py", "registries.py", "schemas.py")
    ]
    subprocess.run([sys.executable, "-c", code.format(paths=paths)], check=True)


def test_versions_agree():
    import headscan

    assert f"version: {headscan.__version__}" in (ROOT / "CITATION.cff").read_text()
    constraints, lock = ((ROOT / name).read_text() for name in ("constraints.txt", "lock.txt"))
    assert re.search(r"^torch==2\.13\.0$", constraints, re.M)
    pinned, locked = (
        {
            re.sub(r"[-_.]+", "-", name).lower(): version
            for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.M)
        }
        for text in (constraints, lock)
    )
    assert {name: pinned[name] for name in locked if name in pinned} == {
        n: v for n, v in locked.items() if n in pinned
    }
    for entry in re.split(r"\n(?=\S)", lock.strip()):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), (
            f"{entry.splitlines()[0]} has no hash: make lock"
        )


def test_a_lock_has_what_the_project_needs_and_actions_are_named_by_their_commit():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [
        *project["dependencies"],
        *project["optional-dependencies"]["dev"],
        *project["optional-dependencies"]["release"],
    ]
    names = {
        re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()
        for requirement in requirements
    } - {"headscan", "torch"}
    locked = {
        re.sub(r"[-_.]+", "-", name).lower()
        for name in re.findall(r"^([\w.-]+)==", (ROOT / "lock.txt").read_text(), re.M)
    }
    assert not names - locked, "make lock"
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        for used in re.findall(r"uses: (\S+)", workflow.read_text()):
            assert used.startswith("./") or re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", used), (
                f"{workflow.name}: {used}"
            )


def test_types_ship_with_the_package():
    assert (SOURCE / "py.typed").is_file()
