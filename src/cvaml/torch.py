"""The loss family for PyTorch: the same functions, shapes, defaults and stopped gradients.

Each function is documented at its namesake in `cvaml.losses`; `torch.func.vmap` batches it.
Values and gradients agree with the JAX functions to 1e-6 in float64.
"""

try:
    import torch
except ImportError as error:  # a clear word instead of a bare ModuleNotFoundError
    raise ImportError("cvaml.torch needs PyTorch: pip install 'cvaml[torch]'") from error

from typing import NamedTuple, TypeAlias

from torch import Tensor
from torch.func import vmap

from cvaml.losses import Correction, variance_weight
from cvaml.losses._checks import check_count, check_length, check_rank
from cvaml.losses.auxiliary import LOG_2PI
from cvaml.losses.correction import check_correction
from cvaml.losses.diagnosis import _Z95, MATTERS_FROM

Scalar: TypeAlias = Tensor | float


def value_targets(rewards: Tensor, discounts: Tensor, values: Tensor, b: int) -> Tensor:
    """The b-step Bellman targets `[T+1-b]` of rewards `[T]`, discounts `[T]`, values `[T+1]`."""
    check_rank("value_targets", rewards=(rewards, 1), discounts=(discounts, 1), values=(values, 1))
    steps = len(rewards)
    check_length(
        "value_targets", discounts=(len(discounts), steps), values=(len(values), steps + 1)
    )
    check_count("value_targets", "b", b, 0)
    if b > steps:
        raise ValueError(f"value_targets: b must be at most {steps} (the rewards given), got {b}")
    count = steps + 1 - b
    targets = values[b:]
    for i in reversed(range(b)):
        targets = rewards[i : i + count] + discounts[i : i + count] * targets
    return targets


def variance_correction(v_model: Tensor, correction: Correction = "unbiased") -> Tensor:
    """What is subtracted from `(v̄ - y)²` to remove the variance of the mean of `v_model [k]`."""
    check_rank("variance_correction", v_model=(v_model, 1))
    k = len(v_model)
    check_correction("variance_correction", correction, k)
    if correction == "none":
        return v_model.new_zeros(())
    shifted = v_model - v_model[0].detach()
    squares = (shifted - shifted.mean()).square().sum()
    return squares / (k * (k - 1)) if correction == "unbiased" else squares / k


def vaml_loss(v_model: Tensor, target: Scalar) -> Tensor:
    """The k-sample value-aware loss of `v_model [k]`, equations 1 and 2."""
    return cvaml_loss(v_model, target, correction="none")


def cvaml_loss(v_model: Tensor, target: Scalar, correction: Correction = "unbiased") -> Tensor:
    """The calibrated value-aware loss of `v_model [k]`, section 4.2."""
    check_rank("cvaml_loss", v_model=(v_model, 1), target=(target, 0))
    check_correction("cvaml_loss", correction, len(v_model))
    return (v_model - _stop(target)).mean().square() - variance_correction(v_model, correction)


def mb_vaml_loss(
    v_model: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
    correction: Correction = "none",
) -> Tensor:
    """The (m,b)-VAML loss of `v_model [k, m]` against `targets [m]`, weighted over the steps."""
    check_rank("mb_vaml_loss", v_model=(v_model, 2), targets=(targets, 1))
    k, m = v_model.shape
    check_correction("mb_vaml_loss", correction, k)
    check_count("mb_vaml_loss", "m", m, 1)
    check_length("mb_vaml_loss", targets=(len(targets), m))
    if weights is None:
        return cvaml_loss(v_model[:, -1], targets[-1], correction)
    check_rank("mb_vaml_loss", weights=(weights, 1))
    check_length("mb_vaml_loss", weights=(len(weights), m))
    losses = vmap(lambda v, y: cvaml_loss(v, y, correction), in_dims=(1, 0))(v_model, targets)
    total = weights.sum()
    return (weights * losses).sum() / torch.where(total == 0, torch.ones_like(total), total)


