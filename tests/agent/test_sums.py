"""Metrics are summed on the device; the first bad number is remembered with its step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cvaml.agent.sums import Sums, add_metrics, first_bad, means


def added(*rows):
    """Sums of two members after rows of {name: [a, b]}, one per step."""
    sums = Sums.start(2)
    add = jax.vmap(add_metrics, in_axes=(0, 0, None))
    for step, row in enumerate(rows):
        sums = add(sums, {name: jnp.array(x) for name, x in row.items()}, jnp.int32(step))
    return jax.device_get(sums)


def test_means_by_hand():
    found = means(added({"value": [1.0, 2.0]}, {"value": [3.0, 6.0], "q_gap": [5.0, 7.0]}))
    assert found.keys() == {"value", "q_gap"}
    np.testing.assert_array_equal(found["value"], [2.0, 4.0])
    np.testing.assert_array_equal(found["q_gap"], [5.0, 7.0])


def test_first_bad_number_is_named_and_losses_come_before_gradients():
    nan, fine = float("nan"), {"loss/critic": [1.0, 1.0], "gradient/actor": [1.0, 1.0]}
    bad = {"loss/critic": [1.0, nan], "gradient/actor": [float("inf"), nan]}
    assert first_bad(added(fine, fine)) is None
    assert first_bad(added(fine, bad, fine)) == (1, 1, "loss/critic")
    only = {"loss/critic": [1.0, 1.0], "gradient/actor": [1.0, nan]}
    assert first_bad(added(fine, fine, only, bad)) == (2, 1, "gradient/actor")


def test_unknown_names_are_refused():
    with pytest.raises(KeyError, match="no_such_metric"):
        added({"no_such_metric": [1.0, 1.0]})
