"""Runs that are killed again and again: what they end with must be, bit for bit, what an
undisturbed run ends with.

    python -m tests.attack.kills [KILLS] [SEED] [VERB...]

Each verb that has --resume runs on a text in a process of its own, is killed by SIGKILL at a moment
drawn from one tenth of its run after the other, and goes on with --resume, one to three times
before it may end; until it was killed KILLS times. Between two kills the text is sometimes
exchanged for another of the same name and size, and what was stored is sometimes damaged (in a
copy): then the run must refuse, or end with exactly what the text says. State is stored at every
chance, not from the tenth second on, so that kills fall into storing.
"""

import json
import os
import random
import shlex
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.forked import exit_status

os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

CASES = {
    "scan": "scan gpt-vanilla-early --text TEXT --documents paragraphs --context 16 --batch 4 "
    "--max-tokens 1600 --null --sites block.0,block.3 --measures rogue --sample 20",
    "ntp": "ntp TEXT --tokenizer gpt-vanilla-early --documents paragraphs --order 2 --memory "
    "64KiB --max-tokens 20000 --gap 0.5 --budget 1000",
    "train": "train gpt --text TEXT --documents paragraphs --size tiny --vocabulary 300 --context "
    "16 --batch 2 --steps 20 --trainer save_steps=2 --geometry-every 6 --max-tokens 20000",
    "compare": "compare gpt-vanilla-early gpt-headless-early --text TEXT --documents paragraphs "
    "--context 16 --batch 4 --max-tokens 1600 --sites block.0,block.3 --draws 20",
    "states": "states gpt-vanilla-early --text TEXT --documents paragraphs --context 16 --batch 4 "
    "--max-tokens 40000 --sites block.0,block.3",
    "checkup": "checkup gpt-vanilla-early --text TEXT --documents paragraphs --max-tokens 1024 "
    "--budget 2m",
    "flow": "flow gpt-vanilla-early --text TEXT --windows 1 --length 6 --at block.1 --trials 1",
    "channel": "channel gpt-vanilla-early --text TEXT --windows 1 --length 6 --at block.1",
    "weights": "weights gpt-vanilla",
    "invert": "invert gpt-vanilla-early --prompt PROMPT --at block.1",
    "privacy": "privacy gpt-vanilla-early --text TEXT --sites block.0 --noise 0.8 --windows 1 "
    "--length 4 --draws 20",
    "attribute": "attribute gpt-vanilla-early --prompt PROMPT --method occlusion",
    "remedy": "remedy VECTORS --export standardise",
    "recover": "recover gpt-headless-early --text TEXT --documents paragraphs --max-tokens 4096 "
    "--context 16",
    "evaluate": "evaluate gpt-vanilla-early --text SETS",
    "reproduce": "reproduce P2 P4",
    "tournament": "tournament --text TEXT --documents paragraphs --arms ce,ce+unigram --seeds 1 "
    "--steps 3 --vocabulary 300 --width 8 --rates 0.01 --matched-loss 5.5 --processes 1 "
    "--max-tokens 20000",
}
TIMES = ("started", "command")
PLACES = 10
LIMIT = 600  # seconds after which a run is taken for one that hangs


@dataclass
class Tally:
    """Counts of what happened to one verb."""

    verb: str
    seconds: float
    kills: int = 0
    storing: int = 0  # kills after which a part, store or checkpoint was there
    resumes: int = 0
    afresh: int = 0  # nothing had been stored: begun again without --resume
    ends: int = 0
    equal: int = 0
    exchanged: int = 0
    damaged: int = 0
    refused: int = 0
    lost: list[str] = field(default_factory=list)
    mixed: list[str] = field(default_factory=list)

    def moment(self, draw: random.Random) -> float:
        """Seconds after which a run is killed: in the first tenth of it, in the second,
        and so on.
        """
        return (self.kills % PLACES + draw.random()) / PLACES * self.seconds

    def row(self) -> str:
        """A line of the table."""
        cells = (
            self.verb,
            f"{self.seconds:.1f}",
            self.kills,
            self.storing,
            self.resumes,
            self.afresh,
            f"{self.equal} of {self.ends}",
            self.exchanged,
            self.damaged,
            self.refused,
            len(self.lost),
            len(self.mixed),
        )
        return f"| {' | '.join(map(str, cells))} |"


HEAD = (
    "| verb | seconds a run | kills | of these after storing | resumes | begun afresh | ends "
    "equal | texts exchanged | stores "
    "damaged | of both refused | lost | mixed |\n|---|---|---|---|---|---|---|---|---|---|---|---|"
)


