"""Prompts that pages, tokenizers and tokens' offsets go wrong on, each with the options it is asked
with.
"""

from typing import Any

__all__ = ["CHAT_TEMPLATE", "PROMPTS"]

CHAT_TEMPLATE = (
    "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)

PROMPTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "wipers": ("The wipers on the bus go swish swish", {"method": "all"}),
    "story": (
        "Once upon a time, there was a little girl named",
        {"method": "combined", "units": "word"},
    ),
    "contrast": (
        "Lily saw a big dog. She wanted to pet the",
        {"method": "occlusion", "token": "d", "against": "c"},
    ),
    "logprob": (
        "One day, Tim found a red ball in the",
        {"method": "occlusion", "target": "logprob"},
    ),
    "sentences": (
        "Tom had a cat. The cat was sad. It did not want to play.\nTom gave it milk. The cat was",
        {"method": "occlusion", "substitute": "remove", "units": "sentence"},
    ),
    "continuation": ("Lily and Ben like to", {"method": "occlusion", "generate": 8}),
    "absolute": (
        "The sun was hot and the ice",
        {"method": "integrated-gradients", "signed": False},
    ),
    "chat": (
        [
            {"role": "system", "content": "Tell a story."},
            {"role": "user", "content": "Who is <b>Lily</b>?"},
        ],
        {"method": "gradient-x-input,occlusion"},
    ),
    "code": (
        "def f(x: int) -> int:\n\treturn x if x < 3 else f(x - 1)  # {{ 7*7 }} %d\n",
        {"method": "occlusion"},
    ),
    "script": (
        "<script>window.pwned=1;alert('x')</script><img src=x onerror=alert(1)>",
        {"method": "occlusion"},
    ),
    "special": (
        "<s> a </s> b <unk> c <|endoftext|> [MASK] &lt;s&gt; &amp;",
        {"method": "occlusion"},
    ),
    "quotes": (
        "'single' \"double\" `back` “curly” «guillemets» \\\" \\n ' onmouseover='alert(1)",
        {"method": "occlusion"},
    ),
    "newlines": ("one\ntwo\n\n\nthree\r\nfour\tfive  six   seven \n", {"method": "occlusion"}),
    "right-to-left": ("שלום עולם, مرحبا بالعالم 123 abc", {"method": "occlusion"}),
    "override": ("abc \u202etxt.exe\u202c def \u2066isolated\u2069 end", {"method": "occlusion"}),
    "combining": (
        "e\u0301 n\u0303 Z\u0351\u036b\u0343\u036a\u0302\u036b A\u030a ffi ﬃ",
        {"method": "occlusion"},
    ),
    "emoji": ("👩‍👩‍👧‍👦 🇩🇪 👍🏽 🤖 and ❤️", {"method": "occlusion"}),
    "chinese": (
        "天空是蓝色的。我喜欢猫。日本語のテキスト、한국어",
        {"method": "occlusion", "units": "sentence"},
    ),
    "mathematics": (
        "$\\alpha^2$ ∑ᵢ xᵢ ≤ ∞ <sub>x</sub> $x$ 3 < 5 > 2 & 1",
        {"method": "occlusion"},
    ),
    "one long word": ("a" * 300, {"method": "gradient-x-input"}),
    "5,000 tokens": (
        "Once upon a time there was a cat. " * 500,
        {"method": "gradient-x-input", "faithfulness": False},
    ),
}
"""Name -> (prompt, options of `attribute`): the seed's prompt, and 20 others."""
