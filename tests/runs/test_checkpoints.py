import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cvaml.runs.arrays import BrokenFileError, host_copy, restore_like
from cvaml.runs.checkpoints import CheckpointError, Checkpoints, Rows


class State(NamedTuple):
    weights: jax.Array
    half: jax.Array
    key: jax.Array
    count: np.ndarray
    empty: np.ndarray
    activation: object = jnp.tanh


def state(seed: int) -> State:
    key = jax.random.key(seed)
    return State(
        jax.random.normal(key, (3, 4)),
        jnp.arange(5, dtype=jnp.bfloat16),
        key,
        np.array(seed),
        np.zeros((0, 2)),
    )


def rows(start: int, stop: int, oldest: int = 0) -> Rows:
    return Rows(start, {"obs": np.arange(start, stop, dtype=np.float32)[:, None]}, oldest)


def save(checkpoints: Checkpoints, step: int, new: Rows | None = None) -> None:
    checkpoints.save(step, host_copy(state(step)), {"wall_s": 0.1 * step}, new)
    checkpoints.wait()


def test_round_trip_is_exact(tmp_path):
    save(Checkpoints(tmp_path), 7)
    found = Checkpoints(tmp_path).restore()
    assert found is not None
    assert found.meta["wall_s"] == 0.1 * 7
    restored = restore_like(state(0), found.arrays)
    np.testing.assert_array_equal(restored.weights, state(7).weights)
    np.testing.assert_array_equal(restored.half, state(7).half)
    assert restored.half.dtype == jnp.bfloat16
    assert jnp.array_equal(jax.random.normal(restored.key), jax.random.normal(state(7).key))
    assert restored.count == 7
    assert restored.count.dtype == state(7).count.dtype
    assert restored.empty.shape == (0, 2)
    assert restored.activation is jnp.tanh


def test_copy_survives_donation():
    x = jnp.arange(4.0)
    copy = host_copy({"x": x})
    jax.jit(lambda a: a + 1, donate_argnums=0)(x)
    np.testing.assert_array_equal(copy["['x']"], np.arange(4.0))


def test_other_shape_is_named():
    arrays = host_copy({"a": np.zeros(3)})
    with pytest.raises(BrokenFileError, match=r"array \['a'\] is of shape \(3,\), expected \(4,\)"):
        restore_like({"a": np.zeros(4)}, arrays)
    with pytest.raises(BrokenFileError, match=r"array \['b'\] is missing"):
        restore_like({"b": np.zeros(4)}, arrays)


def test_last_two_are_kept_and_what_they_cost_is_told(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2, 3):
        save(checkpoints, step)
    assert checkpoints.steps() == [2, 3]
    written = checkpoints.written()
    assert [w.step for w in written] == [1, 2, 3]
    assert all(w.bytes > 0 and w.seconds > 0 for w in written)
    assert checkpoints.written() == []


