"""What ``--decoding`` means: names such as ``beam:16,knn=250`` or ``greedy+x8`` and their parts. Imports no torch.

Grammar: ``NAME[:COUNT][+x8][,KEY=VALUE ...]``; ``x8`` alone is ``greedy+x8``, and how records spell that.
"""

from __future__ import annotations

from dataclasses import dataclass

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.settings import pairs, parse


@dataclass(frozen=True)
class DecodingKind:
    """A decoding as `list decodings` shows it.

    Attributes
    ----------
    meaning
        What it does and who introduced it.
    counts
        What the number after the colon counts; empty where there is none.
    default
        The number where none is given; None if one must be given.
    options
        Keys it understands.
    families
        ``path`` and/or ``encode-once``: the kinds of policies it works with.
    """

    meaning: str
    counts: str = ""
    default: int | None = None
    options: tuple[str, ...] = ()
    families: tuple[str, ...] = ("path",)

    def __str__(self) -> str:
        """Return the meaning with the number and the options that may follow the name."""
        number = f":{self.counts.upper()}" if self.counts else ""
        options = "".join(f",{option}=..." for option in self.options)
        return f"{self.meaning}; NAME{number}[{options}]"


_BOTH = ("path", "encode-once")

DECODINGS: dict[str, DecodingKind] = {
    "greedy": DecodingKind("always the best-scored action", options=("knn",), families=_BOTH),
    "beam": DecodingKind(
        "the most probable partial solutions, shortest final one (BQ-NCO)", "beams", None, ("knn",), _BOTH
    ),
    "sample": DecodingKind("solutions drawn from the policy, best one", "samples", None, ("knn",), _BOTH),
    "multistart": DecodingKind(
        "greedy from several start nodes, best one (POMO)", "starts", 0, ("knn",), _BOTH
    ),
    "rrc": DecodingKind(
        "random re-construction of one segment at a time (LEHD)",
        "iterations",
        None,
        ("init", "length", "knn"),
    ),
    "prc": DecodingKind(
        "parallel local re-construction of all segments (SIT)", "iterations", None, ("init", "length", "knn")
    ),
}
X8 = "greedy in the eight symmetries of the square, best one (POMO)"
"""What ``x8`` does, which is greedy with the augmentation that may follow the other names, too."""
MOST = 10_000_000
"""Of samples, beams, iterations, ...: more is a slip of the keyboard, and would fill the memory before it fails."""

INITIAL = {"rrc": "greedy", "prc": "insertion"}
"""What re-construction begins with where ``init`` is not given."""

INITIALS = ("greedy", "insertion", "nearest")
"""The network's greedy solution, random insertion (CVRP: by angle), nearest neighbour from a random node (the depot)."""


@dataclass(frozen=True)
class Decoding:
    """One parsed decoding.

    Attributes
    ----------
    name
        A key of `DECODINGS`.
    k
        Beams, samples, starts (0: one per node) or iterations; 1 for greedy.
    augmentation
        8 if all symmetries of the square are tried and the best kept, else 1.
    knn
        The network sees only this many nearest candidates, counted as the policy's paper counts; None: its default.
    init
        rrc and prc: one of `INITIALS`.
    length
        rrc and prc: longest segment; None: that of the paper.
    """

    name: str
    k: int = 1
    augmentation: int = 1
    knn: int | None = None
    init: str | None = None
    length: int | None = None

    def __str__(self) -> str:
        """Return the canonical spelling, which parses back."""
        counted = DECODINGS[self.name].counts and self.k != DECODINGS[self.name].default
        text = f"{self.name}:{self.k}" if counted else self.name
        if self.augmentation == 8:
            text = spelt(f"{text}+x8")
        if self.knn is not None:
            text += f",knn={self.knn}"
        if self.init not in (None, INITIAL.get(self.name)):
            text += f",init={self.init}"
        if self.length is not None:
            text += f",length={self.length}"
        return text


def spelt(text: str) -> str:
    """Return a decoding as records spell it: ``greedy+x8`` is ``x8``, so that one decoding has one record."""
    head, comma, options = text.strip().partition(",")
    return f"x8{comma}{options}" if head == "greedy+x8" else text


def parse_decoding(text: str) -> Decoding:
    """Parse a decoding such as ``greedy``, ``x8``, ``beam:16,knn=250``, ``sample:1280+x8`` or ``prc:100,init=greedy``.

    Raises
    ------
    UnknownNameError
        For a decoding or an option that does not exist.
    BadInputError
        For a number that is missing, out of range or not a number.
    """
    head, *options = text.strip().split(",")
    augmented = head == "x8" or head.endswith("+x8")
    head = "greedy" if head == "x8" else head.removesuffix("+x8")
    name, colon, number = head.partition(":")
    if name == "x8":
        raise BadInputError(f"Decoding {text!r}: x8 takes no number; write x8, or NAME+x8 as in beam:16+x8.")
    if name not in DECODINGS:
        raise UnknownNameError("decoding", name, [*DECODINGS, "x8"], "See 'nco-bench list decodings'.")
    kind = DECODINGS[name]
    if colon and not kind.counts:
        raise BadInputError(f"Decoding {text!r}: {name} takes no number.")
    if colon:
        count = _integer(text, f"number of {kind.counts}", number, least=1)
    elif kind.counts and kind.default is None:
        raise BadInputError(f"Decoding {text!r}: how many {kind.counts}? Write for example {name}:16.")
    else:
        count = 1 if kind.default is None else kind.default
    return Decoding(name, count, 8 if augmented else 1, **_options(text, name, options))  # type: ignore[arg-type]


def _options(text: str, name: str, options: list[str]) -> dict[str, int | str]:
    known = DECODINGS[name].options
    found: dict[str, int | str] = {"init": INITIAL[name]} if name in INITIAL else {}
    given = pairs(f"Decoding {text!r}", map(str.strip, options), f"option of decoding {name}", known)
    for key, value in given.items():
        if key == "init":
            if value not in INITIALS:
                raise UnknownNameError(f"initial solution in decoding {text!r}", value, INITIALS)
            found[key] = value
        else:
            found[key] = _integer(text, key, value, least=4 if key == "length" else 1)
    return found


def _integer(text: str, what: str, value: str, *, least: int) -> int:
    number: int = parse(f"Decoding {text!r}: {what}", value, int, low=least, high=MOST)
    return number
