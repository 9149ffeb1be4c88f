"""The engine of sweeps, run inline."""

import time
from pathlib import Path

import pytest
from cell_cases import cell

from cvaml.runs.board import Board
from cvaml.runs.cells import find_cell, reason_of, run_cells
from cvaml.runs.inline import Inline
from cvaml.types import UserError


@pytest.mark.parametrize("workers", [1, 3])
def test_runs_what_is_not_done(tmp_path, workers):
    (tmp_path / "b").touch()
    cells = [cell("append", name) for name in "abcd"]
    assert run_cells(cells, tmp_path, Inline(workers), "test") == {}
    assert sorted((tmp_path / "calls").read_text().split()) == ["a", "c", "d"]
    assert run_cells(cells, tmp_path, Inline(workers), "test") == {}
    assert len((tmp_path / "calls").read_text().split()) == 3


@pytest.mark.parametrize("workers", [1, 2])
def test_failures_are_collected_and_the_others_finish(tmp_path, workers, capsys):
    cells = [cell("fail", "bad"), cell("leave_nothing", "lazy"), cell("write", "good")]
    failed = run_cells(cells, tmp_path, Inline(workers), "test")
    assert (tmp_path / "good").exists()
    assert set(failed) == {"bad", "lazy"}
    assert failed["bad"].startswith("ValueError: no such luck at all (cell_cases.py, line ")
    assert failed["lazy"].startswith("RuntimeError: cell_cases:leave_nothing left no lazy")
    err = capsys.readouterr().err
    assert "bad failed: ValueError: no such luck" in err
    assert err.splitlines()[-1].startswith("test: 1/3 cells done, 0 running, 2 failed, ")


def test_what_was_begun_goes_on(tmp_path):
    cells = [cell("fail_once", "c", folder=True)]
    assert set(run_cells(cells, tmp_path, Inline(), "test")) == {"c"}
    assert run_cells(cells, tmp_path, Inline(), "test") == {}
    assert (tmp_path / "c" / "done").exists()


def test_an_interrupt_ends_the_other_threads(tmp_path):
    cells = [cell("endless", "long"), cell("interrupt", "ctrl-c"), cell("write", "never")]
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        # the thread of the interrupted cell may still take the last one
        run_cells(cells[::-1], tmp_path, Inline(2), "test")
    assert time.monotonic() - start < 20
    assert not (tmp_path / "long").exists()


def test_overhead_of_a_thousand_cells(tmp_path, capsys):
    cells = [cell("write", f"cell{number}") for number in range(1000)]
    for workers in (1, 2):
        root = tmp_path / str(workers)
        root.mkdir()
        start = time.monotonic()
        assert run_cells(cells, root, Inline(workers), "test") == {}
        assert (time.monotonic() - start) / len(cells) < 0.05
        assert len(list(root.iterdir())) == 1000
    assert "test: 1000/1000 cells done, 0 running, 0 failed" in capsys.readouterr().err


def test_cells_are_found_by_name_and_number():
    cells = [cell("write", name) for name in ("a", "b")]
    assert find_cell(cells, "b") is cells[1]
    assert find_cell(cells, "0") is cells[0]
    with pytest.raises(UserError, match="no cell 'c'; allowed are 0 to 1"):
        find_cell(cells, "c")
    with pytest.raises(UserError, match="the same name"):
        run_cells([cells[0], cells[0]], Path(), Inline(), "test")


def test_board_counts_and_estimates(capsys):
    board = Board("sweep x", 10, dict.fromkeys("abcdef", 2.0) | {"g": 8.0})
    for name in "abc":
        board.started(name)
    board.done("a")
    board.done("b")
    board.fail("c", "why")
    board.started("d")
    board.retry("d", "its node died")
    board.started("e")
    board.started("a")  # late news
    # 4 of 20 units done in 60 s, 2 failed: 14 left at 4 a minute
    line = "sweep x: 5/10 cells done, 1 running, 1 failed, 1 retried, 2/min, 3:30 left"
    assert board.line(60.0) == line
    head, body, running = board.table(board.start + 60.0)
    columns = ["done", "running", "waiting", "failed", "retried", "rate", "left"]
    assert head.split() == ["sweep", "x", *columns]
    assert body.split() == ["5/10", "1", "3", "1", "1", "2/min", "3:30"]
    assert running.split()[1] == "e"
    assert "sweep x: d runs again: its node died" in capsys.readouterr().err


def test_a_live_table_is_redrawn_in_place(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with Board("s", 2, {"a": 1.0, "b": 1.0}) as board:
        board.started("a")  # two lines and one running cell
        board.done("a")  # too soon to be shown
    err = capsys.readouterr().err
    assert err.count("\x1b[3A\x1b[J") == 1
    assert err.splitlines()[-1].split()[:2] == ["1/2", "0"]


def test_reason_without_a_place():
    assert reason_of(ValueError("x")) == "ValueError: x"