def test_growing_data_is_written_once(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for stop in (3, 5, 9):
        save(checkpoints, stop, rows({3: 0, 5: 3, 9: 5}[stop], stop))
    chunks = sorted(p.name for p in (tmp_path / "checkpoints/rows").iterdir())
    assert chunks == ["0000000000-0000000003", "0000000003-0000000005", "0000000005-0000000009"]
    found = Checkpoints(tmp_path).restore()
    assert found is not None
    merged = np.concatenate([chunk.arrays["obs"] for chunk in found.rows])
    np.testing.assert_array_equal(merged[:, 0], np.arange(9))


def test_overwritten_rows_are_dropped_when_no_checkpoint_needs_them(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for i in range(5):  # a ring of 10 rows
        save(checkpoints, i + 1, rows(4 * i, 4 * i + 4, max(0, 4 * i + 4 - 10)))
    found = checkpoints.restore()
    assert found is not None
    assert [chunk.start for chunk in found.rows] == [8, 12, 16]
    assert len(list((tmp_path / "checkpoints/rows").iterdir())) == 4  # the kept one before: 4..16


@pytest.mark.parametrize("how", ["truncate", "flip", "delete", "meta", "chunk"])
def test_broken_newest_falls_back_with_a_warning(tmp_path, how):
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 1, rows(0, 2))
    save(checkpoints, 2, rows(2, 4))
    newest = tmp_path / "checkpoints/0000000002"
    if how == "chunk":
        newest = tmp_path / "checkpoints/rows/0000000002-0000000004"
    data = max((p for p in newest.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    if how == "meta":
        (newest / "meta.json").write_text("{")
    elif how == "delete":
        data.unlink()
    elif how == "flip":
        content = bytearray(data.read_bytes())
        content[len(content) // 2] ^= 1
        data.write_bytes(content)
    else:
        data.write_bytes(data.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="checkpoint 2 is broken"):
        found = checkpoints.restore()
    assert found is not None
    assert found.step == 1
    assert [chunk.start for chunk in found.rows] == [0]
    save(checkpoints, 2, rows(2, 4))  # goes on as if the broken one had never been
    assert checkpoints.restore() is not None


def test_nothing_whole_is_an_error_and_nothing_at_all_is_not(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.restore() is None
    save(checkpoints, 1)
    (tmp_path / "checkpoints/0000000001/manifest.json").unlink()
    with (
        pytest.warns(UserWarning, match="checkpoint 1 is broken"),
        pytest.raises(CheckpointError, match="none of the checkpoints"),
    ):
        checkpoints.restore()


def test_no_pickles_anywhere(tmp_path):
    save(Checkpoints(tmp_path), 1, rows(0, 2))
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert not path.name.endswith((".pkl", ".pickle"))
            assert not path.read_bytes().startswith(b"\x80\x04")


WRITE = """
import sys, numpy as np
from pathlib import Path
from cvaml.runs.checkpoints import Checkpoints, Rows
checkpoints = Checkpoints(Path(sys.argv[1]))
size = int(sys.argv[3])
noise = np.random.default_rng(0).standard_normal(size, dtype=np.float32)
for step in range(int(sys.argv[2]), 10_000):
    rows = Rows(step - 1, {"x": np.full((1, 3), step)})
    checkpoints.save(step, {"w": noise + step}, {}, rows)
    checkpoints.wait()
    print(step, flush=True)
"""


def start_writer(folder: Path, first: int, size: int, **options) -> subprocess.Popen:
    command = [sys.executable, "-c", WRITE, str(folder), str(first), str(size)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)


@pytest.mark.parametrize("marker", [".writing-0*", "rows/.writing-*"])
def test_kill_during_a_write_leaves_the_checkpoint_before(tmp_path, marker):
    process = start_writer(tmp_path, 1, 2_000_000)
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    folder, deadline = tmp_path / "checkpoints", time.monotonic() + 60
    while not any(folder.glob(marker)) and time.monotonic() < deadline:
        pass
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    found = Checkpoints(tmp_path).restore()
    assert found is not None
    assert found.step >= 1
    assert [int(chunk.arrays["x"][0, 0]) for chunk in found.rows] == list(range(1, found.step + 1))
    assert not list(folder.rglob(".writing-*"))


FULL = """
mount -t tmpfs -o size=12m none "$1" || exit 77
exec "$2" -c "$3" "$1" 1 1000000
"""


def test_full_disk_is_told_and_earlier_checkpoints_stay(tmp_path):
    """A real full disk: a 12 MB file system for 4 MB checkpoints, two of which are kept."""
    check = "from cvaml.runs.checkpoints import *; from pathlib import Path\n"
    script = WRITE.replace("    checkpoints.wait()", "    wait()") + ""
    script = script.replace(
        "for step",
        f"""{check}
def wait():
    try:
        checkpoints.wait()
    except CheckpointError as error:
        print(error)
        print("kept", checkpoints.steps(), checkpoints.restore().step)
        sys.exit(3)
Path(sys.argv[1], "filler").write_bytes(b"0" * 2_500_000)
for step""",
        1,
    )
    command = ["unshare", "-rm", "sh", "-c", FULL, "sh", str(tmp_path), sys.executable, script]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except FileNotFoundError:
        pytest.skip("no unshare on this machine")
    if done.returncode in (1, 77):
        pytest.skip(f"no private file system on this machine: {done.stderr}")
    assert done.returncode == 3, done.stderr
    assert "is full" in done.stdout
    assert "earlier checkpoints are intact" in done.stdout
    assert "kept [1, 2] 2" in done.stdout


def test_file_limit_in_the_middle_of_a_write_is_told(tmp_path):
    """The space check cannot see a quota: the write itself fails, here by a limit on file size."""
    import resource

    limit = 300_000
    script = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    script += f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, resource.RLIM_INFINITY))\n"
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    command = [sys.executable, "-c", script + WRITE, str(tmp_path), "1", "1000000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "CheckpointError" in done.stderr
    assert "intact" in done.stderr
    assert Checkpoints(tmp_path).restore() is None
