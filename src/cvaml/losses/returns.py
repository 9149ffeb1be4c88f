"""Bootstrapped value targets: the b-step Bellman operator applied along one real trajectory."""

from jaxtyping import Array, Float

from cvaml.losses._checks import check_count, check_length, check_rank


def value_targets(
    rewards: Float[Array, " T"],
    discounts: Float[Array, " T"],
    values: Float[Array, " T_plus_1"],
    b: int,
) -> Float[Array, " T_plus_1_minus_b"]:
    r"""The sampled b-step Bellman targets of every state that has b successors.

    $$y_t = \sum_{i=0}^{b-1} \Bigl(\prod_{j=0}^{i-1} d_{t+j}\Bigr) r_{t+i}
            + \Bigl(\prod_{j=0}^{b-1} d_{t+j}\Bigr) V_\mathrm{tar}(x_{t+b})$$

    This is $[\mathcal{T}^b V_\mathrm{tar}](x_t)$ of section 2, estimated from one trajectory.
    With b = 0 it is `values` itself. A discount of 0 ends the sum: that is how a
    termination is written, while a truncated episode keeps its discount and bootstraps.

    Args:
        rewards: `r_t`, received on leaving state t.
        discounts: `d_t = γ · (1 - terminated_t)`, applied to everything after `r_t`.
        values: `V_tar(x_t)` for the T + 1 states of the trajectory.
        b: number of rewards before the bootstrap, from 0 to T.

    Returns:
        The target of each of the states 0 .. T - b. No gradient is stopped here.
    """
    check_rank("value_targets", rewards=(rewards, 1), discounts=(discounts, 1), values=(values, 1))
    steps = rewards.shape[0]
    check_length(
        "value_targets",
        discounts=(discounts.shape[0], steps),
        values=(values.shape[0], steps + 1),
    )
    check_count("value_targets", "b", b, 0)
    if b > steps:
        raise ValueError(f"value_targets: b must be at most {steps} (the rewards given), got {b}")
    count = steps + 1 - b
    targets = values[b:]
    for i in reversed(range(b)):
        targets = rewards[i : i + count] + discounts[i : i + count] * targets
    return targets
