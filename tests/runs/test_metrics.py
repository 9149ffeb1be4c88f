import numpy as np
import pytest

from cvaml.runs.folder import RunFolder
from cvaml.runs.metrics import COLUMNS, MetricsStore, read_metrics
from cvaml.types import UserError

MEMBERS = [
    {"variant": "cvaml-1-0", "model": "stochastic", "task": "t", "seed": seed} for seed in (3, 4)
]


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    return RunFolder.open(tmp_path / "run", "train", {})


def add(store: MetricsStore, step: int) -> None:
    counters = {"agent_step": step, "env_step": 2 * step, "grad_step": step, "wall_s": 0.5}
    store.add(MEMBERS, counters, {"loss": np.array([step, step + 0.25]), "time/act": 1.0})


def test_rows_come_back_in_order(folder):
    store = MetricsStore(folder)
    add(store, 1)
    store.flush()
    add(store, 2)
    store.flush()
    table = read_metrics(folder.path)
    assert tuple(table.columns) == COLUMNS
    assert len(table) == 8
    loss = table[table.metric == "loss"]
    assert loss.value.tolist() == [1, 1.25, 2, 2.25]
    assert loss.seed.tolist() == [3, 4, 3, 4]
    assert loss.env_step.tolist() == [2, 2, 4, 4]


def test_nan_means_nothing_to_report(folder):
    store = MetricsStore(folder)
    counters = {"agent_step": 1, "env_step": 1, "grad_step": 1, "wall_s": 0.0}
    store.add(MEMBERS, counters, {"train_return": np.array([np.nan, 7.0])})
    store.flush()
    assert read_metrics(folder.path)[["seed", "value"]].to_numpy().tolist() == [[4, 7.0]]


def test_what_is_not_flushed_is_lost_and_nothing_else(folder):
    store = MetricsStore(folder)
    add(store, 1)
    store.flush()
    add(store, 2)
    assert read_metrics(folder.path).agent_step.max() == 1


def test_truncate_forgets_later_rows_and_a_new_store_goes_on(folder):
    store = MetricsStore(folder)
    for step in (1, 2, 3):
        add(store, step)
        if step != 2:
            store.flush()  # the second part straddles the checkpoint at 2
    MetricsStore(folder).truncate(2)
    again = MetricsStore(folder)
    add(again, 3)
    again.flush()
    table = read_metrics(folder.path)
    assert table[table.metric == "loss"].agent_step.tolist() == [1, 1, 2, 2, 3, 3]


def test_kill_between_merging_and_deleting_counts_no_row_twice(folder):
    store = MetricsStore(folder)
    for step in (1, 2):
        add(store, step)
        store.flush()
    parts = {path: path.read_bytes() for path in folder.file("metrics").iterdir()}
    store.truncate()
    for path, content in parts.items():
        path.write_bytes(content)
    assert len(read_metrics(folder.path)) == 8


def test_empty_and_damaged(folder):
    assert read_metrics(folder.path).empty
    MetricsStore(folder).truncate()
    folder.file("metrics").mkdir()
    folder.file("metrics/00000000.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(UserError, match="cannot read the metrics"):
        read_metrics(folder.path)
