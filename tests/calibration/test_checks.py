"""Values that no shape annotation can catch get an error that names them."""

import numpy as np
import pytest

from cvaml.calibration import Problem, check_discount, check_distribution, check_finite
from cvaml.calibration.models import ModelClass
from cvaml.types import UserError


def test_a_distribution_passes():
    check_distribution("p", np.array([0.25, 0.75]))
    check_distribution("p", np.array([[0.25, 0.75], [1.0, 0.0]]))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([0.5, np.nan]), r"p must be finite, got nan at index \(1,\)"),
        (np.array([0.5, 0.6]), r"p must sum to 1, got a sum of 1.1$"),
        (np.array([1.5, -0.5]), r"p must not be negative, got -0.5 at index \(1,\)"),
        (np.array([[0.5, 0.5], [0.5, 0.4]]), r"sum of 0.9 in row \(1,\)"),
    ],
)
def test_what_is_no_distribution_is_named(array, message):
    with pytest.raises(UserError, match=message):
        check_distribution("p", array)


def test_infinity_and_discount():
    with pytest.raises(UserError, match="values must be finite, got inf"):
        check_finite("values", np.array([np.inf]))
    with pytest.raises(UserError, match=r"discount must be in \[0, 1\), got 1.0"):
        check_discount(1.0)


def test_a_problem_checks_all_its_parts():
    good = {
        "kernel": np.eye(2),
        "rewards": np.zeros(2),
        "values": np.zeros(2),
        "weights": np.array([0.5, 0.5]),
        "discount": 0.9,
    }
    Problem(**good)
    for name, wrong in {
        "kernel": np.array([[1.0, 0.1], [0.0, 1.0]]),
        "rewards": np.array([0.0, np.nan]),
        "values": np.array([np.inf, 0.0]),
        "weights": np.array([0.5, 0.4]),
        "discount": -0.1,
    }.items():
        with pytest.raises(UserError, match=name):
            Problem(**{**good, name: wrong})


def test_a_noise_floor_of_one_leaves_no_freedom():
    with pytest.raises(UserError, match="noise_floor"):
        ModelClass("x", noise_floor=1.0)
