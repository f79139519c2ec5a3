"""Inputs that change, or do not end, while a run reads them or lies interrupted."""

import shutil
import threading
import time
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import headscan
from headscan import BadInput
from headscan.run import code
from headscan.states import location, rows
from tests.forked import fork, status_of
from tests.model.test_gguf import write
from tests.model.tiny import llama
from tests.run.test_links import stop_after_storing
from tests.tiny import TEXTS, save_tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("tiny"))


class Answers(BaseHTTPRequestHandler):
    """A server that redirects for ever, is silent, or sends 10 GB whatever part is asked for."""

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        self.server.paths.append(self.path)
        if "silent" in self.path:
            time.sleep(3)
        elif "redirect" in self.path:
            self.send_response(302)
            self.send_header("Location", f"/{len(self.server.paths)}{self.path}")
            self.end_headers()
        else:
            self.send_response(200)
            self.send_header("Content-Length", str(10**10))
            self.end_headers()
            if self.command == "GET":
                self.send_zeros()

    def send_zeros(self):
        """Send an array of 10 GB until nobody reads it."""
        description = "{'descr': '<f4', 'fortran_order': False, 'shape': (312499996, 8), }"
        with suppress(OSError):
            self.wfile.write(b"\x93NUMPY\x01\x00\x76\x00" + description.ljust(117).encode() + b"\n")
            for _ in range(10_000):
                self.wfile.write(bytes(10**6))
                self.server.megabytes += 1


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.daemon_threads = True
    server.paths = []
    server.megabytes = 0
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()


def test_a_text_at_a_url_is_refused_and_not_asked_for(server, model):
    url = f"http://127.0.0.1:{server.server_port}/whole.txt"
    with pytest.raises(BadInput, match=r"^A text is not read from a URL \(http://.*txt\)"):
        headscan.scan(str(model), url)
    assert server.paths == []


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("redirect", "There is nothing at"),
        ("silent", "There is nothing at"),
        ("whole", "cannot be read"),
    ],
)
def test_states_of_a_server_without_an_end_are_refused(server, answer, sentence, monkeypatch):
    pytest.importorskip("aiohttp", reason="aiohttp is not installed: states by HTTP are NOT tried")
    monkeypatch.setattr(location, "PATIENCE", 0.2)
    url = f"http://127.0.0.1:{server.server_port}/{answer}.npy"
    with pytest.raises(BadInput, match=sentence):
        headscan.scan(url)
    assert server.paths
    assert server.megabytes < 100


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc: NOT tried")
def test_two_gigabytes_of_text_fit_into_one(tmp_path, model):
    """The text ends in a line of 2 GiB; a scan of its beginning ends, one of all refuses it."""
    path = tmp_path / "long.txt"
    with open(path, "wb") as file:
        file.write("\n".join([*TEXTS, ""]).encode())
        file.truncate(2**31)

    def scan():
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + 2**30
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        headscan.scan(str(model), path, context=16, max_tokens=256)
        with pytest.raises(BadInput, match="line 61 is longer than 16,777,216 characters"):
            headscan.scan(str(model), path, context=16, documents="lines")

    printed = tmp_path / "printed"
    assert status_of(fork(scan, printed)) == 0, printed.read_text()


@pytest.mark.parametrize("how", ["rewritten", "linked"])
def test_states_that_change_during_a_run_are_refused(tmp_path, how, monkeypatch):
    first, second = np.random.default_rng(0).standard_normal((2, 640, 8)).astype(np.float32)
    np.save(tmp_path / "first.npy", first)
    np.save(tmp_path / "second.npy", second)
    link = tmp_path / "states.npy"
    link.symlink_to(tmp_path / "first.npy")
    read = rows.FlatRows.read
    reads = []

    def read_and_change(self, begin, end):
        states = read(self, begin, end)
        reads.append(begin)
        if len(reads) == 2 and how == "rewritten":
            shutil.copyfile(tmp_path / "second.npy", tmp_path / "first.npy")
        elif len(reads) == 2:
            link.unlink()
            link.symlink_to(tmp_path / "second.npy")
        return states

    monkeypatch.setattr(rows.FlatRows, "read", read_and_change)
    with pytest.raises(BadInput, match=r"states\.npy was changed while it was read: run again\.$"):
        headscan.scan(str(link), context=32, batch=1)
    assert len(reads) == 2


def test_a_gguf_file_that_was_replaced_is_refused(tmp_path):
    gguf = pytest.importorskip("gguf", reason="gguf is not installed: .gguf files are NOT tried")
    sizes = {
        "vocab_size": 258,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "tie_word_embeddings": False,
    }
    file = write(gguf, llama(0, **sizes), tmp_path / "hen.gguf")
    out = tmp_path / "out"
    scan = partial(headscan.scan, str(file), TEXTS, context=16, max_tokens=256, sites="block.0")
    stop_after_storing(lambda: scan(out=out))
    write(gguf, llama(1, **sizes), file)
    with pytest.raises(BadInput, match=r"cannot be resumed: hen\.gguf of model 1 was"):
        scan(out=out, resume=True)


def test_a_plug_in_that_was_changed_is_refused(tmp_path, model, monkeypatch):
    package = tmp_path / "site" / "plugged"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("LIMIT = 1\n")
    info = tmp_path / "site" / "plugged-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[headscan.plugins]\nplugged = plugged\n")
    monkeypatch.syspath_prepend(tmp_path / "site")

    def forget():
        code._entry_points.cache_clear()
        code.code_hashes.cache_clear()

    out = tmp_path / "out"
    call = partial(headscan.attribute, str(model), "the hen", method="occlusion,combined")
    try:
        forget()
        stop_after_storing(lambda: call(out=out))
        (package / "__init__.py").write_text("LIMIT = 2\n")
        forget()
        with pytest.raises(BadInput, match="cannot be resumed: the code of plugged was"):
            call(out=out, resume=True)
    finally:
        monkeypatch.undo()
        forget()
