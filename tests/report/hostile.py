"""Text that tries to be something else: markup, templates, escapes, other directions of writing."""

import numpy as np
import sample

STRINGS = (
    "<script>window.pwned=1;alert(1)</script>",
    "</script><script>window.pwned=2</script>",
    "</span>",
    "<b>bold</b>",
    '<img src=x onerror="window.pwned=3">',
    "\"'`",
    "a\nb\r\nc",
    "C:\\new\\table",
    "%{x} %{customdata[0]}",
    "$\\alpha$",
    "{{ 7*7 }}{% raw %}",
    "&lt;&amp;amp;&#60;",
    "\u202eright to left\u202c",
    "\u05e9\u05dc\u05d5\u05dd",
    "Z\u0351\u036b\u0343",
    "\U0001f3af\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\u2028\u2029",
    "\u0000\u0007\u001b[31m",
    "\ufffe\uffff\U000e0041",
    "<!--",
    "]]>",
    "[bold red]rich[/]",
    "",
    " ",
)


def scan(seed: int = 0) -> tuple[dict, dict[str, np.ndarray]]:
    """A scan in which every text that comes from outside is hostile."""
    name = f"org/{''.join(STRINGS[:5])}"
    second_name = f"{STRINGS[8]}{STRINGS[9]}{STRINGS[12]}{'x' * 200}"
    document, arrays = sample.scan(
        (name, second_name), blocks=3, width=16, tokens=2 * len(STRINGS), seed=seed
    )
    document["protocol"]["command"] = " ".join(STRINGS)
    document["protocol"]["text"]["source"] = "/".join(STRINGS)
    document["protocol"]["versions"]["".join(STRINGS)] = "".join(STRINGS)
    for model in document["models"]:
        model["model_class"] = model["architecture"] = model["revision"] = STRINGS[0] + STRINGS[1]
        picture = document["pictures"][model["name"]]
        count = len(picture["tokens"])
        for shift, field in enumerate(("tokens", "before", "after")):
            picture[field] = [STRINGS[(k + 7 * shift) % len(STRINGS)] for k in range(count)]
    for entry in document["sites"]:
        entry["notes"] = [STRINGS[1] + STRINGS[4]]
    document["sites"][2]["isoscore"] = None
    for finding in document["findings"]:
        finding |= {
            "code": STRINGS[3],
            "sentence": STRINGS[0],
            "level": '"><script>',
            "site": STRINGS[4],
        }
    document["measures"] = {
        STRINGS[0]: {
            "title": STRINGS[1],
            "sentence": STRINGS[4],
            "formula": STRINGS[3],
            "source": STRINGS[19],
        },
        **sample.MEASURES,
    }
    return document, arrays
