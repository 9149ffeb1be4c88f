"""The claims of the paper with their verdicts, read from the tables of a Markdown file."""

import re
from importlib import resources
from pathlib import Path

from cvaml.reports.charts import Cell, Section, Table
from cvaml.types import UserError

_NUMBER = re.compile(r"\**\s*C\d+\b")
_ESCAPE = re.compile(r"\\([\\`*_{}\[\]()#+.!|<>-])")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")


def read_claims(path: Path | None = None) -> str:
    """The Markdown text of the claims.

    Args:
        path: a file; None takes the package's own, which is `docs/claims.md` of the project.

    Returns:
        The text; empty if None was given and the package has none.

    Raises:
        UserError: the given file cannot be read.
    """
    if path is not None:
        try:
            return path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read the claims {path}: {error}") from None
    shipped = resources.files("cvaml.reports").joinpath("claims.md")
    return shipped.read_text() if shipped.is_file() else ""


def claims_section(markdown: str) -> Section | None:
    """The claims as one sortable table.

    Args:
        markdown: text with one or more tables whose rows start with a claim's number (C1, C2,
            ...); columns of different tables are matched by their headings.

    Returns:
        The section, or None if no table has such rows.
    """
    columns: list[str] = []
    records: list[dict[str, str]] = []
    for header, rows in _tables(markdown):
        claims = [row for row in rows if row and _NUMBER.match(row[0])]
        if claims:
            columns += [name for name in header if name not in columns]
            records += [dict(zip(header, row, strict=False)) for row in claims]
    if not records:
        return None
    rows_out: list[list[Cell]] = [[record.get(name) for name in columns] for record in records]
    table = Table(
        "claims-table",
        "Claims and verdicts",
        "What the paper claims, and what the commands of this project measured.",
        columns,
        rows_out,
    )
    return Section("claims", "The paper's claims", "", [table])


def _tables(markdown: str) -> list[tuple[list[str], list[list[str]]]]:
    """The tables of a Markdown text as header and rows."""
    found: list[tuple[list[str], list[list[str]]]] = []
    block: list[list[str]] = []
    for line in [*markdown.splitlines(), ""]:
        if line.strip().startswith("|"):
            block.append(_split(line))
            continue
        if len(block) > 2 and all(re.fullmatch(r":?-+:?", cell) for cell in block[1]):
            found.append((block[0], block[2:]))
        block = []
    return found


def _split(line: str) -> list[str]:
    """The cells of one line, without the backslashes of Markdown; links keep their text only."""
    cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
    return [_ESCAPE.sub(r"\1", _LINK.sub(r"\1", cell)).strip() for cell in cells]
