"""`cvaml.torch` against `cvaml.losses`: values and gradients to 1e-6 in float64."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cvaml import losses

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `torch`)")

R = np.random.default_rng(0)
V4, V32, Y3 = R.normal(size=4), R.normal(size=(3, 2)), R.normal(size=3)
W2, Y2 = np.array([1.0, 3.0]), R.normal(size=2)
P, Q, S = R.dirichlet(np.ones(5)), R.dirichlet(np.ones(5)), R.normal(size=5)
T5, D2, R2 = R.normal(size=5), np.array([0.9, 0.5]), R.normal(size=2)
EDGES = np.linspace(-3, 3, 8)

# function, arguments with a gradient, arguments without (static or data)
CASES = [
    ("value_targets", (R2, D2, Y3), {"b": 0}),
    ("value_targets", (R2, D2, Y3), {"b": 2}),
    ("vaml_loss", (V4, Y2[0]), {}),
    *(("cvaml_loss", (V4, Y2[0]), {"correction": c}) for c in ("unbiased", "printed", "none")),
    *(("variance_correction", (V4,), {"correction": c}) for c in ("unbiased", "printed", "none")),
    ("mb_vaml_loss", (V32, Y2), {}),
    ("mb_vaml_loss", (V32, Y2, W2), {"correction": "unbiased"}),
    ("mb_vaml_loss", (V32, Y2, 0 * W2), {"correction": "printed"}),
    ("itervaml_loss", (P, Q, S), {}),
    *(
        ("expected_vaml_loss", (P, Q, S), {"k": 4, "correction": c})
        for c in ("unbiased", "printed", "none")
    ),
    ("muzero_loss", (V4, R2, D2, Y2[0]), {}),
    ("muzero_loss", (V4, R2, D2, Y2[0]), {"correction": "unbiased"}),
    ("td_loss", (Y2[1], R2, D2, Y2[0]), {}),
    ("gaussian_nll", (P, S, Q), {}),
    ("gaussian_mixture_nll", (V32, V32[::-1].copy(), Y2), {}),
    ("gaussian_entropy", (S,), {}),
    ("squared_error", (P, S), {}),
    ("reward_loss", (Y2[0], Y2[1]), {}),
    ("hl_gauss_encode", (Y2[0], EDGES, np.float64(0.6)), {}),
    ("hl_gauss_decode", (R.dirichlet(np.ones(7)), EDGES), {}),
]


@pytest.mark.parametrize(("name", "arrays", "static"), CASES)
def test_equal_values_and_gradients(x64, name, arrays, static):
    import cvaml.torch

    inputs = [torch.tensor(array, requires_grad=True) for array in arrays]
    found = getattr(cvaml.torch, name)(*inputs, **static)
    weights = np.cos(np.arange(found.numel())).reshape(found.shape)
    (found * torch.tensor(weights)).sum().backward() if found.requires_grad else None

    def total(*jax_arrays):
        return jnp.sum(getattr(losses, name)(*jax_arrays, **static) * jnp.asarray(weights))

    arguments = [jnp.asarray(array) for array in arrays]
    expected = getattr(losses, name)(*arguments, **static)
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-6, atol=1e-9)
    gradients = jax.grad(total, argnums=tuple(range(len(arrays))))(*arguments)
    for tensor, gradient in zip(inputs, gradients, strict=True):
        mine = np.zeros(tensor.shape) if tensor.grad is None else tensor.grad.numpy()
        np.testing.assert_allclose(mine, gradient, rtol=1e-6, atol=1e-9)


def test_calibration_report(x64):
    import cvaml.torch

    samples, targets = R.normal(size=(50, 3)), R.normal(size=50)
    mine = cvaml.torch.calibration_report(torch.tensor(samples), torch.tensor(targets))
    theirs = losses.calibration_report(jnp.asarray(samples), jnp.asarray(targets))
    for field in ("bias", "loss", "calibrated_loss", "variance_share"):
        np.testing.assert_allclose(getattr(mine, field), getattr(theirs, field), rtol=1e-6)
    assert bool(mine.correction_matters) == bool(theirs.correction_matters)


def test_vmap_batches_the_losses():
    import cvaml.torch

    batch = torch.func.vmap(cvaml.torch.cvaml_loss)(torch.tensor(V32), torch.tensor(Y3))
    single = [
        cvaml.torch.cvaml_loss(torch.tensor(v), float(y)) for v, y in zip(V32, Y3, strict=True)
    ]
    np.testing.assert_allclose(batch, single)


def test_errors_are_the_same(unchecked):
    import cvaml.torch

    with pytest.raises(ValueError, match="k must be at least 2"):
        cvaml.torch.cvaml_loss(torch.zeros(1), 0.0)
    with pytest.raises(ValueError, match="v_model must have 1 dimension"):
        cvaml.torch.vaml_loss(torch.zeros(2, 2), 0.0)


def test_every_loss_has_its_twin_with_the_same_arguments():
    import cvaml.torch

    functions = [n for n in losses.__all__ if n.endswith(("_loss", "_nll", "encode", "decode"))]
    for name in [*functions, "value_targets", "variance_correction", "calibration_report"]:
        mine = inspect.signature(getattr(cvaml.torch, name)).parameters
        theirs = inspect.signature(getattr(losses, name)).parameters
        assert list(mine) == list(theirs)
        assert [p.default for p in mine.values()] == [p.default for p in theirs.values()]
