"""Which colour a name has: the same on the page, in print, and in every report."""

from collections.abc import Iterable

PALETTE = (
    "#2a78d6",
    "#1baf7a",
    "#eda100",
    "#008300",
    "#4a3aa7",
    "#e34948",
    "#e87ba4",
    "#eb6834",
)
"""The colours of the slots on white; the page has its own steps of them for dark mode."""

DASHES = ("solid", (0, (4, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
"""The line styles of names that share a slot."""

PUBLISHED = "#9b998f"

_SLOTS = {
    "cvaml-1-0": 0,
    "cvaml-1-1": 1,
    "vaml-1-0": 2,
    "td3": 3,
    "mle": 4,
    "vaml-1-1": 5,
    "aux-only": 6,
    "printed-1-0": 7,
}


def assign_looks(names: Iterable[str]) -> dict[str, tuple[int, int]]:
    """A colour slot and a dash for every name.

    The paper's variants keep their slot whatever else is shown. A name that only adds to one of
    them (`cvaml-1-0+noaux`, `cvaml-1-0 deterministic`) takes its colour with the next dash; other
    names take the slots used least so far.

    Args:
        names: the names in order of appearance; repetitions are ignored.

    Returns:
        Name -> (slot, dash).
    """
    names = list(dict.fromkeys(names))
    used = [0] * len(PALETTE)
    looks: dict[str, tuple[int, int]] = {}

    def take(name: str, slot: int) -> None:
        looks[name] = (slot, used[slot] % len(DASHES))
        used[slot] += 1

    known = [name for name in names if name in _SLOTS]
    related = [name for name in names if name not in _SLOTS and _base(name) in _SLOTS]
    for name in known + related:
        take(name, _SLOTS[_base(name)])
    for name in names:
        if name not in looks:
            take(name, used.index(min(used)))
    return looks


def _base(name: str) -> str:
    """The variant a name starts with."""
    return name.split(" ")[0].split("+")[0]
