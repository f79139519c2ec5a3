"""What stands between foreign text and a terminal: names of models and files, their texts, and what
libraries say of them.
"""

import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

# What moves a cursor, colours, turns the direction of writing round, or shows nothing; with a lone
# surrogate.
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def shown(text: str, form: str = "<U+{:04X}>") -> str:
    """The text with its control characters spelt, not sent: a name or a text may hold what commands
    a terminal.

    >>> shown("a\\x1b[2Jb\\u202e\\n")
    'a<U+001B>[2Jb<U+202E>\\n'
    """
    return UNSEEN.sub(lambda match: form.format(ord(match[0])), text)


class Guarded:
    """A standard stream to which only `shown` text goes; `console`, which moves the cursor, has the
    one behind.
    """

    def __init__(self, stream: Any) -> None:
        self.behind = stream

    def write(self, text: str) -> int:
        return int(self.behind.write(shown(text)) or 0)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)


@contextmanager
def guarded() -> Iterator[None]:
    """Standard output and error as `Guarded` streams: what is printed, logged and warned of, by
    whomever.
    """
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = Guarded(sys.stdout), Guarded(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


def print_fault(
    kind: type[BaseException], fault: BaseException, trace: TracebackType | None
) -> None:
    """What Python prints of an error that nobody caught, `shown`: its message may quote a file."""
    print(shown("".join(traceback.format_exception(kind, fault, trace))), end="", file=sys.stderr)


def console(stream: Any = None, **options: Any) -> Any:
    """A rich console, on standard output unless a stream is given, whose texts are `shown`; its own
    colours and cursor pass.
    """
    from rich.console import Console
    from rich.segment import Segment

    class Shown(Console):
        def render(self, *positional: Any, **named: Any) -> Iterator[Segment]:
            for text, style, control in super().render(*positional, **named):
                yield Segment(text if control else shown(text), style, control)

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end the program with status 1

    stream = stream or sys.stdout
    return Shown(file=getattr(stream, "behind", stream), **options)
