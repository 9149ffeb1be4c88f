"""Everything that the map of the paper names exists, and its defaults are the real ones.

That its tests exist is checked for all pages in `test_docs`.
"""

import dataclasses
import importlib
import re
from pathlib import Path

import pytest

from cvaml.cli import COMMANDS

ROOT = Path(__file__).parents[1]
MAP = (ROOT / "docs" / "paper-map.md").read_text()


def tables() -> list[tuple[list[str], list[list[str]]]]:
    """Header and rows of every table of the page."""
    blocks = re.findall(r"(?:^\|.*\n)+", MAP + "\n", flags=re.MULTILINE)
    parsed = [
        [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in block.splitlines()]
        for block in blocks
    ]
    return [(lines[0], lines[2:]) for lines in parsed]


ROWS = [dict(zip(header, row, strict=True)) for header, rows in tables() for row in rows]
QUOTED = re.findall(r"`([^`]+)`", MAP)
NAMES = sorted({quoted for quoted in QUOTED if re.fullmatch(r"cvaml(\.\w+)+", quoted)})
DEFAULTS = [row for row in ROWS if "field" in row]


def resolve(name: str) -> object:
    """The module, function, class or default of a dataclass field of that name."""
    parts = name.split(".")
    for split in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise  # the module exists, something it needs does not
            continue
        for attribute in parts[split:]:
            found = getattr(found, attribute)
        return found
    raise ImportError(name)


@pytest.mark.parametrize("name", NAMES)
def test_code_exists(name):
    resolve(name)


def test_commands_exist():
    commands = {row["command"] for row in ROWS if "command" in row}
    assert commands == {quoted for quoted in commands if quoted.strip("`").split()[0] == "cvaml"}
    for command in commands:
        assert command.strip("`").split()[1] in COMMANDS


@pytest.mark.parametrize("row", DEFAULTS, ids=lambda row: row["hyper-parameter"])
def test_hyper_parameters_are_the_defaults(row):
    owner, _, field = row["field"].strip("`").rpartition(".")
    (found,) = (f for f in dataclasses.fields(resolve(owner)) if f.name == field)
    if row["here"] != "an option":
        assert found.default == float(row["here"])


@pytest.mark.parametrize("row", [row for row in ROWS if "code" in row], ids=lambda r: r["what"])
def test_every_row_names_its_code_command_and_test(row):
    for column in ("code", "command", "test"):
        assert "`" in row[column] or row[column] == "see below", (column, row)


def test_the_paper_is_covered():
    """Ten equations, five propositions, five lemmas, nine figures, two tables."""
    first = [row["paper"] for row in ROWS if "code" in row]
    for wanted in (
        *(f"({n})" for n in range(1, 11)),
        *(f"Prop. {n}" for n in ("1 [1]", "2.1 [2]", "2.2 [3]", "2.3 [4]", "3.1 [5]")),
        *(f"Lemma {n}" for n in ("3 [1]", "4 [2]", "5 [3]")),
        "Lemma before Prop. 2.3 [4]",
        "Lemma before Prop. 3.1 [5]",
        *(f"Figure {n}" for n in range(1, 10)),
        "Table 1",
        "Table 2",
    ):
        assert wanted in first
