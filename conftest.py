"""Fixtures and settings that all tests share: the seeds, the real models and texts, where they are,
and one thread per test process.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import warnings
import zlib
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
# pytest-xdist runs one process a core; a second thread in each only makes them wait for one
# another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis.internal.conjecture import providers

ROOT = Path(__file__).resolve().parent
ASSETS = Path(os.environ.get("HEADSCAN_ASSETS", ROOT.parent / "shared" / "assets"))
REAL = Path(
    os.environ.get("HEADSCAN_REAL", Path.home() / ".cache" / "headscan" / "real")
    or "models of `make real`"
)

torch.set_num_threads(1)
gc.set_threshold(100_000, 20, 100)  # as the command does: imports make objects that stay

# No test cuts the power: what is written is there for every process at once, and nobody waits for a
# disk.
os.fsync = lambda handle: None

# A shell starts what runs in its background with Ctrl-C ignored, and every process from there on
# inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Without HEADSCAN_SEED (or --hypothesis-seed), every run tries the same examples and draws the same
# random numbers. With it, other examples are tried at every seed. No clock decides whether a test
# passes.
SEED = os.environ.get("HEADSCAN_SEED") or None
COMMON = {
    "deadline": None,
    "suppress_health_check": [hypothesis.HealthCheck.too_slow],
    "print_blob": True,
}
hypothesis.settings.register_profile("same", derandomize=True, **COMMON)
hypothesis.settings.register_profile("random", database=None, **COMMON)


# Where there is no accelerator, `torch.manual_seed` stores the stack of its caller three times, for
# devices that may come: a millisecond for each test and fixture, and memory that stays.
seed_torch = torch.manual_seed
if not torch.accelerator.is_available():
    seed_torch = torch.default_generator.manual_seed


class TorchRandom:
    """Torch's generator, for hypothesis to seed before every example, as it does `random` and numpy
    by itself.
    """

    seed, getstate, setstate = map(
        staticmethod, (seed_torch, torch.get_rng_state, torch.set_rng_state)
    )


hypothesis.register_random(TorchRandom)


class Seeding:
    """Seeds every random generator before each fixture and each test.

    What a test draws then does not depend on the tests that its process ran before, which
    pytest-xdist deals out anew at every run.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def restart(self, name: str) -> None:
        seed = (
            self.seed + zlib.crc32(name.encode())
        ) % 2**32  # a test does not draw what its fixtures drew
        random.seed(seed)
        np.random.seed(seed)
        seed_torch(seed)

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef):
        self.restart(fixturedef.argname)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self):
        self.restart("")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Choose the examples of the property tests and the seed of everything else that is drawn."""
    if SEED is not None and config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(int(SEED))
    seed = config.getoption("--hypothesis-seed")
    hypothesis.settings.load_profile("same" if seed is None else "random")
    # Hypothesis also tries constants of the modules imported so far: other ones, where the tests
    # before were other ones.
    if seed is None and hasattr(providers, "_get_local_constants"):
        providers._get_local_constants = providers.Constants
    # By default a number of its own: many tests seed generators with 0 or 1, and would draw the
    # same numbers twice.
    config.pluginmanager.register(
        Seeding(int(seed) if str(seed).isdecimal() else 20_250_728), "seeding"
    )
    config.pluginmanager.register(Freezing(), "freezing")


def pytest_report_header(config):
    """Say which random examples are tried."""
    seed = config.getoption("--hypothesis-seed")
    return None if seed is None else f"random seed: {seed} (HEADSCAN_SEED={seed} repeats this run)"


class Freezing:
    """Keeps the collector from looking through what is loaded again and again.

    Every model that is given back and every Trainer asks for a whole collection. Modules that tests
    import are most of what it walks through. They are frozen once many of them are new.
    """

    MANY = 150

    def __init__(self) -> None:
        self.frozen = 0

    def pytest_collection_finish(self) -> None:
        gc.collect()
        self.freeze()

    def pytest_runtest_teardown(self) -> None:
        if len(sys.modules) - self.frozen > self.MANY:
            self.freeze()

    def freeze(self) -> None:
        gc.freeze()
        self.frozen = len(sys.modules)


SLOW = ("real", "gpu", "spark")  # marks of tests that may take minutes


@pytest.hookimpl(tryfirst=True)  # before the tests that -m leaves out are
def pytest_collection_modifyitems(items):
    """A test that takes the `assets` or the `real` fixture is marked as such, so that `-m 'not
    assets'` leaves it out.
    """
    for item in items:
        for name in ("assets", "real"):
            if name in getattr(item, "fixturenames", ()):
                item.add_marker(getattr(pytest.mark, name))
        if any(item.get_closest_marker(name) for name in SLOW):
            item.add_marker(pytest.mark.timeout(3600))


@pytest.fixture(scope="session", autouse=True)
def _intervals_are_held():
    """Every result of the suite, whatever the test is about: no interval leaves its range or misses
    its number.
    """
    from tests.intervals import hold

    hold()


@pytest.fixture(scope="session")
def asset_folder() -> Path:
    """Return the folder of real models and real texts, if there is one: for tests that have
    something else to try.
    """
    return ASSETS


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
    """The folder of models of a user's size (qwen/, qwen.gguf, all-mpnet-base-v2/); skipped,
    loudly, where it is absent.
    """
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
    "--process-per-site",  # pages of one context are drawn by one process
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
    browser = playwright.chromium.launch(
        executable_path=str(CHROMIUM), args=[*FLAGS, "--disable-3d-apis"]
    )
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def story() -> str:
    """A small artificial language: 30,000 characters of made-up sentences with a Zipfian
    vocabulary.
    """
    draw = random.Random(0)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    vocabulary = ["".join(draw.choices(syllables, k=draw.randint(1, 3))) for _ in range(120)]
    weights = [1 / (rank + 2) for rank in range(len(vocabulary))]
    lines = []
    while sum(map(len, lines)) < 30_000:
        lines.append(" ".join(draw.choices(vocabulary, weights, k=draw.randint(4, 9))) + ".")
    return "\n".join(lines)


@pytest.fixture(scope="session")
def story_file(story, tmp_path_factory):
    """Return a file that holds the story."""
    path = tmp_path_factory.mktemp("text") / "story.txt"
    path.write_text(story)
    return path
