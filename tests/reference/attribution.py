"""Attribution as its definitions say, one forward pass at a time: slow and obviously right."""

import numpy as np
import torch


def value(model, embeds, position, kind, token, against=None, original=None):
    """The target of one row [T, e], in plain words."""
    logits = model(inputs_embeds=embeds[None]).logits[0, position].double()
    probability = torch.softmax(logits, 0)
    if kind == "logit":
        return float(logits[token])
    if kind == "contrast":
        return float(logits[token] - logits[against])
    if kind == "logprob":
        return float(torch.log(probability[token]))
    # "all": minus the L1 distance from the original logits
    return -float((logits - original.double()).abs().sum())


@torch.no_grad()
def occlusion(model, embeds, substitute, position, kind, token, against=None):
    """f(prompt) - f(prompt with token i replaced), or removed where `substitute` is None."""
    original = model(inputs_embeds=embeds[None]).logits[0, position]
    arguments = (kind, token, against, original)
    value_of_all = value(model, embeds, position, *arguments)
    scores = []
    for i in range(len(embeds)):
        if substitute is None:
            changed = torch.cat([embeds[:i], embeds[i + 1 :]])
            scores.append(value_of_all - value(model, changed, position - 1, *arguments))
        else:
            changed = embeds.clone()
            changed[i] = substitute
            scores.append(value_of_all - value(model, changed, position, *arguments))
    return np.array(scores)
