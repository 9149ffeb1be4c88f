"""Every test that a page of the documentation names exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def named_tests(text: str) -> list[tuple[str, str]]:
    """File and function of every test in backticks; `::name` alone is of the file before it."""
    found, file = [], ""
    for path, name in re.findall(r"`(tests/[\w/]+\.py)?(?:::(\w+))?`", text):
        file = path or file
        if path or name:
            found.append((file, name))
    return found


def test_short_forms_are_understood():
    text = "`tests/a.py`, `::one` and `x`; `tests/b/c.py::two`"
    assert named_tests(text) == [("tests/a.py", ""), ("tests/a.py", "one"), ("tests/b/c.py", "two")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_tests_exist(page):
    for file, name in named_tests(page.read_text()):
        tree = ast.parse((ROOT / file).read_text())
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert not name or name in defined, f"{file}::{name}"
