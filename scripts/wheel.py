"""Build the packages, weigh them, and try every verb where only they are installed: `make wheel`.

    python scripts/wheel.py [FOLDER]

In a temporary environment of headscan and its laboratory, without extras, README's first command
and every verb run on the example models that the wheel has, or say in one sentence which extra
they need and leave with 2; so does every option that needs an extra. The packages stand in FOLDER
(dist).
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shlex
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 13_000_000
REFUSAL = re.compile(r"headscan: .*[Pp]ip install ['\"]headscan\[(\w+)\]['\"].*\.")
# What needs an extra, by the extra; {folder} holds a .gguf file and an index that is not flat,
# which are not read so far.
MISSING = {
    "datasets": "scan gpt-vanilla --text somebody/stories --max-tokens 64 --context 32",
    "train": "train gpt --text stories --steps 2 --size tiny --context 32 --batch 4",
    "eval": "evaluate gpt-vanilla --text {sets} --tasks lm-eval:lambada_openai",
    "spark": "ntp stories --tokenizer gpt-vanilla --order 1 --engine spark --master local[1] "
    "--max-tokens 500",
    "quantize": "scan gpt-vanilla --text stories --dtype 8bit --max-tokens 64 --context 32",
    "gguf": "scan {folder}/model.gguf --text stories --max-tokens 64 --context 32",
    "figures": "figures {result} {folder}/figures",
}


def command(*args: str | Path) -> subprocess.CompletedProcess[str]:
    """Run it; a fault of its own ends the script with what it said."""
    done = subprocess.run([str(word) for word in args], capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        sys.exit(
            f"{shlex.join(map(str, args))} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        )
    return done


def built(dist: Path, tools: Path) -> tuple[Path, Path]:
    """Return the wheels of headscan and of the laboratory, built, weighed and looked into.

    What builds them is what this environment has (`make wheel LOCKED=1`: checked against lock.txt),
    else a new one in `tools`.
    """
    python = Path(sys.executable)
    alone = ["--no-isolation"]
    if not all(
        importlib.util.find_spec(name)
        for name in ("build", "twine", "hatchling", "hatch_fancy_pypi_readme")
    ):
        command(sys.executable, "-m", "venv", tools)
        python = tools / "bin" / "python"
        alone = []
        command(python, "-m", "pip", "install", "--quiet", "build", "twine")
    for old in [*dist.glob("headscan-*"), *dist.glob("headscan_*-*")]:
        old.unlink()
    command(python, "-m", "build", *alone, "--outdir", dist, ROOT)
    command(python, "-m", "build", *alone, "--wheel", "--outdir", dist, ROOT / "lab")
    [wheel] = dist.glob("headscan-*.whl")
    [archive] = dist.glob("headscan-*.tar.gz")
    [laboratory] = dist.glob("headscan_lab-*.whl")
    command(python, "-m", "twine", "check", "--strict", wheel, archive, laboratory)
    for package in (wheel, archive):
        print(f"{package.name}: {package.stat().st_size:,} bytes")
        if package.stat().st_size > LIMIT:
            sys.exit(f"{package.name} is larger than {LIMIT:,} bytes")
    members = {*zipfile.ZipFile(wheel).namelist()}
    source = command("git", "ls-files", "src").stdout.split("\n")
    lacking = sorted({name.removeprefix("src/") for name in source if name} - members)
    if lacking:
        sys.exit(f"not in the wheel: {', '.join(lacking)}")
    about = (
        zipfile.ZipFile(wheel)
        .read(next(name for name in members if re.match(r"headscan-[^/]*/METADATA", name)))
        .decode()
    )
    relative = [
        link
        for link in re.findall(r"\]\(([^)]+)\)", about)
        if not link.startswith(("https://", "#"))
    ]
    if relative:
        sys.exit(f"links that lead nowhere on a package index: {', '.join(relative)}")
    return wheel, laboratory


def scripts_pages() -> ModuleType:
    """The neighbour that has a short command for every kind of page, and what they read."""
    spec = importlib.util.spec_from_file_location("pages", Path(__file__).with_name("pages.py"))
    assert spec
    assert spec.loader
    pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    return pages


def readme_command() -> str:
    """Return the arguments of the first command of README."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [first, *_] = re.findall(r"^    (?:\$ )?(?:\.venv/bin/)?headscan (.+)", readme, flags=re.M)
    return str(first)


def tried(python: Path, arguments: str, folder: Path, paths: dict[str, str]) -> str:
    """Return what came of a command: "runs", the extra it asks for, or how it failed."""
    out = [] if arguments.split()[0] in ("models", "figures") else ["--out", str(folder)]
    called = [str(python.with_name("headscan")), *shlex.split(arguments.format(**paths)), *out]
    done = subprocess.run(called, capture_output=True, text=True, cwd=folder.parent)
    last = (done.stderr.strip() or "nothing was said").splitlines()[-1]
    if done.returncode == 0:
        complete = not out or (folder / "result.json").is_file()
        return (
            "runs" if complete and "Traceback" not in done.stderr else f"leaves no result: {last}"
        )
    refused = REFUSAL.fullmatch(last)
    if done.returncode == 2 and refused and "Traceback" not in done.stderr:
        return (
            refused[1]
            if not (folder / "result.json").exists()
            else f"refuses and leaves a result: {last}"
        )
    return f"leaves with {done.returncode}: {last}"


def clean_environment(folder: Path, *wheels: Path) -> Path:
    """The Python of a new environment that has the wheels and what they need, at the versions of
    constraints.txt.
    """
    command(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    command(
        python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", *wheels
    )
    return python


def try_all(folder: Path, wheel: Path, laboratory: Path) -> list[str]:
    """Every verb and every option that needs an extra; what is not as it should be."""
    pages = scripts_pages()
    paths = pages.materials(folder) | {"folder": str(folder), "result": str(folder / "remedy")}
    python = clean_environment(folder / "environment", wheel, laboratory)
    (folder / "model.gguf").write_bytes(b"GGUF" + bytes(96))
    wrong = []

    def report(name: str, arguments: str, outcome: str, accepted: set[str]) -> None:
        print(f"{'ok ' if outcome in accepted else 'NOT'}  {name}: {outcome}", flush=True)
        if outcome not in accepted:
            wrong.append(f"{name}: {outcome} (headscan {arguments})")

    for verb, arguments in (pages.EXAMPLES | {"models": "models"}).items():
        outcome = tried(python, arguments, folder / verb, paths)
        report(verb, arguments, outcome, {"runs", *MISSING})
    for extra, arguments in MISSING.items():
        report(
            f"without {extra}",
            arguments,
            tried(python, arguments, folder / f"without-{extra}", paths),
            {extra},
        )
    first = readme_command()
    report(
        "README's first command", first, tried(python, first, folder / "readme", paths), {"runs"}
    )
    return wrong


def main() -> None:
    """Leaves with 1, and says why, where a package or a verb is not as it should be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "dist")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheels = built(options.folder, folder / "tools")
        wrong = try_all(folder, *wheels)
    if wrong:
        sys.exit("\n".join(["", *wrong]))


if __name__ == "__main__":
    main()
