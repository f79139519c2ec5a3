"""Save a model with its matrices in 8 bits, as the article runs its Llamas.

It is then tried beside the model itself.

Each row of a block's matrices is rounded to 255 even levels up to its largest number (LLM.int8()'s
weights; embeddings, norms and head stay as they are, and so do the inputs).

    python lab/scripts/in_eight_bits.py MODEL FOLDER
    headscan reproduce CLAIM [CLAIM ...] --on MODEL --on FOLDER
"""

import argparse

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

LEVELS = 127  # on either side of zero


def main(model: str, folder: str) -> None:
    """Save the model of a folder with its blocks' matrices rounded."""
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    with torch.no_grad():
        for layer in network.base_model.layers:
            for weight in layer.parameters():
                if weight.ndim == 2:
                    step = weight.abs().amax(1, keepdim=True).clamp_min(1e-30) / LEVELS
                    weight.copy_((weight / step).round() * step)
    network.save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("folder")
    main(**vars(parser.parse_args()))
