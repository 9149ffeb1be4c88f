"""A real local Ray cluster for the tests."""

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

STORE = 100 * 2**20


@contextmanager
def two_nodes(connect: bool = True) -> Iterator[Any]:
    """A head with one core and a second node with one core and the resource of a GPU.

    Args:
        connect: whether this process joins it now.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX sees that Ray forks, Ray leaves sockets open
        head = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        cluster.second = cluster.add_node(num_cpus=1, num_gpus=1, object_store_memory=STORE)
        if connect:
            ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
            cluster.wait_for_nodes()
        yield cluster
        ray.shutdown()
        cluster.shutdown()


@contextmanager
def killing(cluster: Any, when: Callable[[], bool], within_s: float = 240) -> Iterator[None]:
    """Kills the second node, as a power cut would, once `when()` holds during the block."""
    over = threading.Event()
    killed = []

    def watch() -> None:
        until = time.monotonic() + within_s
        while time.monotonic() < until and not over.wait(0.1):
            if when():
                cluster.remove_node(cluster.second, allow_graceful=False)
                killed.append(True)
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert killed, "the block ended before the node was to be killed"
