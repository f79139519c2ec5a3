"""Every kind of page, made by a small real run: light and dark, wide and on a phone, axe-core finds nothing against it."""

import importlib.util
import warnings
from pathlib import Path

import pytest

# By its place: a folder of scripts on the path would hide installed packages that have a script's name.
_SPEC = importlib.util.spec_from_file_location("pages", Path(__file__).resolve().parents[2] / "scripts" / "pages.py")
pages = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(pages)

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def axe():
    if pages.axe() is None:
        warnings.warn("axe-playwright-python is not installed: accessibility is NOT tested", stacklevel=1)
        pytest.skip("axe-playwright-python is not installed: accessibility is NOT tested")


def test_no_kind_is_left_out():
    schemas = Path(__file__).resolve().parents[2] / "docs" / "schemas"
    assert {path.stem for path in schemas.glob("*.json")} == set(pages.EXAMPLES)


@pytest.mark.parametrize("kind", pages.EXAMPLES)
def test_a_page_keeps_nobody_out(kind, tmp_path, chromium_without_webgl, axe, visit):
    path = pages.make(kind, tmp_path)
    assert path.stat().st_size < 2_500_000
    with visit(chromium_without_webgl, path) as opened:
        page = opened.page
        for width, scheme in pages.VIEWS[::3]:  # both widths, both colours; `scripts/pages.py` looks at all four
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            page.wait_for_function(f"document.documentElement.scrollWidth <= {width}")
            assert pages.violations(page) == []
        for wanted in ("#protocol-title", "[data-take='result.json']", "h1", ".deck"):
            assert page.locator(wanted).count() == 1
        assert not page.locator("h1").inner_text().startswith(("/", "."))
        assert page.locator("text=cannot be shown").count() == 0
        opened.clean()
