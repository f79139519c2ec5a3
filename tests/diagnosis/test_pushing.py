"""A checkup goes to the hub as a pull request, with the user's credentials; tried against a stand-in for the hub."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import numpy as np
import pytest

import headscan
from headscan.diagnosis import markdown, push
from headscan.diagnosis.publish import BEGIN, END
from headscan.run import BadInput
from tests.command_line import headscan as cli

CARD = f"# A model\n\n{BEGIN}\nold\n{END}\n\nBy somebody.\n"


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as a pull request needs: it serves a model card, takes commits, and refuses who has no token."""

    commits: ClassVar[list[dict]] = []
    answers = 200

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if self.path.endswith("/README.md"):
            self.reply(200, CARD.encode(), ETag='"1"', X_Repo_Commit="a" * 40)
        else:
            self.reply(404, b"{}", X_Error_Code="EntryNotFound")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if "/preupload/" in self.path:
            files = [
                {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False}
                for one in json.loads(body)["files"]
            ]
            self.reply(200, json.dumps({"files": files}).encode(), Content_Type="application/json")
        elif "/commit/" not in self.path:
            self.reply(200, b'{"errors": [], "warnings": []}', Content_Type="application/json")
        elif type(self).answers != 200:
            self.reply(403, b'{"error": "you may not write here"}', Content_Type="application/json")
        else:
            lines = [json.loads(line) for line in body.splitlines()]
            type(self).commits.append({"path": self.path, "token": self.headers["Authorization"], "lines": lines})
            here = f"http://{self.headers['Host']}/o/m"
            done = {"commitUrl": f"{here}/commit/b", "commitOid": "b" * 40, "pullRequestUrl": f"{here}/discussions/1"}
            self.reply(200, json.dumps(done).encode(), Content_Type="application/json")

    def log_message(self, *args: object) -> None:
        """Silent."""


@pytest.fixture
def hub(monkeypatch, tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
    monkeypatch.setattr(
        "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    Hub.commits, Hub.answers = [], 200
    yield Hub
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("push")
    np.save(folder / "cone.npy", np.random.default_rng(0).standard_normal((640, 16)) + 3)
    return folder


def test_a_checkup_becomes_a_pull_request_with_the_users_credentials(hub, stored):
    arguments = ["checkup", str(stored / "cone.npy"), "--out", str(stored / "out"), "--push", "o/m"]
    done = cli(*arguments)
    assert done.status == 0, done.output
    assert "/o/m/discussions/1" in done.output
    commit = hub.commits[0]
    assert commit["token"] == "Bearer hf_mine"
    assert "create_pr=1" in commit["path"]
    files = {one["value"]["path"]: base64.b64decode(one["value"]["content"]).decode()
             for one in commit["lines"] if one["key"] == "file"}  # fmt: skip
    assert set(files) == {"README.md", "headscan/checkup.json"}
    assert json.loads(files["headscan/checkup.json"])["kind"] == "checkup"
    card = files["README.md"]
    assert card.startswith("# A model\n\n" + BEGIN)
    assert card.endswith(END + "\n\nBy somebody.\n")
    assert "| HS101 | Narrow cone | **alarm** |" in card
    assert "\nold\n" not in card


def test_what_cannot_be_pushed_is_said_in_a_sentence(hub, stored, monkeypatch):
    result = headscan.checkup(str(stored / "cone.npy"))
    assert markdown(result).startswith(BEGIN)
    with pytest.raises(BadInput, match="OWNER/NAME"):
        push(result, "no name")
    hub.answers = 403
    with pytest.raises(BadInput, match="The hub did not take the checkup of 'o/m'"):
        push(result, "o/m")
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    refused = cli("checkup", str(stored / "cone.npy"), "--push", "o/m")
    assert refused.status == 2
    assert "hf auth login" in refused.output
    assert hub.commits == []
