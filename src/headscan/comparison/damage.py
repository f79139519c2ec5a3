"""`compare --damage`: two models side by side, part by part, with parts exchanged; what each part
costs, and which to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from headscan.comparison.result import DamageResult
from headscan.comparison.subjects import Against, compared_subjects, is_loaded_bits
from headscan.measures.measure import MEASURES, WITHOUT_SINKS
from headscan.model.load import Preparation
from headscan.model.partwise import PartwiseModel
from headscan.model.rounding import RoundingName
from headscan.model.settings import tokenizer_identity
from headscan.run import BadInput, Finding, Row, Run, plain
from headscan.scanner.differences import Estimates, differences
from headscan.scanner.site_cells import SUFFIXES, site_cells
from headscan.scanner.sources import Subject
from headscan.states import SourcesLike, VectorSource
from headscan.states.plan import ReadingPlan
from headscan.statistics import NonFinite, SiteStatistics
from headscan.statistics.errors import Errors
from headscan.statistics.reservoir import sinks
from headscan.statistics.uncertainty import Cells, Floats, enough_documents, jackknife

# tokens where --max-tokens does not say; random choices of equal bytes
READ = 4096
DRAWS = 8
# numbers of logits, and tokens of states, at once
LOGITS = 2**25
TOKENS = 2048
# numbers of logits that a processor judges at once: more leave its cache, and take five times as
# long
NEAR = 2**20
OUTLYING = 6.0  # times the median coordinate's root mean square
SHAPES = ("average_cosine", "effective_rank")
COUNTED = ("sink_share", "massive_coordinates", "rogue_coordinates")
NOISE = 0.5  # of `bits`: Gaussian, in the root of the first model's total variance at the site
COLUMNS = ("kl", "kl_reverse", "loss_change", "top1_agreement")
Pair = tuple[PartwiseModel, PartwiseModel]
# of each part of a model, 0 where it is the first model's, 1 where it is the second's
Path = tuple[int, ...]


@dataclass
class Windows:
    """Windows [W, T] with the document of each token, the models that read them, and their states
    after the parts done so far, by the beginnings of their paths: what paths share is computed
    once.
    """

    ids: Tensor
    documents: np.typing.NDArray[np.int64]
    skipped: int  # positions of each window that are left out
    paths: Sequence[Path] = ()
    states: dict[Path, Tensor] = field(default_factory=dict)

    def part(self, numbers: Iterable[int], paths: Iterable[Path]) -> Windows:
        index = sorted(map(int, numbers))
        return Windows(
            self.ids[index], self.documents[index], self.skipped, list(dict.fromkeys(paths))
        )

    def advance(self, models: Pair, done: int) -> None:
        """All models through one more part."""
        after: dict[Path, Tensor] = {}
        for bit, model in enumerate(models):
            keys = sorted({path[: done + 1] for path in self.paths if path[done] == bit})
            if not done:
                after |= {
                    key: model.lens.run(self.ids, sites="embedding")["embedding"].clone()
                    for key in keys
                }
            elif keys:
                pieces = torch.cat([self.states[key[:-1]] for key in keys]).split(
                    max(1, TOKENS // self.ids.shape[1])
                )
                made = torch.cat([model.block(done - 1, piece) for piece in pieces])
                after |= zip(keys, made.split(len(self.ids)), strict=True)
        self.states = after

    def judged(self, models: Pair) -> dict[Path, Floats]:
        """`divergences` [tokens, 4] of each path's model from the first, for the positions whose
        next token is in the window.
        """
        found: dict[Path, list[Tensor]] = {path: [] for path in self.paths}
        step = max(1, LOGITS // (self.ids.shape[1] * models[0].lens.width("head")))
        few = max(
            1, (NEAR if self.ids.device.type == "cpu" else LOGITS) // models[0].lens.width("head")
        )
        for part in (slice(start, start + step) for start in range(0, len(self.ids), step)):

            def logs(path: Path, part: slice = part) -> Iterator[Tensor]:
                rows = (
                    models[path[-1]]
                    .logits(self.states[path[:-1]][part, self.skipped : -1])
                    .flatten(0, 1)
                )
                return (
                    (some if some.dtype == torch.float64 else some.float()).log_softmax(1)
                    for some in rows.split(few)
                )

            targets = self.ids[part, self.skipped + 1 :].flatten().split(few)
            base = list(logs((0,) * len(self.paths[0])))
            for path in self.paths:
                others = logs(path) if any(path) else base
                found[path] += [
                    divergences(*rows).cpu() for rows in zip(base, others, targets, strict=True)
                ]
        return {path: torch.cat(values).numpy() for path, values in found.items()}

    def clusters(self, positions: int) -> tuple[np.typing.NDArray[np.int64], Floats, bool]:
        """The cluster of each token of so many positions a window, the clusters' sizes, and whether
        they are a running text: documents, or windows where documents are few.
        """
        documents = self.documents[:, self.skipped :][:, :positions]
        own = np.unique(documents.ravel(), return_inverse=True)[1]
        if running := not enough_documents(np.bincount(own).astype(np.float64)):
            own = np.repeat(np.arange(len(documents)), documents.shape[1])
        return own, np.bincount(own).astype(np.float64), running

    def cells(
        self, values: Floats, functions: Mapping[str, Callable[[Floats], float | None]]
    ) -> Cells:
        """Functions of the sums of values [n, k] of all tokens, with 95 % intervals: clusters are
        left out one at a time.
        """
        own, sizes, running = self.clusters(len(values) // len(self.ids))
        cells = Cells()
        table = torch.zeros(len(sizes), values.shape[1], dtype=torch.float64)
        sums = table.index_add_(0, torch.from_numpy(own), torch.from_numpy(values)).numpy()
        whole = sums.sum(0)
        for name, function in functions.items():
            rest = [function(whole - one) if len(sizes) > 2 else None for one in sums]
            least = (
                0.0
                if "error" in name or name in ("kl", "kl_reverse", "restored_kl", "top1_agreement")
                else None
            )
            ends = jackknife(
                function(whole),
                rest,
                sizes,
                running=running,
                bounds=(least, 1.0 if "top1" in name else None),
            )
            cells |= {name: function(whole), f"{name}_interval": ends}
        return cells

    def means(self, values: Floats, names: Sequence[str] = COLUMNS) -> Cells:
        counted = np.concatenate([values, np.ones((len(values), 1))], axis=1)
        return self.cells(
            counted, {name: lambda s, k=k: float(s[k] / s[-1]) for k, name in enumerate(names)}
        )  # type: ignore[misc]

    def errors(self, first: Path, other: Path) -> Cells:
        """How far states are from the first model's, relative to their size (roots of sums of
        squares): all, their mean vector, and coordinates whose root mean square is above six times
        the median coordinate's (None where there is none).
        """
        rows, ends = (
            self.states[path][:, self.skipped :].flatten(0, 1).double().cpu()
            for path in (first, other)
        )
        size = rows.square().mean(0).sqrt()
        width = rows.shape[1]
        moved = ends - rows
        far = size > OUTLYING * size.median()
        parts = [one.square().sum(1, keepdim=True) for x in (moved, rows) for one in (x, x[:, far])]

        root: Any = lambda a, b: float((a.sum() / b.sum()) ** 0.5) if b.sum() > 0 else None  # noqa: E731
        return self.cells(
            torch.cat([*parts, moved, rows], dim=1).numpy(),
            {
                "relative_error": lambda s: root(s[0], s[2]),
                "outlier_error": lambda s: root(s[1], s[3]),
                "mean_direction_error": lambda s: root(s[4 : 4 + width] ** 2, s[4 + width :] ** 2),
            },
        )

    def shape(self, site: str, first: Path, other: Path) -> Cells:
        """The shape of a site of both models, NAME_first and NAME_second as a scan of each says
        them without sinks, and NAME_change, the second less the first, by pairs.
        """
        row = Cells(site=site)
        found = list[Estimates]()
        measures = [MEASURES[name] for name in SHAPES]
        both = {"first": self.states[first].cpu(), "second": self.states[other].cpu()}
        for model, states in both.items():
            statistics = SiteStatistics(states.shape[2], skip_first=self.skipped, intervals=True)
            try:
                statistics.update(
                    states, list(range(len(states))), torch.from_numpy(self.documents), self.ids
                )
            except NonFinite as error:
                place = f"{site} (window {error.window}, position {error.position})"
                raise BadInput(
                    f"The {model} model gives NaN or infinite values at {place}: it cannot be "
                    "compared."
                ) from None
            errors = Errors.of(statistics, measures)
            cells, _ = site_cells(site, statistics, measures, errors=errors)
            found.append(Estimates(model, site, cells, errors))
            row |= {f"{name}_{model}": cells[name] for name in COUNTED}
            for name in SHAPES:
                row |= {
                    f"{name}_{model}{end}": cells[f"{name}{WITHOUT_SINKS}{end}"]
                    for end in ("", "_interval")
                }
        for one in differences(found, list(SUFFIXES.values())):
            if (name := one.measure.removesuffix(WITHOUT_SINKS)) != one.measure:
                row |= {f"{name}_change": one.difference, f"{name}_change_interval": one.interval}
        flags = torch.stack(
            [sinks(states[:, self.skipped :]).flatten() for states in both.values()], dim=1
        )
        moved = self.means(
            (flags[:, 1:].double() - flags[:, :1].double()).numpy(), ("sink_share_change",)
        )
        return (
            row
            | moved
            | (
                {}
                if bool((flags[:, 0] != flags[:, 1]).any())
                else {"sink_share_change_interval": None}
            )
        )

    def bits(self, first: Path, other: Path) -> Cells:
        """Bits that a state with Gaussian noise tells, at least and at most, of which of 1,024
        tokens it is of, all equally likely: U(2σ) and U(σ), U(s) the mean of −log2 of the mean over
        tokens j of exp(−‖xᵢ − xⱼ‖²/2s²) (Kolchinsky and Tracey 2017). σ is `NOISE` times the root
        of the first model's total variance; sinks are left out.
        """
        some = max(1, TOKENS // 2 // self.ids.shape[1])  # windows
        both = [self.states[path][:some, self.skipped :].cpu() for path in (first, other)]
        kept = ~(sinks(both[0]) | sinks(both[1])).flatten()
        own, _, running = self.clusters(both[0].shape[1])
        own = np.unique(own[: len(kept)][kept.numpy()], return_inverse=True)[1]
        sizes = np.bincount(own).astype(np.float64)
        row = Cells()
        values = dict[str, Floats]()
        groups = range(len(sizes) if len(sizes) > 2 else 0)
        rows = [states.flatten(0, 1)[kept].double() for states in both]
        square = float(rows[0].var(0, unbiased=False).sum()) * NOISE**2 or 1.0
        for model, x in zip(("first", "second"), rows, strict=True):
            near = torch.exp(torch.cdist(x, x).square() / (-2 * square))
            for bound, kernel in (("upper", near), ("lower", near.sqrt().sqrt())):
                table = torch.zeros(len(sizes), len(x), dtype=torch.float64)
                sums = table.index_add_(0, torch.from_numpy(own), kernel).numpy()
                left = [
                    -np.log2((sums.sum(0) - sums[k])[own != k] / (len(own) - sizes[k])).mean()
                    for k in groups
                ]
                values[f"bits_{bound}_{model}"] = np.array(
                    [-np.log2(sums.sum(0) / len(own)).mean(), *left]
                )
        for bound in ("lower", "upper"):
            values[f"bits_{bound}_change"] = (
                values[f"bits_{bound}_second"] - values[f"bits_{bound}_first"]
            )
        for name, (value, *left) in values.items():
            least = None if "change" in name else 0.0
            ends = (
                jackknife(value, left, sizes, running=running, bounds=(least, None))
                if left
                else None
            )
            row |= {name: float(value), f"{name}_interval": ends}
        return row


def divergences(first: Tensor, other: Tensor, targets: Tensor) -> Tensor:
    """KL both ways, rise of the loss, and whether the likeliest token is the same, float64 [n, 4],
    of log probabilities [n, V]. With δ their difference KL = Σ p (δ + e^−δ − 1), as both sum to 1:
    no term is negative, small sums keep their digits.
    """
    gap = first - other
    forward = (first.exp() * (torch.expm1(-gap) + gap)).sum(1, dtype=torch.float64).clamp(min=0)
    back = (other.exp() * (torch.expm1(gap) - gap)).sum(1, dtype=torch.float64).clamp(min=0)
    loss = gap.gather(1, targets[:, None])[:, 0]
    agree = first.argmax(1) == other.argmax(1)
    return torch.stack([forward, back, loss.double(), agree.double()], dim=1)


def sweep(
    models: Pair,
    groups: Sequence[Windows],
    run: Run,
    stage: str,
    each: Callable[[int], dict[str, Cells]],
) -> tuple[list[dict[Path, Floats]], dict[str, Cells]]:
    """The divergences of every group, and what `each` said after each part. States are stored now
    and then for a resume.
    """
    stored = run.parts.read(stage) if run.resume else None
    note: Any = stored.note if stored else (0, {}, {}, [])
    done, notes, models[1].bytes, models[1].formats = (
        note[0],
        note[1],
        models[1].bytes | note[2],
        {*note[3]},
    )
    for key, states in stored.tensors.items() if stored else ():
        groups[int(key[0])].states[tuple(map(int, key[1:]))] = states.to(models[0].lens.device)
    for number, part in list(enumerate(models[0].parts[:-1]))[done:]:
        run.progress(f"{stage} · {part}", number, len(models[0].parts), "parts")
        with models[1].ready(part):
            for group in groups:
                group.advance(models, number)
        notes |= each(number)
        if run.parts.due():
            kept = {
                f"{g}{''.join(map(str, key))}": x
                for g, one in enumerate(groups)
                for key, x in one.states.items()
            }
            run.parts.write(
                stage, kept, note=plain([number + 1, notes, models[1].bytes, models[1].formats])
            )
    run.progress(f"{stage} · head", len(models[0].parts) - 1, len(models[0].parts), "parts")
    return [group.judged(models) for group in groups], notes


@dataclass(frozen=True, kw_only=True)
class DamagePlan:
    """The options of `compare --damage`.

    Attributes:
        sample: tokens of the windows on which parts are exchanged.
        against: the rounding whose damage is measured; None where two models are named.
        keep: bytes to spend on parts that stay as in the first model.
        limit: divergence in nats a token that is too much.
        fail_on: the code of a finding at which the command line ends with status 3.
    """

    sample: int
    against: Against | None = None
    keep: float | None = None
    limit: float | None = None
    fail_on: str | None = None


def measure_damage(
    given: SourcesLike, plan: ReadingPlan, options: DamagePlan, run: Run
) -> DamageResult:
    """See `compare`: one pass through both models' parts, and one more where `keep` asks which
    parts to keep.
    """
    keep = options.keep
    limit = options.limit
    (first, second), names = models, _ = _models(given, plan, options.against, run)
    limited = replace(plan, reading=plan.reading.but(max_tokens=plan.reading.max_tokens or READ))
    source = Subject(names[0], first.lens, limited, Run.quiet(), renamed=False).reading(
        first.lens, plan.text
    )
    batches = [batch for batch in source.batches() if batch.ids.shape[1] == source.context]
    count = min(
        max(1, options.sample // source.context),
        sum(len(one.ids) for one in batches) // (2 if keep else 1),
    )
    if not count or plan.windowing.skip_first > source.context - 2:
        raise BadInput(
            f"The text has too few windows of {source.context} tokens, or --skip-first leaves "
            "nothing of them."
        )
    ids, documents = (
        np.concatenate([getattr(one, name) for one in batches]) for name in ("ids", "documents")
    )
    parts = {k: part for k, part in enumerate(first.parts) if second.differs(first, part)}

    def path(*ones: int) -> Path:
        return tuple(int(k in ones) for k in range(len(first.parts)))

    none = path()
    all_of = path(*parts)
    paths = {("isolated", k): path(k) for k in parts} | {
        ("restored", k): path(*parts.keys() - {k}) for k in parts
    }
    paths |= {("accumulated", k): path(*(j for j in parts if j <= k)) for k in parts}
    whole = Windows(
        torch.from_numpy(ids).to(first.lens.device),
        documents,
        plan.windowing.skip_first,
        [none, *[all_of] * bool(parts)],
    )
    order = np.random.default_rng(plan.seed).permutation(len(ids))
    sample = whole.part(order[:count], [none, all_of, *paths.values()])

    def each(k: int) -> dict[str, Cells]:
        told = (("isolated", sample, path(k)), ("accumulated", whole, all_of)) if k in parts else ()
        cells = {
            f"{mode} {k}": group.errors(none[: k + 1], other[: k + 1])
            for mode, group, other in told
        }
        if any(all_of[: k + 1]):
            paths = none[: k + 1], all_of[: k + 1]
            cells[f"shape {k}"] = whole.shape(first.parts[k], *paths) | whole.bits(*paths)
        return cells

    (everywhere, found), errors = sweep(models, [whole, sample], run, "damage", each)
    values = {key: found[one] for key, one in paths.items()}
    missing = found[all_of]
    rows = list[Row]()
    before = 0 * missing
    for k, part in parts.items():
        back = values["restored", k]
        after = values["accumulated", k]
        gained = np.stack([back[:, 0], back[:, 2], missing[:, 0] - back[:, 0]], axis=1)
        gains = sample.means(gained, ("restored_kl", "restored_loss_change", "gain"))
        alone = values["isolated", k]
        for mode, own, added, more in (
            ("isolated", alone, alone, gains),
            ("accumulated", after, after - before, Cells()),
        ):
            both = np.stack([added[:, 0], missing[:, 0]], axis=1)
            ratio = lambda s: float(s[0] / s[1]) if s[1] > 0 else None
            share = sample.cells(both, {"share": ratio})
            about: Cells = {
                "block": part,
                "mode": mode,
                "bytes_first": first.bytes[part],
                "bytes_second": second.bytes[part],
            }
            rows.append(
                Row(about | sample.means(own) | share | more | errors.get(f"{mode} {k}", {}))
            )
        before = after
    totals = {"whole": Row(whole.means(everywhere[all_of])), "sample": Row(sample.means(missing))}
    gains_of = {k: (missing - values["restored", k]).mean(0) for k in parts}
    choices = list[Row]()
    if keep and parts:
        seen = set(sample.documents.ravel().tolist())
        fresh = [k for k in order[count:] if seen.isdisjoint(documents[k].tolist())]
        held = whole.part((fresh if len(fresh) >= count else order[count:])[:count], [none])
        choices = _choices(models, parts, gains_of, missing.mean(0), held, path, keep, run)
    findings = _findings(rows, totals["whole"], choices, limit, names[1])
    records = [first.lens.provenance(), replace(second.record, name=names[1])]
    notes = [
        f"Parts were exchanged on {count} of {len(ids)} windows, drawn with the seed. Intervals: "
        "by documents, or windows."
    ]
    notes += [f"Matrices of blocks became {', '.join(second.formats)}; the rest stays."] * bool(
        second.formats
    )
    return DamageResult(
        protocol=run.protocol(
            text=source.text(), device=records[0].device, dtype=records[0].dtype, notes=notes
        ),
        models=records,
        damage=rows,
        totals=totals,
        shape=[Row(one) for key, one in errors.items() if "shape" in key],
        choices=choices,
        findings=findings,
        tokens=len(everywhere[all_of]),
        sampled=len(missing),
        sums={
            "isolated": float(sum(values["isolated", k][:, 0].mean() for k in parts)),
            "total": float(missing[:, 0].mean()),
            "restored": float(sum(gain[0] for gain in gains_of.values())),
        },
        failed=[one.code for one in findings if one.code == options.fail_on],
    )


def _models(
    given: SourcesLike, plan: ReadingPlan, against: Against | None, run: Run
) -> tuple[Pair, list[str]]:
    """Both models, checked, and their names. The second is read first, and its blocks are put aside
    before the first is.
    """
    subjects = compared_subjects(given, plan, run, against)
    rounds = against is not None and not is_loaded_bits(against)
    live = is_loaded_bits(against) and not isinstance(subjects[0].ready, Preparation)
    if (
        live
        or len(subjects) != 2 - rounds
        or any(isinstance(one.ready, VectorSource) for one in subjects)
    ):
        raise BadInput(
            "Name two models for --damage, or one (by name) and --against; stored states have no "
            "blocks."
        )
    names = [one.name for one in subjects] + [f"{subjects[0].name} ({against})"] * rounds
    spill = isinstance(subjects[-1].ready, Preparation)
    rounding = cast(RoundingName, against) if rounds else None
    second = PartwiseModel(subjects[-1].load(), rounding=rounding, spill=spill and not rounds)
    first = PartwiseModel(subjects[0].load())
    shapes = [
        (len(one.blocks), one.lens.width("embedding"), one.lens.width("head"))
        for one in (first, second)
    ]
    if (
        shapes[0] != shapes[1]
        or len({tokenizer_identity(one.lens.tokenizer) for one in (first, second)}) > 1
    ):
        raise BadInput(
            f"Tokenizers, or blocks, width and vocabulary ({shapes[0]}, {shapes[1]}) differ: "
            "nothing to exchange."
        )
    return (first, second), names


def _choices(
    models: Pair,
    parts: Mapping[int, str],
    gains: Mapping[int, Floats],
    missing: Floats,
    held: Windows,
    path: Callable[..., Path],
    keep: float,
    run: Run,
) -> list[Row]:
    """Parts to keep as in the first model, greedily by the divergence that each gives back for its
    bytes; measured beside uniform and random choices of as many bytes, on windows that the choice
    was not made by.
    """
    own, other = (one.bytes for one in models)
    costs = {
        k: own[part] - other[part] if own[part] > other[part] else own[part]
        for k, part in parts.items()
    }
    every = list(parts)
    rng = np.random.default_rng([run.seed, 1])

    def filled(order: Iterable[int], budget: float) -> list[int]:
        fits = lambda kept, k: (
            [*kept, k] if costs[k] + sum(costs[j] for j in kept) <= budget else kept
        )
        return reduce(fits, order, list[int]())

    best = filled(
        sorted((k for k in parts if gains[k][0] > 0), key=lambda k: -gains[k][0] / costs[k]), keep
    )
    if not best:
        raise BadInput(
            f"--keep {keep:g} bytes hold no part that helps: the smallest takes "
            f"{min(costs.values()):,}."
        )
    spent = sum(costs[k] for k in best)
    even = [every[int((j + 0.5) * len(every) / len(best))] for j in range(len(best))]
    named = {"none": [], "greedy": best, "uniform": filled(dict.fromkeys([*even, *every]), spent)}
    named |= {f"random {j}": filled(rng.permutation(every).tolist(), spent) for j in range(DRAWS)}
    held.paths = list(
        dict.fromkeys([path(), *(path(*parts.keys() - set(kept)) for kept in named.values())])
    )
    [found], _ = sweep(models, [held], run, "choices", lambda k: {})
    measured = {name: found[path(*parts.keys() - set(kept))] for name, kept in named.items()}
    measured["random"] = np.mean([measured.pop(f"random {j}") for j in range(DRAWS)], axis=0)
    named["random"], rows = named["random 0"], list[Row]()
    for name, values in measured.items():
        more = held.means((values - measured["greedy"])[:, [0, 2]], ("more_kl", "more_loss"))
        left = missing - sum(gains[k] for k in named[name])
        more |= (
            {}
            if name == "random"
            else {"predicted_kl": float(left[0]), "predicted_loss_change": float(left[2])}
        )
        kept = {
            "kept": [parts[k] for k in sorted(named[name])],
            "bytes": sum(costs[k] for k in named[name]),
        }
        rows.append(Row({"choice": name} | kept | held.means(values) | more))
    return rows


def ends(row: Row) -> str:
    """The divergence with its interval, where there is one."""
    known = row.interval("kl")
    return f"{row['kl']:.3g} [{known[0]:.3g}, {known[1]:.3g}]" if known else f"{row['kl']:.3g}"


def few(row: Row) -> str:
    """Why there is no interval."""
    return (
        ""
        if row.interval("kl")
        else " There is no interval: it takes three documents or windows (--sample, --max-tokens)."
    )


def _findings(
    rows: list[Row], total: Row, choices: list[Row], limit: float | None, name: str
) -> list[Finding]:
    if not rows:
        return [
            Finding(
                code="SAME",
                level="good",
                sentence=f"All weights of {name} are the first model's.",
                model=name,
            )
        ]
    found = list[Finding]()
    if limit is not None and (total.interval("kl") or (np.inf, np.inf))[1] > limit:
        text = (
            f"{name} diverges by {ends(total)} nats a token: it is not shown to be below "
            f"{limit:g}.{few(total)}"
        )
        found.append(
            Finding(
                code="OVER-LIMIT",
                level="alert",
                sentence=text,
                model=name,
                value=total.number("kl"),
            )
        )
    alone = sorted(
        (row for row in rows if row["mode"] == "isolated"), key=lambda row: -(row.number("kl") or 0)
    )
    text = ", then ".join(f"{row['block']} ({ends(row)} nats a token)" for row in alone[:2])
    text, site = (
        f"Exchanged alone in the first model, these parts cost most: {text}.{few(alone[0])}",
        alone[0].text("block"),
    )
    worst = alone[0].number("kl")
    found.append(
        Finding(
            code="WORST-PART", level="notice", sentence=text, model=name, site=site, value=worst
        )
    )
    if choices:
        own = {row.text("choice"): row for row in choices}
        beaten = [
            one
            for one in ("uniform", "random")
            if (own[one].interval("more_kl") or (0.0, 0.0))[0] > 0
        ]
        kept = ", ".join(cast(list[str], own["greedy"]["kept"]))
        left = own["greedy"].number("predicted_kl") or 0.0
        text = (
            f"With {kept} as in the first model {ends(own['greedy'])} nats a token are left "
            f"({left:.3g} predicted)."
        )
        text += few(own["greedy"]) + (
            f" That beats {' and '.join(beaten)} choices of as many bytes." if beaten else ""
        )
        rest = " and ".join(one for one in ("uniform", "random") if one not in beaten)
        text += f" The {rest} choices of as many bytes are not shown to be worse." if rest else ""
        found.append(
            Finding(
                code="KEEPING",
                level="good" if len(beaten) == 2 else "notice",
                sentence=text,
                model=name,
            )
        )
    return found
