import json
import time

from cvaml.runs.folder import RunFolder
from cvaml.runs.listing import find_runs
from cvaml.runs.lock import locked


def test_states(tmp_path):
    done = RunFolder.open(tmp_path / "a/done", "train", {"seed": 1})
    done.finish({"agent_step": 40})
    stopped = RunFolder.open(tmp_path / "stopped", "train", {})
    stopped.file("checkpoints/0000000020").mkdir(parents=True)
    stopped.file("checkpoints/0000000010").mkdir()
    running = RunFolder.open(tmp_path / "running", "garnet", {})
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/config.json").write_text("{")
    (tmp_path / "empty").mkdir()
    with locked(running.path):
        found = {run.path: (run.study, run.state, run.step) for run in find_runs(tmp_path)}
    assert found == {
        "a/done": ("train", "done", 40),
        "broken": ("", "broken", None),
        "running": ("garnet", "running", None),
        "stopped": ("train", "stopped", 20),
    }
    assert [run.path for run in find_runs(done.path)] == ["."]


def test_ten_thousand_runs_in_two_seconds(tmp_path):
    config = json.dumps({"study": "train", "settings": {"seed": 0, "agent": {"x": [1] * 50}}})
    for i in range(10_000):
        folder = tmp_path / f"{i // 100:03}" / f"{i % 100:02}"
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "config.json").write_text(config)
        if i % 2:
            (folder / "done.json").write_text('{"agent_step": 5}')
    start = time.process_time()
    assert sum(run.state == "done" for run in find_runs(tmp_path)) == 5_000
    assert time.process_time() - start < 2
