"""What code that shares nothing with headscan found of the same statements, beside our numbers."""

INDEPENDENT: dict[str, str] = {
    "S3": "TinyStories 0.057, State of the Union 0.060, LAMBADA 0.049, SST-2 0.050, Shakespeare "
    "0.031, inaugural addresses 0.074, wikitext-2 0.088.",
    "S4": "The rows' mean taken out: gpt-vanilla 0.292, babyllama 0.436, stories260K 0.532, "
    "Qwen2.5-Coder-1.5B-Instruct (dequantised) 0.559; a random head 0.48 to 0.50.",
    "S5": "A GPT and a language of its own: 0.31 for the rows as trained, 0.025 with their mean "
    "taken out.",
    "S6": "Headless 0.499, a tied head 0.527.",
    "S7": "A GPT and a language of its own: -0.070 after 200 steps, -0.062 after 500, -0.047 after "
    "1,000; without Zipf's law +0.001.",
    "P2": "For V = 4, k = 2 the solver gives 0.577 and -0.577; printed are 0.866 and -0.289.",
    "P4": "Three tokens have at most 1.0986 nats.",
    "P9": "6.6 at the beginning, 27.9 at the end.",
    "P11": "A transformer 64 wide on TinyStories: words 0.86, contexts 0.90 (a null 0.006) at "
    "CE - H of 0.0019.",
    "P12": "Equal supports 0.983, other supports 0.136.",
    "A6": "Qwen2.5-Coder-1.5B-Instruct (dequantised), four prompts: 0.000 with the published "
    "settings, 0.917 with Adam from the embeddings' scale (1.000 among the best five).",
    "A11": "Untrained less trained: stories260K 0.554 at noise of 2 spreads, 0.077 at 5; "
    "all-mpnet-base-v2 0.017 at 2, -0.079 at 10; babyllama 0.53 at 3.",
    "L1": "Qwen2.5-Coder-1.5B-Instruct (dequantised), rank 512 of 1,536, fitted on 1,500 tokens of "
    "wikitext-2: +0.45 nats on later wikitext-2, +0.39 on stories; rank 1,024 +0.09.",
    "L2": "A random subspace loses 0.994.",
}
"""The numbers of independent scripts by statement."""

SAME_PROTOCOL: dict[tuple[str, str, str], float] = {
    ("S3", "made here", "the commonest word of the stories"): 0.057,
    ("S4", "gpt-vanilla", "the rows' common vector taken out"): 0.292,
    ("S4", "stories260K", "the rows' common vector taken out"): 0.532,
    ("S4", "babyllama-tok105", "the rows' common vector taken out"): 0.436,
    ("S5", "made here", "head less headless, 600 steps"): 0.025,
    ("S5", "made here", "head less headless, 200 steps, rows as trained"): 0.31,
    ("S6", "made here", "headless less an untied head, 200 steps"): 0.499,
    ("S6", "made here", "a tied head less an untied"): 0.527,
    ("P4", "made here", "log 3"): 1.0986,
}
"""Values of independent code, by statement, model and name of our number.

S3 is of other stories, S5 and S6 are of a model and a language of their own.
"""