class Verb:
    """One verb on one text in a folder, run by forks of this process, which has imported everything
    and computed nothing.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.place = folder
        self.text = folder / "text.txt"
        self.texts = [story(1), story(2)]
        folder.mkdir()

    def start(self, out: Path, *, resume: bool = False, text: int = 0) -> int:
        """Begin a run; the process's number."""
        arguments = self.arguments(text)
        process = os.fork()
        if not process:
            try:
                printed = os.open(self.place / "said.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(printed, 1)
                os.dup2(printed, 2)
                command([*arguments, "--out", str(out), *(["--resume"] if resume else [])])
            finally:
                os._exit(70)
        return process

    def arguments(self, text: int) -> list[str]:
        """The command line that reads one of the two texts, which lies at the place of the other
        from now on.
        """
        self.text.write_text(self.texts[text], encoding="utf-8")
        (self.place / "sets" / "lambada").mkdir(parents=True, exist_ok=True)
        rows = [json.dumps({"text": part}) for part in self.texts[text].split("\n\n")[:40]]
        (self.place / "sets" / "lambada" / "l.jsonl").write_text("\n".join(rows), encoding="utf-8")
        np.save(
            self.place / "vectors.npy",
            np.random.default_rng(text).standard_normal((4000, 32)).astype(np.float32),
        )
        replacements = {
            "TEXT": self.text,
            "SETS": self.place / "sets",
            "VECTORS": self.place / "vectors.npy",
            "PROMPT": self.texts[text][:60],
        }
        return [str(replacements.get(word, word)) for word in shlex.split(CASES[self.name])]

    def finish(self, process: int) -> int:
        """Wait for a run to end; its exit status."""
        status = self.kill(process, LIMIT)
        return 124 if status is None else status

    def kill(self, process: int, seconds: float) -> int | None:
        """Kill a run after so many seconds; its exit status if it ended before."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
        os.kill(process, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        return None if status == -signal.SIGKILL else status

    @property
    def printed(self) -> str:
        """The last words of the last run."""
        return (self.place / "said.txt").read_text(errors="replace").strip()[-600:]

    def undisturbed(self, text: int) -> tuple[dict[str, Any], float]:
        """Return the files of a run that nobody disturbs, and its seconds."""
        began = time.monotonic()
        out = self.place / f"undisturbed-{text}"
        status = self.finish(self.start(out, text=text))
        assert status == 0, self.printed
        return contents(out), time.monotonic() - began


def command(arguments: list[str]) -> None:
    """The command line in a fork; state is stored at every chance."""
    from headscan.cli import main
    from headscan.run.parts import Parts
    from headscan.states import writing

    Parts.FIRST = 0.0
    Parts.SHARE = 1e9
    writing.SHARD_BYTES = 2**20
    sys.argv = ["headscan", *arguments]
    try:
        main()
        status = 0
    except SystemExit as leaving:
        status = exit_status(leaving)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def story(seed: int) -> str:
    """Paragraphs of drawn words; those of two seeds have the same length."""
    draw = random.Random(seed)
    vocabulary = [
        draw.choice(["hen", "cat", "fox", "dog", "cow", "owl", "had", "saw", "and", "the"])
        for _ in range(60_000)
    ]
    return "\n\n".join(
        " ".join(vocabulary[k : k + 30]) + "." for k in range(0, len(vocabulary), 30)
    )


def timeless(value: Any) -> Any:
    """A document without what differs between two runs that do the same."""
    if isinstance(value, dict):
        return {
            key: timeless(item)
            for key, item in value.items()
            if key not in TIMES
            and "seconds" not in key
            and not (key == "files" and "schema" in value)  # hashes of pages with times
        }
    return [timeless(item) for item in value] if isinstance(value, list) else value


def contents(folder: Path) -> dict[str, Any]:
    """Return what a finished run left: its document without times, its arrays, weights and
    measurements byte for byte.
    """
    stored: dict[str, Any] = {"files": sorted(path.name for path in folder.iterdir())}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.startswith(("checkpoint-", ".resume")) or not path.is_file():
            continue
        if path.suffix == ".json":
            stored[name] = timeless(
                json.loads(path.read_text(encoding="utf-8").replace(str(folder), "OUT"))
            )
        elif (
            path.suffix in (".safetensors", ".bin", ".npy", ".jsonl")
            and path.name != "training_args.bin"
        ):
            stored[name] = path.read_bytes()
    return stored


def stored(out: Path) -> list[Path]:
    """Files of state that an interrupted run left, but for the record of what it rests on."""
    inside = [
        path
        for path in (out / ".resume").rglob("[!.]*")
        if path.is_file() and path.name != "identity.json"
    ]
    return [*inside, *out.glob("checkpoint-*/*.safetensors"), *out.glob("states-*.safetensors")]


def damage(out: Path, draw: random.Random) -> str:
    """Cut a stored file, or turn one of its bytes over; what was done."""
    path = draw.choice(sorted(path for path in stored(out) if path.stat().st_size))
    data = bytearray(path.read_bytes())
    at = draw.randrange(len(data))
    if draw.random() < 0.5:
        data[at] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
        return f"byte {at} of {path.name} turned"
    path.write_bytes(data[:at])
    return f"{path.name} cut to {at} bytes"


def rounds(verb: Verb, kills: int, draw: random.Random) -> Tally:
    """Runs of one verb until it was killed so many times and the last run has ended."""
    first, seconds = verb.undisturbed(0)
    second, _ = verb.undisturbed(1)
    reads_no_text = verb.arguments(0) == verb.arguments(1) and "TEXT" not in CASES[verb.name]
    assert first != second or reads_no_text, "the two texts give the same"
    tally = Tally(verb.name, seconds)
    expected = (first, second)
    while tally.kills < kills:  # at each tenth of a run in turn
        out = verb.place / f"run-{tally.ends}"
        disturb(verb, out, tally, expected, draw, min(kills - tally.kills, draw.randint(1, 3)))
        shutil.rmtree(out, ignore_errors=True)
    return tally


def disturb(
    verb: Verb, out: Path, tally: Tally, expected: Any, draw: random.Random, kills: int
) -> None:
    """One run that is killed so many times, and what it ends with."""
    began = time.monotonic()
    status: int | None = verb.kill(verb.start(out), tally.moment(draw))
    if status == 0:  # the machine is less busy than it was
        tally.seconds = min(tally.seconds, time.monotonic() - began)
    for number in range(kills):
        if status is not None:
            break
        tally.kills += 1
        if stored(out):
            tally.storing += 1
            if draw.random() < 0.4:
                attacked(verb, out, tally, expected, draw)
        moment = tally.moment(draw) if number + 1 < kills else LIMIT
        tally.resumes += 1
        status = verb.kill(verb.start(out, resume=True), moment)
        if status == 2 and "nothing to resume" in verb.printed and not stored(out):
            tally.afresh = tally.afresh + 1
            tally.resumes = tally.resumes - 1
            status = verb.kill(verb.start(out), moment)
    tally.ends += 1
    if status != 0:
        tally.lost.append(f"{verb.name}: exit {status}: {verb.printed}")
    elif contents(out) == expected[0]:
        tally.equal += 1
    else:
        tally.mixed.append(f"{verb.name}: {difference(contents(out), expected[0])}")


def attacked(verb: Verb, out: Path, tally: Tally, expected: Any, draw: random.Random) -> None:
    """Resume a copy with another text, or after damage: it must refuse, or end with what its text
    says and nothing else.
    """
    copy = verb.place / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(out, copy)
    text = draw.randrange(2)
    done = damage(copy, draw) if not text else "another text"
    tally.exchanged = tally.exchanged + text
    tally.damaged = tally.damaged + 1 - text
    status = verb.finish(verb.start(copy, resume=True, text=text))
    if status == 2:
        tally.refused += 1
    elif status != 0:
        tally.lost.append(f"{verb.name}, {done}: exit {status}: {verb.printed}")
    elif contents(copy) != expected[text]:
        tally.mixed.append(f"{verb.name}, {done}: {difference(contents(copy), expected[text])}")
    shutil.rmtree(copy)


def difference(first: dict[str, Any], second: dict[str, Any]) -> str:
    """Return which files differ, and which are in one folder alone."""
    names = [name for name in sorted({*first, *second}) if first.get(name) != second.get(name)]
    return ", ".join([*names, *sorted({*first["files"]} ^ {*second["files"]})])


def attack(kills: int, seed: int, verbs: list[str] | None = None) -> list[Tally]:
    """Kill each verb so many times; what happened."""
    import torch
    import transformers.models.auto.modeling_auto  # noqa: F401 (once, here, and not in every fork)

    from headscan.cli import command_of

    torch.set_num_threads(1)
    tallies = []
    with tempfile.TemporaryDirectory() as folder:
        for name in verbs or list(CASES):
            command_of(name)  # imports what the verb needs
            tally = rounds(Verb(name, Path(folder) / name), kills, random.Random(f"{seed} {name}"))
            for fault in tally.lost + tally.mixed:
                print(fault, flush=True)
            print(tally.row(), flush=True)
            tallies.append(tally)
    return tallies


if __name__ == "__main__":
    arguments = sys.argv[1:]
    tallies = attack(
        int(arguments[0]) if arguments else 20,
        int(arguments[1]) if len(arguments) > 1 else 0,
        arguments[2:] or None,
    )
    print("\n".join(["", HEAD, *(tally.row() for tally in tallies)]))
    sys.exit(any(tally.lost or tally.mixed for tally in tallies))
