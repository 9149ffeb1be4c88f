import json
import subprocess
import sys

import pytest

from cvaml.runs.folder import RunFolder, provenance
from cvaml.types import UserError


def test_reopening_needs_the_same_settings(tmp_path):
    path = tmp_path / "run"
    RunFolder.open(path, "train", {"seed": 0, "task": ("a",)})
    RunFolder.open(path, "train", {"seed": 0, "task": ("a",)})
    with pytest.raises(UserError, match="seed: 0 there, 1 here"):
        RunFolder.open(path, "train", {"seed": 1, "task": ("a",)})
    with pytest.raises(UserError, match="holds the study 'train', not 'garnet'"):
        RunFolder.open(path, "garnet", {})


CREATE = """
import sys
from cvaml.runs.folder import RunFolder
from cvaml.types import UserError

seed, same, root = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
for number in range(10):
    settings = {"seed": 0 if same == "same" else int(seed)}
    try:
        RunFolder.open(f"{root}/{number}/run", "train", settings)
        print("opened", flush=True)
    except UserError as error:
        print(error, flush=True)
"""


def created_together(root, same):
    """What six processes say that create ten folders at the same moment; rows are folders."""
    arguments = [[sys.executable, "-c", CREATE, str(seed), same, str(root)] for seed in range(6)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(each, **pipes) for each in arguments]
    for process in started:
        assert process.stdout.readline() == "ready\n"
    for process in started:
        process.stdin.write("go\n")
        process.stdin.flush()
    return list(zip(*(p.communicate(timeout=60)[0].splitlines() for p in started), strict=True))


def test_one_of_many_processes_creates_a_folder(tmp_path):
    for number, said in enumerate(created_together(tmp_path, "different")):
        (winner,) = (seed for seed, line in enumerate(said) if line == "opened")
        path = tmp_path / str(number) / "run"
        assert json.loads((path / "config.json").read_text())["settings"] == {"seed": winner}
        for seed, line in enumerate(said):
            refusal = f"{path} holds another configuration (seed: {winner} there, {seed} here)"
            assert seed == winner or line.startswith(refusal)
        assert [found.name for found in path.iterdir()] == ["config.json"]


def test_processes_with_the_same_settings_all_open_the_folder(tmp_path):
    said = created_together(tmp_path, "same")
    assert said == [("opened",) * 6] * 10


def test_folders_are_made_without_hard_links_too(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError

    monkeypatch.setattr("pathlib.Path.hardlink_to", refused)
    folder = RunFolder.open(tmp_path / "run", "train", {"seed": 0})
    assert folder.read_json("config.json")["settings"] == {"seed": 0}


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


def test_a_copy_without_history_is_told_its_commit(monkeypatch):
    monkeypatch.setenv("CVAML_COMMIT", "0123abc")
    monkeypatch.setenv("PATH", "")  # no git at all
    assert provenance()["commit"] == "0123abc"
