import time
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import pytest

# The samples multiply small matrices, on which BLAS threads of a busy machine mostly wait for one
# another.
with suppress(ImportError):
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)


BLANK = Path(__file__).with_name("blank.html")


class Visit:
    """A page opened from a file, and everything it did that it should not.

    All of a browser's visits share one process that draws, in which a page stays open: a fresh one
    takes a second to warm up. Nothing that a page stores is there for the next.
    """

    staying: ClassVar = {}

    def __init__(self, browser, path: Path, *, viewport=None, color_scheme=None):
        if browser not in self.staying:
            self.staying[browser] = browser.new_context(
                viewport={"width": 1100, "height": 800}
            ).new_page()
            self.staying[browser].goto(BLANK.as_uri())
        self.page = self.staying[browser].context.new_page()
        self.page.set_viewport_size(viewport or {"width": 1100, "height": 800})
        self.page.emulate_media(color_scheme=color_scheme)
        # playwright's own evaluates text in the page, which the page's policy forbids
        self.page.wait_for_function = self.until
        self.errors: list[str] = []
        self.dialogs: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        self.page.on("pageerror", lambda e: self.errors.append(str(e)))
        self.page.on("dialog", lambda d: (self.dialogs.append(d.message), d.dismiss()))
        self.page.on("request", lambda r: self.requests.append(r.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready=true]", timeout=60_000)
        drawn = (
            "[...document.querySelectorAll('.scene')].every((scene) => "
            "scene.querySelector('.main-svg'))"
        )
        self.page.wait_for_function(drawn)
        self.path = path

    def until(self, expression: str, arg: object = None, timeout: float = 30_000):
        """Wait until an expression is true in the page."""
        end = time.monotonic() + timeout / 1000
        while not self.page.evaluate(expression, arg):
            assert time.monotonic() < end, f"never true: {expression}"
            self.page.wait_for_timeout(20)

    def clean(self):
        """Nothing went wrong, nothing was asked of the network, nothing of the data ran."""
        assert self.errors == []
        assert self.dialogs == []
        assert [
            url
            for url in self.requests
            if not url.startswith(("data:", "blob:", self.path.as_uri()))
        ] == []
        assert self.page.evaluate("window.pwned") is None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.page.evaluate("localStorage.clear()")
        self.page.close()


@pytest.fixture(scope="session")
def visit():
    return Visit
