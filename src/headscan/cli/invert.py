"""`headscan invert`: from hidden states back to the text, with a certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import headscan
from headscan.cli.options import Device, Json, Out, Quantize, Revision, Tokenizer, TrustRemoteCode
from headscan.cli.output import command_line, default_folder, progress_bar, show

__all__ = ["invert"]


def invert(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Hugging Face id, local folder, or embedded specimen.")],
    prompt: Annotated[
        list[str] | None, typer.Option(help="The text whose states are inverted; may be given several times.")
    ] = None,
    at: Annotated[
        str, typer.Option(help="The slice: SITE [+ SITE ...] and a part of its output, such as 'block.3[:, 1:, :64]'.")
    ] = "block.0",
    method: Annotated[
        str, typer.Option(help="exact (left to right), joint, indirect or direct (gradients); auto chooses.")
    ] = "auto",
    given: Annotated[
        str,
        typer.Option(
            help="What is given: states, next-token (log-probabilities), embedding (pooled), or gradient (of a training "
            "step on all prompts as one batch: which tokens were in it)."
        ),
    ] = "states",
    preset: Annotated[
        str | None, typer.Option(help="Continuous methods: adam, lbfgs, seed or seed-direct (as published).")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Continuous methods: gradient steps. Default: the preset's.")
    ] = None,
    loss: Annotated[str | None, typer.Option(help="Continuous methods: l1, l2, cosine or linear.")] = None,
    decoder: Annotated[str | None, typer.Option(help="Continuous methods: nearest, pinv or mahalanobis.")] = None,
    restarts: Annotated[int | None, typer.Option(help="Continuous methods: starts per prompt, in one batch.")] = None,
    init: Annotated[
        str | None,
        typer.Option(help="Continuous methods: begin at embedding scale, at zeros, or at noise (as published)."),
    ] = None,
    sequential: Annotated[
        bool, typer.Option("--sequential", help="Continuous methods: one token after another, those found committed.")
    ] = False,
    order: Annotated[
        str, typer.Option(help="Exact: candidates by table, gradient, frequency or random (brute force).")
    ] = "table",
    budget: Annotated[
        int | None, typer.Option(help="Exact: candidates a position; joint: altogether. Default: all; 200,000.")
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Largest relative residual that counts as equal. Default: by precision.")
    ] = None,
    neighbours: Annotated[
        int, typer.Option(help="Exact: tokens tried after a find, for the certificate; -1 tries the vocabulary.")
    ] = 16,
    vocabulary: Annotated[str | None, typer.Option(help="A text whose tokens alone may be returned.")] = None,
    noise: Annotated[float, typer.Option(help="Gaussian noise on the states, as a share of their norm.")] = 0.0,
    rounding: Annotated[int | None, typer.Option(help="Round the states to so many bits.")] = None,
    jacobian: Annotated[
        bool, typer.Option("--jacobian", help="Add rank and singular values of the Jacobian at each position.")
    ] = False,
    only: Annotated[str | None, typer.Option(help="Slice: attention or mlp alone in every block.")] = None,
    start: Annotated[int, typer.Option(help="Slice: the first block that is run.")] = 0,
    residual: Annotated[bool, typer.Option("--residual/--no-residual", help="Slice: residual connections.")] = True,
    normalisation: Annotated[bool, typer.Option("--norm/--no-norm", help="Slice: normalisation.")] = True,
    causal: Annotated[
        bool | None, typer.Option("--causal/--no-causal", help="Slice: impose or lift the causal mask.")
    ] = None,
    positions: Annotated[bool, typer.Option("--positions/--no-positions", help="Slice: positions.")] = True,
    embedding: Annotated[
        str | None, typer.Option(help="Slice: another embedding table: random:SEED or a model.")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="Slice: fresh:SEED for newly initialised weights.")] = None,
    bits: Annotated[int | None, typer.Option(help="Slice: weights rounded to 2 to 8 bits.")] = None,
    privacy: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Instead: the privacy report on this .txt file, at the sites of --at."),
    ] = None,
    tokenizer: Tokenizer = None,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    device: Device = "auto",
    quantize: Quantize = None,
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
    seed: Annotated[int, typer.Option(help="Seed of starts, noise and random orders.")] = 0,
    out: Out = None,
    json: Json = False,
) -> None:
    """Run a part of a model on a prompt, forget the prompt, and find it again from the output alone."""
    loading: dict[str, Any] = {
        "tokenizer": tokenizer,
        "dtype": dtype,
        "device": device,
        "quantize": quantize,
        "revision": revision,
        "trust_remote_code": trust_remote_code,
    }
    folder = out or default_folder("privacy" if privacy else "invert", model, *([] if privacy else [at]))
    with progress_bar() as progress:
        if privacy is not None:
            result: headscan.Result = headscan.privacy(
                model,
                _read(privacy),
                sites=at,
                seed=seed,
                out=folder,
                command=command_line(),
                progress=progress,
                **loading,
            )
        elif not prompt:
            raise headscan.BadInput("Give the text to invert with --prompt.")
        elif given == "gradient":
            result = headscan.leaked_gradient(
                model, prompt, tolerance=tolerance or 1e-3, out=folder, command=command_line(), **loading
            )
        else:
            cut = headscan.Slice.parse(
                at,
                only=only,
                start=start,
                residual=residual,
                normalisation=normalisation,
                causal=causal,
                positions=positions,
                embedding=embedding,
                weights=weights,
                bits=bits,
            )
            result = headscan.invert(
                model,
                prompt,
                at=cut,
                method=method,
                given=given,
                setting=_setting(
                    preset,
                    method,
                    steps=steps,
                    loss=loss,
                    decoder=decoder,
                    restarts=restarts,
                    seed=seed or None,
                    sequential=sequential or None,
                    start=init,
                ),
                search=headscan.Search(
                    order=order,
                    budget=budget,
                    tolerance=tolerance,
                    neighbours=None if neighbours < 0 else neighbours,
                    seed=seed,
                ),
                together=headscan.JointSearch(budget=budget or 200_000, seed=seed),
                vocabulary=vocabulary,
                noise=noise,
                rounding=rounding,
                jacobian=jacobian,
                seed=seed,
                out=folder,
                command=command_line(),
                progress=progress,
                **loading,
            )
    show(result, folder, as_json=json)


def _setting(preset: str | None, method: str, **changes: object) -> Any:
    if method not in ("indirect", "direct"):
        if preset or any(value is not None for key, value in changes.items() if key != "seed"):
            raise headscan.BadInput(
                "--preset, --steps, --loss, --decoder, --restarts, --init and --sequential are for gradients: give --method "
                "indirect or direct with them."
            )
        return None
    name = preset or "adam"
    name = "seed-direct" if name == "seed" and method == "direct" else name
    return headscan.preset(name, method=method, **{key: value for key, value in changes.items() if value is not None})


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise headscan.BadInput(f"The text '{path}' cannot be read.") from None
