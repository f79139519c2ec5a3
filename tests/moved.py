"""Which outputs of a slice move when a token changes."""

import torch


@torch.no_grad()
def moved_outputs(cut, lens, ids):
    """Return [T, kept]: how far each output moves, at most, when a token of one prompt becomes
    each of four others. Outputs that do not depend on it move by nothing.
    """
    ready = cut.on(lens)
    ids = torch.as_tensor(ids)
    rows = []
    for position in range(len(ids)):
        changed = ids.repeat(5, 1)
        changed[1:, position] = (ids[position] + torch.arange(1, 5)) % ready.vocabulary_size
        outputs = ready.run(changed).float()
        rows.append((outputs[1:] - outputs[:1]).norm(dim=-1).amax(0))
    moved = torch.stack(rows)
    return torch.where(moved > 1e-5, moved, 0.0)
