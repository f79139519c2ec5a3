"""How a command ends: its exit status, its signals, the folder that it chose."""

import errno
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headscan.cli import ENVIRONMENT
from headscan.cli.guard import console
from headscan.cli.output import free_folder
from headscan.run import BadInput, MachineLimit, Result, check_writable
from headscan.run.files import SIGNALS, FolderLock
from tests.command_line import headscan
from tests.tiny import save_tiny


def test_bad_input_and_limits_of_the_machine_have_statuses_of_their_own():
    assert (BadInput.status, MachineLimit.status) == (2, 74)
    assert {errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN} <= ENVIRONMENT
    assert getattr(errno, "EREMOTEIO", errno.EIO) in ENVIRONMENT


def test_a_reader_that_has_seen_enough_is_no_fault_of_a_table():
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        console(Closed()).print("a table")


def test_a_closed_terminal_interrupts_as_a_polite_kill_does():
    before = [signal.getsignal(number) for number in SIGNALS]
    try:
        for number in SIGNALS:  # whoever started the tests may have them ignored
            signal.signal(number, signal.SIG_DFL)
        assert headscan("--version").status == 0
        assert [signal.getsignal(number) for number in SIGNALS] == [
            signal.default_int_handler
        ] * len(SIGNALS)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
        assert headscan("--version").status == 0
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)


def test_a_ctrl_c_while_headscan_is_imported_is_no_traceback():
    """Python names each import on standard error, so that the moment is the same every time."""
    with subprocess.Popen(
        [sys.executable, "-m", "headscan", "scan", "gpt-vanilla"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPROFILEIMPORTTIME": "1"},
        text=True,
    ) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line.rstrip().endswith("headscan._interrupt"):
                process.send_signal(signal.SIGINT)
    assert lines
    assert process.returncode in (-signal.SIGINT, 130)
    assert "Traceback" not in "".join(lines)


def test_runs_side_by_side_choose_different_folders(tmp_path):
    default = tmp_path / "results" / "scan-x"
    with free_folder(default, resume=False) as first, free_folder(default, resume=False) as second:
        assert (first.name, second.name) == ("scan-x", "scan-x-2")
        with FolderLock(first, "a run"), free_folder(default, resume=False) as third:
            assert third.name == "scan-x-3"
    assert list(default.parent.iterdir()) == []
    with free_folder(default, resume=False) as folder:
        (folder / "result.json").write_text("{}")
    with free_folder(default, resume=False) as folder:
        assert folder.name == "scan-x-2"
    with free_folder(default, resume=True) as folder:
        assert folder.name == "scan-x"


def test_a_file_of_the_output_that_is_gone_is_one_sentence(tmp_path, monkeypatch):
    model = save_tiny(tmp_path / "tiny")

    def vanish(_result, folder):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(folder / "page"))

    monkeypatch.setattr(Result, "saved", vanish)
    ended = headscan("weights", str(model), "--out", str(tmp_path / "out"))
    assert ended.status == 74
    assert "headscan: A file or folder of the output is gone" in ended.stderr


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert check_writable("~/results") == tmp_path / "results"


def test_a_finished_run_is_not_shown_for_another_model(tmp_path, monkeypatch):
    """The model is reached by a link, which leads to another model by now."""
    import shutil

    from headscan.model.available import specimen_path

    monkeypatch.chdir(tmp_path)
    for name, specimen in (("one", "gpt-vanilla-early"), ("two", "gpt-headless-early")):
        shutil.copytree(specimen_path(specimen), name)
    Path("latest").symlink_to("one")
    arguments = ("weights", "latest", "--out", "out")
    first = headscan(*arguments)
    again = headscan(*arguments, "--resume")
    assert (first.status, again.status, again.stdout) == (0, 0, first.stdout)
    os.unlink("latest")
    Path("latest").symlink_to("two")
    other = headscan(*arguments, "--resume")
    assert (other.status, other.stdout) == (2, "")
    assert "is not the file that it read: there is nothing to resume" in other.stderr


@pytest.mark.parametrize(
    "change", [{"schema": 99}, {"kind": [1]}, {"protocol": {"verb": ["scan"]}}, {"findings": [1]}]
)
def test_a_baseline_is_checked(tmp_path, change):
    import json

    document = {"schema": 2, "kind": "scan", "protocol": {"verb": "scan"}, "findings": []}
    file = tmp_path / "baseline.json"
    file.write_text(json.dumps(document | change))
    ended = headscan("scan", "gpt-vanilla-early", "--text", "stories", "--baseline", str(file))
    assert ended.status == 2
    assert "--baseline:" in ended.stderr


def test_a_verb_leaves_random_states_as_they_were():
    import random

    import numpy as np
    import torch

    from headscan.run import Run, Seed, verb
    from headscan.run.settings import Out

    @verb("test-draws")
    def draws(run: Run, *, out: Out = None, seed: Seed = 0):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        raise BadInput("No.")

    states = random.getstate(), torch.get_rng_state().tolist()
    drawn = np.random.get_state()[1].tolist()
    with pytest.raises(BadInput):
        draws()
    assert states == (random.getstate(), torch.get_rng_state().tolist())
    assert drawn == np.random.get_state()[1].tolist()
