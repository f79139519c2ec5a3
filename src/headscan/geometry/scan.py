"""The scan: text, lens and statistics strung together; one command, every site, every measure."""

from __future__ import annotations

import logging
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headscan.errors import BadInput
from headscan.geometry.choose import choose
from headscan.geometry.findings import findings, probe_findings
from headscan.geometry.probe_runner import ProbeRunner, pair_sets
from headscan.geometry.result import ScanResult
from headscan.geometry.store import Store
from headscan.geometry.summary import gaussian_entry, site_entry
from headscan.geometry.sweep import MEASURED_BYTES, SAMPLE_BYTES, Sweep, sweep
from headscan.model import Lens
from headscan.results import check_writable
from headscan.run import plain
from headscan.statistics import Cloud, merged, process_count, process_rank
from headscan.text import Batch, Windows, batches, display

__all__ = ["scan"]

# Called with the pass's name, the tokens done, the tokens in all (None where the text's length is not known).
Progress = Callable[[str, int, int | None], None]


def scan(
    models: str | Lens | Sequence[str | Lens],
    text: Any,
    *,
    tokenizer: str | None = None,
    context: int = 128,
    max_tokens: int | None = None,
    sites: str | None = None,
    skip_first: int = 0,
    documents: str = "whole",
    field: str = "text",
    null: bool = False,
    sample: int = 600,
    token_sums: bool = False,
    measures: str | Sequence[str] | None = None,
    revisions: str | Sequence[str] | None = None,
    pairs: str | os.PathLike | Sequence[str | os.PathLike] | None = None,
    batch: int | None = None,
    seed: int = 0,
    dtype: str = "auto",
    device: str = "auto",
    device_map: str | None = None,
    quantize: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    out: str | os.PathLike | None = None,
    resume: bool = False,
    command: str | None = None,
    progress: Progress | None = None,
    announce: Callable[[str], None] | None = None,
) -> ScanResult:
    """Scan the representations of one or more models on a text.

    Args:
        models: Hugging Face ids, local folders, names of embedded specimens, or Lenses.
        text: a file, folder, `-`, `datasets` id, name of an embedded text, or a list of strings.
        tokenizer: id, folder or `bytes`, where it is not the model's own.
        context: tokens of a window; every window is one row of a forward pass. At most the model's context length.
        max_tokens: stop after this many tokens (whole windows).
        sites: glob or comma-separated globs; by default the embedding, every block and the final norm.
        skip_first: leave the first so many positions of each window out of every statistic.
        documents, field: how the text falls into documents; see `headscan.text.Windows`.
        null: scan a randomly initialised twin of each model too, and add the Gaussian null.
        sample: tokens shown in the picture.
        token_sums: also keep Σx by token id and site (arrays `token_sums/MODEL/SITE` and `token_counts/MODEL`).
        measures: more than the core measures: globs of names or groups (`headscan.geometry.MEASURES` and `PROBES`), `all`
            (whatever is not expensive) or `expensive` (everything).
        revisions: of one Hugging Face id, in order, such as "step1000,step2000": each is a model of the scan, ID@REVISION.
            Checkpoints in folders are simply named in order as `models`.
        pairs: files of pairs of texts that mean the same, for the measure `alignment` (PATH or NAME=PATH; see
            `headscan.text.read_pairs`); by default the English synonyms that come with headscan.
        batch: windows of a forward pass; by default about 2,048 tokens on a CPU, 16,384 on an accelerator.
        seed: of the sample, the twin's weights and the Gaussian null.
        dtype, device, device_map, quantize, revision, trust_remote_code: see `headscan.Lens.load`.
        out: folder of the result; with it, an interrupted scan can be continued by `resume`.
        resume: continue the scan that was interrupted in `out`.
        command: the command line, to be kept in the protocol.
        progress: called as the scan goes on with (name, tokens done, tokens in all or None).
        announce: called with a sentence before an expensive measure begins: its estimated time and memory, or why a model
            cannot have it. By default the sentence goes to the logger `headscan`.

    Returns:
        A `ScanResult`. Under `torchrun`, process 0's is complete; the others return theirs with what they have seen.

    Raises:
        BadInput: whenever model, text or options cannot be used; NaN or infinite activations, by site.

    Cost: one forward pass of the text for each model (two with `null`) plus about a tenth of it for the second moments;
    memory does not grow with the text.

    >>> from headscan import scan
    >>> result = scan("gpt-vanilla", "stories", max_tokens=1280, context=64)
    >>> 0 < result.site("block.0")["average_cosine"] < 1
    True
    """
    started, clock = datetime.now(UTC), time.monotonic()
    choose(measures)  # a wrong name is said before any work
    folder = None if out is None else check_writable(out)
    sources: list[Any] = [models] if isinstance(models, str | Lens) else list(models)
    if not sources:
        raise BadInput("No model was named.")
    if revisions is not None:
        sources = _checkpoints(sources, revisions)
    loading: dict[str, Any] = {
        "tokenizer": tokenizer,
        "dtype": dtype,
        "device": device,
        "device_map": device_map,
        "quantize": quantize,
        "revision": revision,
        "trust_remote_code": trust_remote_code,
    }
    settings: dict[str, Any] = {
        "context": context,
        "max_tokens": max_tokens,
        "sites": sites,
        "skip_first": skip_first,
        "documents": documents,
        "field": field,
        "null": null,
        "sample": sample,
        "token_sums": token_sums,
        "measures": measures if measures is None or isinstance(measures, str) else ",".join(measures),
        "batch": batch,
        "seed": seed,
    } | {name: value for name, value in loading.items() if value not in (None, False)}
    if context < 1:
        raise BadInput(f"A window has at least one token, not {context}.")
    if not 0 <= skip_first < context:
        raise BadInput(
            f"--skip-first must leave at least one of the {context} positions of a window, not {skip_first}."
        )
    names = [source if isinstance(source, str) else source.name for source in sources]
    files = [pairs] if isinstance(pairs, str | os.PathLike) else list(pairs or ())
    if files:
        if "alignment" not in {probe.name for probe in choose(measures)[1]}:
            raise BadInput("--pairs is for the measure alignment: add --measures alignment.")
        pair_sets([os.fspath(file) for file in files])  # a file that cannot be read is found before the pass
        settings["pairs"] = [os.fspath(file) for file in files]
    settings |= (
        {"revisions": [s.revision for s in sources if isinstance(s, _Checkpoint)]} if revisions is not None else {}
    )
    if len(set(names)) < len(names):
        raise BadInput(f"A model is named twice: {', '.join(names)}.")
    store = Store(folder, {"models": names, "text": str(text), **settings}, resume=resume)
    with _rereadable(text, passes=len(sources) * (2 if null else 1)) as readable:
        document, arrays = _passes(sources, readable, settings, loading, store, progress, announce)
    document["protocol"] |= {
        "command": command,
        "processes": process_count(),
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - clock, 2),
    }
    result = ScanResult({"headscan": version("headscan")} | document, arrays)
    if folder is not None and process_rank() == 0:
        result.save(folder)
        store.clear()
    return result


