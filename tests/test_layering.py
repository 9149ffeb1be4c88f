"""Imports point one way; every package may use only what stands here."""

import ast
from pathlib import Path

import pytest

import cvaml

ROOT = Path(cvaml.__file__).parent
ALLOWED = {
    "types": set(),
    "losses": {"types"},
    "torch": {"losses"},
    "envs": {"types"},
    "runs": {"types"},
    "calibration": {"losses", "types"},
    "tabular": {"losses", "types"},
    "agent": {"losses", "types", "envs", "runs"},
    "reports": {"runs", "types"},
    "experiments": {
        "losses", "types", "envs", "runs", "calibration", "tabular", "agent", "reports",
        "experiments",
    },
    "__init__": {"losses", "types"},
    "cli": {"types", "experiments"},
}  # fmt: skip


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_parts(path: Path) -> set[str]:
    parts = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [node.module or ""]
            if node.module == "cvaml":
                names = [f"cvaml.{alias.name}" for alias in node.names]
        parts |= {name.split(".")[1] for name in names if name.startswith("cvaml.")}
    return {part for part in parts if (ROOT / part).is_dir() or (ROOT / f"{part}.py").exists()}


FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    part = part_of(path)
    used = imported_parts(path) - {part}
    assert used <= ALLOWED[part], f"{part} must not import {used - ALLOWED[part]}"


def test_every_part_has_a_rule():
    assert {part_of(path) for path in FILES} == set(ALLOWED)
