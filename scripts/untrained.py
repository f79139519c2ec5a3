"""How often `headscan weights` calls fresh weights untrained, and trained ones: the table of
lab/docs/methods/weights.md.

python scripts/untrained.py [SEEDS] [TRAINED MODEL ...]
"""

import sys
import warnings

import torch
import transformers

from headscan import specimens, weights
from headscan.weights.run import WeightsResult

HEADS = {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "hidden_size": 96,
    "intermediate_size": 256,
}
ENCODER = {
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "hidden_size": 96,
    "intermediate_size": 256,
}
FAMILIES = {
    "GPT2": {"n_embd": 96, "n_layer": 3, "n_head": 4},
    "Llama": HEADS,
    "Qwen2": HEADS,
    "Mistral": HEADS,
    "Gemma": HEADS | {"head_dim": 24},
    "GPTNeoX": ENCODER,
    "OPT": ENCODER | {"ffn_dim": 256, "word_embed_proj_dim": 96},
    "Bert": ENCODER,
    "Roberta": ENCODER,
    "MPNet": ENCODER,
    "Electra": ENCODER | {"embedding_size": 96},
    "T5": {"d_model": 96, "d_ff": 256, "num_layers": 3, "num_heads": 4, "d_kv": 24},
    "Bart": {
        "d_model": 96,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_ffn_dim": 256,
        "decoder_ffn_dim": 256,
    },
    "Bloom": {"hidden_size": 96, "n_layer": 3, "n_head": 4},
    "Falcon": {"hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4},
    "Phi": HEADS,
    "Mixtral": HEADS | {"num_local_experts": 4},
}


def fresh(family: str, seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    config = getattr(transformers, f"{family}Config")(vocab_size=1000, **FAMILIES[family])
    return getattr(transformers, f"{family}Model")(config)


def random_count(run: WeightsResult) -> int:
    """Return how many matrices of a result look random."""
    return sum(row.random for row in run.matrices)


def called_untrained(run: WeightsResult) -> bool:
    """Tell whether a result calls its model untrained."""
    return any(finding.name == "UNTRAINED" for finding in run.findings)


def main(seeds: int, trained: list[str]) -> None:
    """A line a family: models called untrained, the least share of matrices that look random; a
    line a trained model.
    """
    warnings.simplefilter("ignore")
    print("| fresh weights | called untrained | least share that looks random |\n|---|---|---|")
    for family in FAMILIES:
        runs = [weights.run(fresh(family, seed)) for seed in range(seeds)]
        shares = [random_count(run) / len(run.matrices) for run in runs]
        called = sum(called_untrained(run) for run in runs)
        print(f"| {family} | {called} of {seeds} | {min(shares):.2f} |", flush=True)
    print("\n| trained | matrices | look random | called untrained |\n|---|---|---|---|")
    for name in [*specimens(), *trained]:
        run = weights.run(name)
        verdict = "yes" if called_untrained(run) else "no"
        print(
            f"| {run.models[0].name} | {len(run.matrices)} | {random_count(run)} | {verdict} |",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10, sys.argv[2:])
