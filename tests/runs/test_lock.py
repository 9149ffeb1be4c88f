import os
import signal
import subprocess
import sys

import pytest

from cvaml.runs.lock import is_locked, locked
from cvaml.types import UserError

HOLD = "import sys, time, pathlib; from cvaml.runs.lock import locked\n"
HOLD += "with locked(pathlib.Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"


def test_second_process_is_refused_and_a_killed_one_is_no_obstacle(tmp_path):
    assert not is_locked(tmp_path)
    owner = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "held\n"
        assert is_locked(tmp_path)
        refused = pytest.raises(UserError, match=rf"in use by another process \({owner.pid}\)")
        with refused, locked(tmp_path):
            pass
    finally:
        os.kill(owner.pid, signal.SIGKILL)
        owner.communicate()
    assert not is_locked(tmp_path)
    with locked(tmp_path):
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)
