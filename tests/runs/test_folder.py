import json

import pytest

from cvaml.runs.folder import RunFolder
from cvaml.types import UserError


def test_reopening_needs_the_same_settings(tmp_path):
    path = tmp_path / "run"
    RunFolder.open(path, "train", {"seed": 0, "task": ("a",)})
    RunFolder.open(path, "train", {"seed": 0, "task": ("a",)})
    with pytest.raises(UserError, match="seed: 0 there, 1 here"):
        RunFolder.open(path, "train", {"seed": 1, "task": ("a",)})
    with pytest.raises(UserError, match="holds the study 'train', not 'garnet'"):
        RunFolder.open(path, "garnet", {})


def test_foreign_folder_is_refused_but_leftovers_of_a_kill_are_not(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "thesis.tex").write_text("")
    with pytest.raises(UserError, match="not a run folder"):
        RunFolder.open(tmp_path / "a", "train", {})
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / ".77-config.json").write_text('{"stu')
    RunFolder.open(tmp_path / "b", "train", {})


def test_failed_write_leaves_the_file_before_it(tmp_path):
    folder = RunFolder.open(tmp_path / "run", "train", {})
    folder.write_json("x.json", {"a": 1})
    with pytest.raises(TypeError):
        folder.write_json("x.json", {"a": object()})
    assert folder.read_json("x.json") == {"a": 1}


def test_done_and_start_over(tmp_path):
    folder = RunFolder.open(tmp_path / "run", "train", {})
    assert folder.done is None
    folder.finish({"agent_step": 3})
    assert folder.done == {"agent_step": 3}
    folder.file("metrics").mkdir()
    folder.file("metrics/0.parquet").write_text("")
    folder.file("notes.txt").write_text("mine")
    folder.start_over("train", {"seed": 1})
    assert sorted(path.name for path in folder.path.iterdir()) == ["config.json", "notes.txt"]
    assert folder.done is None
    RunFolder.open(folder.path, "train", {"seed": 1})


def test_configuration_that_is_no_json_is_named(tmp_path):
    folder = RunFolder.open(tmp_path / "run", "train", {})
    folder.file("config.json").write_text("{")
    with pytest.raises(UserError, match=r"cannot read .*config\.json"):
        RunFolder.open(tmp_path / "run", "train", {})


def test_provenance(tmp_path):
    folder = RunFolder.open(tmp_path / "run", "train", {"seed": 0})
    found = json.loads(folder.file("config.json").read_text())
    assert found["settings"] == {"seed": 0}
    assert {"jax", "numpy"} <= set(found["versions"])
