"""Occlusion of a prompt is faster than one forward pass a token, and than captum's FeatureAblation.

    OMP_NUM_THREADS=1 python benchmarks/occlusion_is_faster_than_a_forward_pass_a_token.py [MODEL]

For prompts of 64 and 256 tokens, in one process, on the same embeddings and the same substitute:

- headscan: batches that share the prompt's keys and values, logits at the last position only;
- loop: one forward pass of the whole prompt a token, as the seed's code does;
- captum: FeatureAblation with its own batching (perturbations_per_eval = 64, its fastest here), where it is installed.

The scores are compared, too. Times are processor seconds of the one thread (a busy machine does not count), the best of
two or three rounds, in turn. MODEL is anything `Lens.load` takes; by default a GPT-2 of width 256 with 6 blocks and 8,192
tokens, random weights (speed does not depend on them). Peak memory is the growth of the process's high-water mark over
prompts of 256 to 1,024 tokens at a fixed budget of 64 MiB.
"""

from __future__ import annotations

import resource
import sys
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from headscan.attribution import Coalitions, Engine, Step, Target
from headscan.attribution.memory import plan
from headscan.attribution.units import Unit
from headscan.model import Lens


def model(name: str | None) -> Lens:
    if name:
        return Lens.load(name)
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=8192, bos_token_id=0, eos_token_id=0, n_positions=2048, n_embd=256, n_layer=6, n_head=4
    )
    return Lens(GPT2LMHeadModel(config).eval(), name="gpt2 6 x 256")


def headscan_occlusion(lens, embeds, substitute, token, budget=None):
    length = len(embeds)
    target = Target("logit", (Step(length - 1, token),))
    game = Coalitions(
        Engine(lens),
        embeds,
        [Unit((i,), "") for i in range(length)],
        target,
        substitute,
        plan(lens, length, 1, budget=budget),
    )
    whole = target.value(game.original[None])[0, 0]
    return whole - torch.from_numpy(game.values(game.without_each())[:, 0])


@torch.no_grad()
def loop(lens, embeds, substitute, token):
    whole = lens.model(inputs_embeds=embeds[None]).logits[0, -1, token]
    scores = []
    for i in range(len(embeds)):
        changed = embeds.clone()
        changed[i] = substitute
        scores.append(whole - lens.model(inputs_embeds=changed[None]).logits[0, -1, token])
    return torch.stack(scores)


def captum_ablation(lens, embeds, substitute, token):
    from captum.attr import FeatureAblation

    def forward(rows):
        return lens.model(inputs_embeds=rows).logits[:, -1, token]

    mask = torch.arange(len(embeds))[None, :, None].expand(1, -1, embeds.shape[1])
    with torch.no_grad():
        found = FeatureAblation(forward).attribute(
            embeds[None], baselines=substitute.expand_as(embeds)[None], feature_mask=mask, perturbations_per_eval=64
        )
    return found[0, :, 0]


def main() -> None:
    torch.set_num_threads(1)
    lens = model(sys.argv[1] if len(sys.argv) > 1 else None)
    ways = {"headscan": headscan_occlusion, "loop": loop}
    try:
        import captum.attr  # noqa: F401

        ways["captum"] = captum_ablation
    except ImportError:
        print("captum is not installed: not compared")
    for length in (64, 256):
        if lens.context_length is not None and length > lens.context_length:
            continue
        generator = torch.Generator().manual_seed(length)
        ids = torch.randint(3, lens.vocabulary_size, (length,), generator=generator)
        embeds, substitute = lens.input_embeddings[ids].detach(), lens.input_embeddings[2].detach()
        best = dict.fromkeys(ways, float("inf"))
        scores = {}
        for _ in range(3 if length == 64 else 2):
            for name, way in ways.items():
                start = time.process_time()
                scores[name] = way(lens, embeds, substitute, 5)
                best[name] = min(best[name], time.process_time() - start)
        apart = max(
            float((scores[name] - scores["headscan"]).abs().max() / scores["loop"].abs().max()) for name in ways
        )
        line = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in best.items())
        ratios = ", ".join(f"{best[name] / best['headscan']:.1f} x {name}" for name in ways if name != "headscan")
        print(f"{lens.name}, {length} tokens: {line}; {ratios}; scores apart by {apart:.1e} of the largest", flush=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for length in (256, 512, 1024):
        if lens.context_length is not None and length > lens.context_length:
            continue
        ids = torch.arange(length) % (lens.vocabulary_size - 3) + 3
        embeds = lens.input_embeddings[ids].detach()
        target = Target("logit", (Step(length - 1, 5),))
        units = [Unit((i,), "") for i in range(0, length, length // 32)]  # 32 of its tokens: memory, not time, is asked
        planned = plan(lens, length, 1, budget=64 * 2**20)
        units = [Unit(tuple(range(u.first, u.first + length // 32)), "") for u in units]
        game = Coalitions(Engine(lens), embeds, units, target, lens.input_embeddings[2].detach(), planned)
        game.values(game.without_each())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(
            f"{length} tokens: {planned.rows} rows a batch, high-water mark {(peak - before) / 1024:+.0f} MiB",
            flush=True,
        )


if __name__ == "__main__":
    main()