def itervaml_loss(p_model: Tensor, p_true: Tensor, values: Tensor) -> Tensor:
    """The expectation form of IterVAML on `n` states, equation 1."""
    check_rank("itervaml_loss", p_model=(p_model, 1), p_true=(p_true, 1), values=(values, 1))
    check_length(
        "itervaml_loss", p_model=(len(p_model), len(values)), p_true=(len(p_true), len(values))
    )
    p_true, values = p_true.detach(), values.detach()
    return (p_model.dot(values) - p_true.dot(values)).square()


def expected_vaml_loss(
    p_model: Tensor,
    p_true: Tensor,
    values: Tensor,
    k: int,
    correction: Correction,
    targets: Tensor | None = None,
) -> Tensor:
    """The expectation of the k-sample loss over model and environment draws, in closed form."""
    check_rank("expected_vaml_loss", p_model=(p_model, 1), p_true=(p_true, 1), values=(values, 1))
    weight = variance_weight(k, correction)
    targets = values if targets is None else targets
    states = len(values)
    check_rank("expected_vaml_loss", targets=(targets, 1))
    check_length(
        "expected_vaml_loss",
        p_model=(len(p_model), states),
        p_true=(len(p_true), states),
        targets=(len(targets), states),
    )
    p_true, targets = p_true.detach(), targets.detach()
    mean, target_mean = p_model.dot(values), p_true.dot(targets)
    variance = p_model.dot((values - mean).square())
    target_variance = p_true.dot((targets - target_mean).square())
    return (mean - target_mean).square() + weight * variance + target_variance


def muzero_loss(
    v_model: Tensor,
    rewards: Tensor,
    discounts: Tensor,
    bootstrap: Scalar,
    correction: Correction = "none",
) -> Tensor:
    """The MuZero-style loss, (m, b >= 1)-VAML: the gradient reaches `v_model` only."""
    target = _bootstrapped("muzero_loss", rewards, discounts, bootstrap)
    return cvaml_loss(v_model, target, correction)


def td_loss(v: Scalar, rewards: Tensor, discounts: Tensor, bootstrap: Scalar) -> Tensor:
    """The ordinary TD loss, m = 0 and b >= 1: the gradient reaches `v` only."""
    check_rank("td_loss", v=(v, 0))
    return (v - _bootstrapped("td_loss", rewards, discounts, bootstrap).detach()).square()


def gaussian_nll(mean: Tensor, log_std: Tensor, target: Tensor) -> Tensor:
    """Negative log-density of a diagonal Gaussian, summed over the dimensions."""
    check_rank("gaussian_nll", mean=(mean, 1), log_std=(log_std, 1), target=(target, 1))
    check_length("gaussian_nll", log_std=(len(log_std), len(mean)), target=(len(target), len(mean)))
    scaled = (target.detach() - mean) * (-log_std).exp()
    return (0.5 * scaled.square() + log_std + 0.5 * LOG_2PI).sum()


def gaussian_mixture_nll(means: Tensor, log_stds: Tensor, target: Tensor) -> Tensor:
    """Negative log-density of an equal mixture of k diagonal Gaussians."""
    check_rank("gaussian_mixture_nll", means=(means, 2), log_stds=(log_stds, 2), target=(target, 1))
    nll = vmap(gaussian_nll, in_dims=(0, 0, None))(means, log_stds, target)
    return torch.log(nll.new_tensor(len(means))) - torch.logsumexp(-nll, 0)


def gaussian_entropy(log_std: Tensor) -> Tensor:
    """Differential entropy of a diagonal Gaussian."""
    check_rank("gaussian_entropy", log_std=(log_std, 1))
    return (log_std + 0.5 * (1 + LOG_2PI)).sum()


