"""What all tests share: the real models and texts, where they are, and one thread per test process."""

from __future__ import annotations

import gc
import os
import warnings
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
# pytest-xdist runs one process a core; a second thread in each only makes them wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
ASSETS = Path(os.environ.get("HEADSCAN_ASSETS", ROOT.parent / "shared" / "assets"))
REAL = Path(os.environ.get("HEADSCAN_REAL", Path.home() / ".cache" / "headscan" / "real") or "models of `make real`")

torch.set_num_threads(1)


def pytest_collection_finish():
    """What is loaded by now is never looked through for garbage again: that took a half of a small scan's time."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items):
    """A test that takes the `assets` or the `real` fixture is marked as such, so that `-m 'not assets'` leaves it out."""
    for item in items:
        for name in ("assets", "real"):
            if name in getattr(item, "fixturenames", ()):
                item.add_marker(getattr(pytest.mark, name))


@pytest.fixture(scope="session")
def assets() -> Path:
    """The folder of real models and real texts; the test is skipped, loudly, where it is absent."""
    if not (ASSETS / "README.md").is_file():
        message = f"{ASSETS} is absent: the tests on real models and real text do NOT run"
        warnings.warn(message, stacklevel=1)
        pytest.skip(message)
    return ASSETS


@pytest.fixture(scope="session")
def real() -> Path:
    """The folder of models of a user's size (qwen/, qwen.gguf, all-mpnet-base-v2/); skipped, loudly, where it is absent."""
    if not REAL.is_dir():
        message = f"{REAL} is absent: the tests on models of a user's size do NOT run"
        warnings.warn(message, stacklevel=1)
        pytest.skip(message)
    return REAL


CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]
SOFTWARE_GL = ["--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]


def refuse(reason: str):
    message = f"{reason}: the pages are NOT opened in a browser"
    warnings.warn(message, stacklevel=1)
    pytest.skip(message)


@pytest.fixture(scope="session")
def playwright():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        refuse("playwright is not installed")
    if not CHROMIUM.exists():
        refuse(f"{CHROMIUM} is absent")
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="session")
def chromium(playwright):
    browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS + SOFTWARE_GL)
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def chromium_without_webgl(playwright):
    browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=[*FLAGS, "--disable-3d-apis"])
    yield browser
    browser.close()
