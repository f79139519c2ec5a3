"""Flow between tokens by its definitions, one changed prompt at a time."""

import torch


@torch.no_grad()
def margin(run, prompt, position, output, vocabulary):
    """The least relative distance of output `output` over all other tokens at `place`."""
    original = run(torch.tensor([prompt]))[0, output]
    least = float("inf")
    for token in range(vocabulary):
        if token == prompt[position]:
            continue
        changed = list(prompt)
        changed[position] = token
        away = (run(torch.tensor([changed]))[0, output] - original).norm() / original.norm()
        least = min(least, float(away))
    return least
