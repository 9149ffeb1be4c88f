"""`cvaml report` as a user calls it."""

import sys
from pathlib import Path

import numpy as np
import pytest

from cvaml.cli import main
from cvaml.reports.build import report_sections
from cvaml.reports.demo import demo_folder
from cvaml.reports.reading import read_runs

sys.path.insert(0, str(Path(__file__).parents[1] / "reports"))

from fake_runs import agent_run, tabular_run


def test_one_page_from_two_folders(tmp_path, capsys):
    agent_run(tmp_path / "a", tasks=("dog-run",), seeds=1)
    tabular_run(tmp_path / "g", temperatures=(1.0,))
    out = tmp_path / "report"
    assert main(["report", str(tmp_path / "a"), str(tmp_path / "g"), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "Continuous control" in said
    assert "cvaml-1-0" in said
    assert f"{out / 'index.html'}" in said
    assert (out / "figures" / "tasks.png").exists()


def test_claims_can_be_given(tmp_path):
    tabular_run(tmp_path / "g", ranks=(2,), temperatures=(1.0,))
    (tmp_path / "c.md").write_text("| # | verdict |\n|---|---|\n| C99 | holds |\n")
    arguments = ["report", str(tmp_path / "g"), "--claims", str(tmp_path / "c.md")]
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 0
    assert "C99" in (tmp_path / "out" / "index.html").read_text()


def test_the_seed_decides_the_intervals(tmp_path):
    agent_run(tmp_path / "a", tasks=("dog-run",), seeds=3)
    pages = []
    for seed in ("0", "1"):
        out = tmp_path / f"out{seed}"
        arguments = ["report", str(tmp_path / "a"), "--seed", seed, "--out", str(out)]
        assert main(arguments) == 0
        pages.append((out / "index.html").read_text())
    assert pages[0] != pages[1]


@pytest.mark.slow
def test_the_demo_shows_the_shipped_results(tmp_path, capsys):
    assert main(["report", "--demo", "--out", str(tmp_path / "demo")]) == 0
    said = capsys.readouterr().out
    assert "Garnet problems" in said
    page = (tmp_path / "demo" / "index.html").read_text()
    assert "Calibration" in page
    assert (tmp_path / "demo" / "figures" / "loss-sketch.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give at least one run folder, or --demo"),
        (["missing"], "missing does not exist"),
        (["empty"], "holds no run"),
        (["broken"], "cannot read"),
        (["run", "--seed", "-1"], "--seed must be at least 0"),
        (["run", "--out", "file"], "--out file is a file"),
        (["run", "--out", "run"], "is a run folder"),
        (["run", "--claims", "missing.md"], "cannot read the claims missing.md"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    tabular_run(tmp_path / "run", ranks=(2,), temperatures=(1.0,))
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    (tmp_path / "file").write_text("")
    assert main(["report", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "report").exists()


def test_the_demo_has_every_study():
    sections = report_sections(read_runs([demo_folder()]), np.random.default_rng(0))
    titles = {section.title for section in sections}
    assert {"Garnet problems", "Cliffwalk", "Calibration", "Configurations"} <= titles
    assert all(len(section.items) for section in sections)