@contextmanager
def _rereadable(text: Any, *, passes: int) -> Iterator[Any]:
    """The text itself; standard input, where it must be read more than once, as a temporary file."""
    if text != "-" or passes < 2:
        yield text
        return
    with tempfile.NamedTemporaryFile(suffix=".txt") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        yield copy.name


def _passes(
    sources: list[str | Lens | _Checkpoint],
    text: Any,
    settings: dict[str, Any],
    loading: dict[str, Any],
    store: Store,
    progress: Progress | None,
    announce: Callable[[str], None] | None,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Every model's pass, its twin's where asked, and what they say: the document (all but times) and the arrays."""
    null, seed, token_sums, sample = (settings[name] for name in ("null", "seed", "token_sums", "sample"))
    chosen, probes = choose(settings["measures"])
    announce = announce or logging.getLogger("headscan").warning
    document: dict[str, Any] = {"models": [], "sites": [], "nulls": [], "pictures": {}}
    document |= {"probes": [plain(probe.words) for probe in probes]} | {probe.name: [] for probe in probes}
    arrays: dict[str, np.ndarray] = {}
    account: dict[str, Any] = {}
    for number, source in enumerate(sources):
        lens = _load(source, loading)
        plan = _Plan(lens, text, settings, store, progress)
        runner = ProbeRunner(probes, lens, plan.sites, settings, announce=announce)
        swept, account = plan.run(f"{number}", lens, runner, label=lens.name)
        entries, clouds = [], {}
        for depth, site in enumerate(plan.sites):
            entry, cloud = site_entry(site, swept.sites[site], chosen)
            clouds[site] = cloud
            entries.append({"model": lens.name, "depth": depth, **entry})
            _picture(arrays, lens.name, site, cloud, swept, sample)
            if token_sums:
                arrays[f"token_sums/{lens.name}/{site}"] = swept.token_sums[site].sums.cpu().numpy()
        if token_sums:
            arrays[f"token_counts/{lens.name}"] = swept.counts.counts.numpy()
        document["pictures"][lens.name] = _tokens(lens, swept, sample)
        runner.report(document, swept, clouds, model=lens.name)
        document["models"].append(asdict(lens.provenance()))
        document["sites"] += entries
        if null:
            twin = lens.random_init(seed)
            cheap = [probe for probe in probes if not probe.words.expensive]
            twin_runner = ProbeRunner(cheap, twin, plan.sites, settings, announce=lambda _: None)
            twin_swept, _ = plan.run(f"{number}-random-init", twin, twin_runner, label=f"{lens.name}, random weights")
            clouds = {}
            for depth, site in enumerate(plan.sites):
                place = {"model": lens.name, "depth": depth, "site": site}
                entry, clouds[site] = site_entry(site, twin_swept.sites[site], chosen)
                document["nulls"].append(place | {"null": "random-init"} | entry)
                document["nulls"].append(place | gaussian_entry(entries[depth], chosen, seed=seed))
            twin_runner.report(document, twin_swept, clouds, model=lens.name, null="random-init")
    document["protocol"] = {
        "text": account,
        **settings,
        "positions": f"all but the first {settings['skip_first']} of each window" if settings["skip_first"] else "all",
        "accumulation": "float64",
        "interval": "95 %, delete-one-block jackknife over blocks of consecutive windows",
        "batch": plan.batch,
        "device": str(lens.device),
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in ("headscan", "torch", "transformers", "tokenizers", "numpy")}
        | {"python": platform.python_version()},
    }
    document["measures"] = {measure.name: plain(measure.words) for measure in chosen}
    document["findings"] = findings(document["sites"]) + probe_findings(document)
    return document, arrays


@dataclass(frozen=True)
class _Checkpoint:
    """One revision of a Hugging Face id."""

    model: str
    revision: str

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"{self.model}@{self.revision}"


def _checkpoints(sources: list, revisions: str | Sequence[str]) -> list:
    """The revisions of the one model that was named."""
    wanted = revisions.split(",") if isinstance(revisions, str) else list(revisions)
    wanted = [revision.strip() for revision in wanted if revision.strip()]
    if len(sources) != 1 or not isinstance(sources[0], str) or not wanted:
        raise BadInput("--revisions takes names of revisions, separated by commas, of exactly one Hugging Face id.")
    return [_Checkpoint(sources[0], revision) for revision in wanted]


def _load(source: str | Lens | _Checkpoint, loading: dict[str, Any]) -> Lens:
    if isinstance(source, Lens):
        return source
    if isinstance(source, str):
        return Lens.load(source, **loading)
    lens = Lens.load(source.model, **(loading | {"revision": source.revision}))
    lens.name = source.name
    return lens


class _Plan:
    """What passes over the same text with the same sites share: a model's own and its twin's."""

    def __init__(self, lens: Lens, text: Any, settings: dict[str, Any], store: Store, progress: Progress | None):
        self.text, self.settings, self.store, self.progress = text, settings, store, progress
        self.sites = lens.default_sites if settings["sites"] is None else lens.match(settings["sites"])
        self.tokenizer = lens.require_tokenizer()
        context = settings["context"]
        if lens.context_length is not None and context > lens.context_length:
            raise BadInput(f"{lens.name} reads at most {lens.context_length} tokens at once, less than {context}.")
        per_batch = 2048 if lens.device.type == "cpu" else 16384
        self.batch = settings["batch"] or max(1, per_batch // context)

    def run(self, name: str, lens: Lens, runner: ProbeRunner, *, label: str) -> tuple[Sweep, dict[str, Any]]:
        """One pass of one model, continued where a stored one stands; the merged statistics and the text's account."""
        swept = self.store.read(name) or Sweep(
            {site: lens.width(site) for site in self.sites},
            lens.vocabulary_size,
            skip_first=self.settings["skip_first"],
            sample=max(self.settings["sample"], runner.sample),
            sample_bytes=MEASURED_BYTES if runner.sample else SAMPLE_BYTES,
            extras=runner.accumulators,
            token_sums=self.settings["token_sums"],
            seed=self.settings["seed"],
            # Apple's GPUs have no float64; there the states are brought to the CPU first.
            device="cpu" if lens.device.type == "mps" else lens.device,
        )
        windows = Windows(
            self.text,
            self.tokenizer,
            self.settings["context"],
            documents=self.settings["documents"],
            field=self.settings["field"],
            max_tokens=self.settings["max_tokens"],
            start=swept.next,
        )

        def after(batch: Batch) -> None:
            if self.progress is not None:
                self.progress(label, swept.next * self.settings["context"], self._expected(windows, swept.next))
            self.store.write(name, swept)

        own = batches(windows, self.batch, process=process_rank(), processes=process_count())
        try:
            sweep(lens, own, swept, after=after, watch=runner.watch(swept), skip_first=self.settings["skip_first"])
        except KeyboardInterrupt:
            self.store.write(name, swept, now=True)
            raise
        # Later passes may be interrupted too: a finished pass is stored before it is merged with other processes'.
        self.store.write(name, swept, now=True)
        return merged(swept), windows.account()

    def _expected(self, windows: Windows, done: int) -> int | None:
        """Tokens in all: known from --max-tokens, else extrapolated from the share of the file that has been read."""
        if self.settings["max_tokens"] is not None:
            return self.settings["max_tokens"]
        try:
            path = Path(self.text)
            size = path.stat().st_size if path.is_file() and path.suffix in (".txt", ".jsonl") else None
        except (TypeError, OSError):
            return None
        read = windows.account()["characters"]
        return None if not size or not read else max(done, int(done * size / read)) * self.settings["context"]


def _picture(arrays: dict[str, np.ndarray], model: str, site: str, cloud: Cloud, swept: Sweep, sample: int) -> None:
    """Coordinates of the sampled tokens on the site's top three directions, each turned so that its mean is positive."""
    states = swept.sample.columns.get(f"state.{site}")
    if states is None:
        return
    directions = cloud.directions[:, :3]
    directions = directions * np.where(cloud.mean @ directions < 0, -1.0, 1.0)
    # The sample may be larger where measures are taken of it; its first tokens are a sample of the smaller size.
    arrays[f"picture/{model}/{site}"] = (states[:sample].double().numpy() @ directions).astype(np.float32)
    total = cloud.energies.sum()
    arrays[f"picture_share/{model}/{site}"] = cloud.energies[:3] / total if total > 0 else np.zeros(3)


def _tokens(lens: Lens, swept: Sweep, size: int) -> dict[str, list]:
    """The sampled tokens with their neighbours, as people can read them."""
    sample = swept.sample
    if not len(sample):
        return {"tokens": [], "before": [], "after": [], "frequency": [], "id": [], "position": []}
    ids, contexts = sample.columns["id"][:size].tolist(), sample.columns["context"][:size]
    middle = contexts.shape[1] // 2

    def words(row: torch.Tensor) -> str:
        return "".join(display(lens.tokenizer, [i for i in row.tolist() if i >= 0]))

    return {
        "tokens": display(lens.tokenizer, ids),
        "before": [words(row[:middle]) for row in contexts],
        "after": [words(row[middle + 1 :]) for row in contexts],
        "frequency": [int(swept.counts.counts[i]) for i in ids],
        "id": ids,
        "position": sample.places[:size, 1].tolist(),
    }
