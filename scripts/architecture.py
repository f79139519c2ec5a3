"""Draw docs/images/architecture.svg: the packages in their layers, and what imports what.

    python scripts/architecture.py [--check]

Packages of one row do not import each other; every arrow points to a package below. An arrow is
left out where a longer way leads to the same package. `--check` writes nothing and exits with 1
where the stored picture is not that of the code.
"""

import ast
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "headscan"
PICTURE = ROOT / "docs" / "images" / "architecture.svg"
WIDTH = 960
ROW_HEIGHT = 92
BOX_HEIGHT = 46
GAP = 16


@dataclass(frozen=True)
class Box:
    """A package in the picture: its row from below, its left edge and width in pixels."""

    package: str
    row: int
    left: float
    width: float

    def top(self, rows: int) -> float:
        """Return the upper edge, in pixels from the top of a picture of so many rows."""
        return (rows - 1 - self.row) * ROW_HEIGHT + GAP


def package_of(path: Path) -> str:
    """Return the package (or module) of headscan that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_packages(path: Path) -> set[str]:
    """Return the packages of headscan that a file imports."""
    names = set[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    parts = [name.split(".") for name in names]
    return {part[1] for part in parts if part[0] == "headscan" and len(part) > 1}


def dependencies() -> dict[str, set[str]]:
    """Return for each package the packages that it imports."""
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    imports = {package: set[str]() for package in sorted(packages)}
    for path in sorted(SOURCE.rglob("*.py")):
        package = package_of(path)
        if package in packages:
            imports[package] |= (imported_packages(path) & packages) - {package}
    return imports


def rows_of(imports: dict[str, set[str]]) -> dict[str, int]:
    """Return the row of each package: one more than the highest package that it imports."""
    rows: dict[str, int] = {}

    def row(package: str) -> int:
        if package not in rows:
            below = [row(imported) for imported in imports[package]]
            rows[package] = max(below, default=-1) + 1
        return rows[package]

    for package in imports:
        row(package)
    return rows


def reachable(imports: dict[str, set[str]], package: str) -> set[str]:
    """Return all packages that a package imports, directly or through others."""
    reached = set[str]()
    waiting = list(imports[package])
    while waiting:
        current = waiting.pop()
        if current not in reached:
            reached.add(current)
            waiting += imports[current]
    return reached


def drawn_arrows(imports: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Return the imports that no longer way explains, as (package, imported package)."""
    arrows = []
    for package, imported in imports.items():
        for target in sorted(imported):
            indirect = [reachable(imports, middle) for middle in imported - {target}]
            if not any(target in packages for packages in indirect):
                arrows.append((package, target))
    return arrows


def lines_of(package: str) -> int:
    """Return the number of lines of a package's Python files."""
    files = (SOURCE / package).rglob("*.py")
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def boxes_of(rows: dict[str, int]) -> dict[str, Box]:
    """Return a box for each package, evenly spread over its row."""
    boxes = {}
    for row in sorted(set(rows.values())):
        members = sorted(package for package in rows if rows[package] == row)
        width = min(150.0, (WIDTH - GAP) / len(members) - GAP)
        total = len(members) * (width + GAP) - GAP
        for position, package in enumerate(members):
            left = (WIDTH - total) / 2 + position * (width + GAP)
            boxes[package] = Box(package, row, left, width)
    return boxes


def picture() -> str:
    """Return the picture as SVG."""
    imports = dependencies()
    boxes = boxes_of(rows_of(imports))
    rows = 1 + max(box.row for box in boxes.values())
    height = rows * ROW_HEIGHT

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="Helvetica,Arial,sans-serif" text-anchor="middle">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" '
        'markerHeight="6" orient="auto"><path d="M0 0L8 4L0 8z" fill="#8a93a3"/></marker></defs>',
    ]
    for package, imported in drawn_arrows(imports):
        start = boxes[package]
        end = boxes[imported]
        parts.append(
            f'<line x1="{start.left + start.width / 2:.0f}" '
            f'y1="{start.top(rows) + BOX_HEIGHT:.0f}" '
            f'x2="{end.left + end.width / 2:.0f}" y2="{end.top(rows):.0f}" stroke="#8a93a3" '
            'marker-end="url(#arrow)"/>'
        )
    for box in boxes.values():
        middle = box.left + box.width / 2
        top = box.top(rows)
        thousands = max(1, round(lines_of(box.package) / 1000))
        parts.append(
            f'<rect x="{box.left:.0f}" y="{top:.0f}" width="{box.width:.0f}" '
            f'height="{BOX_HEIGHT}" rx="6" fill="#eef3fb" stroke="#3b5b8c"/>'
            f'<text x="{middle:.0f}" y="{top + 20:.0f}" font-size="15" fill="#16243c">'
            f"{escape(box.package)}</text>"
            f'<text x="{middle:.0f}" y="{top + 37:.0f}" font-size="11" fill="#5a6577">'
            f"about {thousands},000 lines</text>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    """Write the picture, or check that the stored one is up to date."""
    drawn = picture()
    if "--check" not in sys.argv:
        PICTURE.write_text(drawn, encoding="utf-8")
        return
    if not PICTURE.is_file() or PICTURE.read_text(encoding="utf-8") != drawn:
        sys.exit("docs/images/architecture.svg is not up to date: run make docs.")


if __name__ == "__main__":
    main()
