"""Strictness for every test: shapes and types are checked, rank promotion raises."""

import jaxtyping

# Must come before the package is imported: it decorates every function as it loads.
jaxtyping.install_import_hook("cvaml", "beartype.beartype")

import matplotlib  # noqa: E402

matplotlib.use("Agg")

import jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def x64():
    """Double precision inside one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def generator() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def unchecked():
    """Turns the type checker off inside one test, to see the package's own errors."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
