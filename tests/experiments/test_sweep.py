"""The sweep command, inline: the same results as the plain commands, one cell at a time too."""

import json

import pytest

from cvaml.cli import main
from cvaml.experiments import garnet

SIZE = "--problems 18 --ranks 1 2 --temperatures 1 --steps 50 --states 8 --successors 3"
GARNET = ["garnet", *SIZE.split(), "--variants", "mle", "cvaml-1-0"]
CLIFF = "cliffwalk --ranks 1 2 --temps 0.8 --variants mle --seeds 2 --iterations 2 --steps 5"
FIRST, COUNT = "rank002-problems000000-000016", 4


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    out = tmp_path_factory.mktemp("plain") / "g"
    assert main([*GARNET, "--out", str(out)]) == 0
    return out


def sweep(*arguments, out):
    return main(["sweep", *arguments, "--out", str(out)])


def test_garnet_equals_the_plain_command(plain, tmp_path, capsys):
    assert sweep(*GARNET, out=tmp_path / "g") == 0
    captured = capsys.readouterr()
    assert f"sweep garnet: {COUNT}/{COUNT} cells done, 0 running, 0 failed" in captured.err
    for name in garnet.OUTPUTS:
        if name != "figure.pdf":  # holds the time it was made
            assert (tmp_path / "g" / name).read_bytes() == (plain / name).read_bytes(), name
    settings = [json.loads((f / "config.json").read_text()) for f in (plain, tmp_path / "g")]
    assert settings[0]["settings"] == settings[1]["settings"]
    # Either command finds what the other did.
    assert main([*GARNET, "--out", str(tmp_path / "g")]) == 0
    assert sweep(*GARNET, out=plain) == 0
    assert f"{COUNT}/{COUNT} cells done" in capsys.readouterr().err


def test_cells_one_by_one(plain, tmp_path, capsys):
    out = tmp_path / "g"
    for key in (FIRST, "1", "2", "3"):
        assert sweep(*GARNET, "--cell", key, out=out) == 0
        assert not (out / "results.parquet").exists()
    capsys.readouterr()
    assert sweep(*GARNET, "--list", out=out) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"0\tdone\t{FIRST}"
    assert [line.split("\t")[1] for line in lines] == ["done"] * COUNT
    assert sweep(*GARNET, out=out) == 0  # nothing is left to run, only to merge
    assert (out / "summary.csv").read_bytes() == (plain / "summary.csv").read_bytes()


def test_dry_run_writes_nothing(tmp_path, capsys):
    assert sweep(*GARNET, "--dry-run", out=tmp_path / "g") == 0
    out = capsys.readouterr().out
    assert f"  todo   1 CPU            {FIRST}\n" in out
    assert f"garnet: {COUNT} cells, 0 done, in {tmp_path / 'g'}\n" in out
    assert not (tmp_path / "g").exists()


def test_cliffwalk_equals_the_plain_command(tmp_path):
    assert main([*CLIFF.split(), "--out", str(tmp_path / "plain")]) == 0
    assert sweep(*CLIFF.split(), out=tmp_path / "swept") == 0
    for name in ("results.parquet", "summary.csv", "figure.png", "done.json"):
        assert (tmp_path / "swept" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()


def test_a_failed_cell_is_an_error_with_its_reason(tmp_path, capsys, monkeypatch):
    out = tmp_path / "g"
    assert sweep(*GARNET, "--cell", "0", out=out) == 0
    capsys.readouterr()
    # A folder stands where the cell's file is written first.
    monkeypatch.setattr("secrets.token_hex", lambda _: "0")
    blocked = out / "cells" / ".0-rank001-problems000000-000016.parquet"
    blocked.mkdir()
    assert sweep(*GARNET, out=out) == 1
    err = capsys.readouterr().err
    assert f"cvaml: 1 of {COUNT} cells failed" in err
    assert "rank001-problems000000-000016: IsADirectoryError" in err
    assert f"sweep garnet: {COUNT - 1}/{COUNT} cells done, 0 running, 1 failed" in err
    assert not (out / "results.parquet").exists()
    blocked.rmdir()
    assert sweep(*GARNET, out=out) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--address", "auto"], "--address needs --executor ray"),
        (["--files", "pull"], "--files needs --executor ray"),
        (["--retries", "1"], "--retries needs --executor ray"),
        (["--executor", "ray", "--retries", "-1"], "--retries must be at least 0, got -1"),
        (["--executor", "ray", "--cell", "0"], "--cell runs here"),
        (["--list", "--dry-run"], "give one of --list, --dry-run and --cell"),
        (["--cell", "rank"], "no cell 'rank'; allowed are 0 to 3 and the names that --list"),
        (["--executor", "ray", "--address", "ray://x"], "run on a node of the cluster"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, capsys, arguments, message):
    assert sweep(*GARNET, *arguments, out=tmp_path / "g") == 2
    assert message in capsys.readouterr().err