def squared_error(prediction: Tensor, target: Tensor) -> Tensor:
    """Squared norm of the difference to a latent target, which is data."""
    check_rank("squared_error", prediction=(prediction, 1), target=(target, 1))
    check_length("squared_error", target=(len(target), len(prediction)))
    return (prediction - target.detach()).square().sum()


def reward_loss(prediction: Tensor, reward: Scalar) -> Tensor:
    """Squared error of a predicted reward; the real reward is data."""
    check_rank("reward_loss", prediction=(prediction, 0), reward=(reward, 0))
    return (prediction - _stop(reward)).square()


def hl_gauss_encode(value: Scalar, edges: Tensor, sigma: Scalar) -> Tensor:
    """Spreads a scalar over bins as the masses of a Gaussian around it (HL-Gauss)."""
    check_rank("hl_gauss_encode", value=(value, 0), edges=(edges, 1), sigma=(sigma, 0))
    value = torch.as_tensor(value, dtype=edges.dtype).clamp(edges[0], edges[-1])
    cdf = torch.special.ndtr((edges - value) / sigma)
    return cdf.diff() / (cdf[-1] - cdf[0])


def hl_gauss_decode(probabilities: Tensor, edges: Tensor) -> Tensor:
    """The mean of a distribution over bins."""
    check_rank("hl_gauss_decode", probabilities=(probabilities, 1), edges=(edges, 1))
    check_length("hl_gauss_decode", edges=(len(edges), len(probabilities) + 1))
    return (probabilities * (edges[:-1] + edges[1:]) / 2).sum()


class Estimate(NamedTuple):
    """A mean over the batch with its normal 95 % interval."""

    mean: Tensor
    low: Tensor
    high: Tensor


class CalibrationReport(NamedTuple):
    """What `calibration_report` found; the fields are those of the JAX report."""

    bias: Estimate
    loss: Estimate
    calibrated_loss: Estimate
    variance_share: Estimate
    correction_matters: Tensor


def calibration_report(v_samples: Tensor, targets: Tensor) -> CalibrationReport:
    """Splits the loss of `v_samples [batch, k]` into error and sampling variance."""
    check_rank("calibration_report", v_samples=(v_samples, 2), targets=(targets, 1))
    batch, k = v_samples.shape
    check_length("calibration_report", targets=(len(targets), batch))
    check_correction("calibration_report", "unbiased", k)
    if batch < 2:
        raise ValueError(
            f"calibration_report: an interval needs a batch of at least 2, got {batch}"
        )
    losses, variances = vmap(vaml_loss)(v_samples, targets), vmap(variance_correction)(v_samples)
    mean_loss = losses.mean()
    safe = torch.where(mean_loss == 0, torch.ones_like(mean_loss), mean_loss)
    share = variances.mean() / safe
    variance_share = _estimate(share + (variances - share * losses) / safe)
    return CalibrationReport(
        bias=_estimate((v_samples - targets[:, None]).mean(1)),
        loss=_estimate(losses),
        calibrated_loss=_estimate(losses - variances),
        variance_share=variance_share,
        correction_matters=variance_share.low > MATTERS_FROM,
    )


def _estimate(samples: Tensor) -> Estimate:
    half = _Z95 * samples.std() / len(samples) ** 0.5
    return Estimate(samples.mean(), samples.mean() - half, samples.mean() + half)


def _stop(target: Scalar) -> Scalar:
    return target.detach() if isinstance(target, Tensor) else target


def _bootstrapped(function: str, rewards: Tensor, discounts: Tensor, bootstrap: Scalar) -> Tensor:
    check_rank(function, rewards=(rewards, 1), discounts=(discounts, 1), bootstrap=(bootstrap, 0))
    b = len(rewards)
    check_count(function, "b (the length of rewards)", b, 1)
    values = torch.as_tensor(bootstrap, dtype=rewards.dtype).expand(b + 1)
    return value_targets(rewards, discounts, values, b)[0]
