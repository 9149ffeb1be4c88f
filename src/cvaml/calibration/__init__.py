"""Exact minimisers and regrets: the paper's theory on finite and compact spaces.

    start = Start(p_true=np.array([0.5, 0.5]), values=v, targets=v)
    model_regret([start], k=4, correction="none", models=ALL).excess   # what VAML leaves

A loss is calibrated if every minimiser of it also minimises what it stands for, over the same class
of models or value functions. Everything runs in float64 whatever JAX is set to.
"""

from cvaml.calibration.brute_force import brute_force_regret
from cvaml.calibration.checks import check_discount, check_distribution, check_finite
from cvaml.calibration.compact import (
    CompactNumbers,
    CompactProblem,
    compact_numbers,
    compact_problems,
    deterministic_model,
)
from cvaml.calibration.expectation import expectation_gap, expectation_model
from cvaml.calibration.gradients import update_norms
from cvaml.calibration.lemmas import lemma_numbers, operator_gap, shrink_slopes
from cvaml.calibration.models import (
    ALL,
    DETERMINISTIC,
    FLOOR,
    ModelClass,
    Regret,
    Start,
    class_floor,
    closed_form_regret,
    model_candidates,
    model_regret,
)
from cvaml.calibration.problems import KINDS, Problem, draw_problem
from cvaml.calibration.rollout import rollout_regret
from cvaml.calibration.table import (
    THRESHOLD,
    Cell,
    calibrated,
    cell_regret,
    horizon_cells,
    paper_says_calibrated,
    table_cells,
    value_problem,
)
from cvaml.calibration.theory import Check, auxiliary_checks, compact_checks, finite_checks
from cvaml.calibration.values import (
    ValueMinimisers,
    ValueProblem,
    value_excess,
    value_fixed_point,
    value_floor,
    value_gradient,
    value_minimisers,
)

__all__ = [
    "ALL",
    "DETERMINISTIC",
    "FLOOR",
    "KINDS",
    "THRESHOLD",
    "Cell",
    "Check",
    "CompactNumbers",
    "CompactProblem",
    "ModelClass",
    "Problem",
    "Regret",
    "Start",
    "ValueMinimisers",
    "ValueProblem",
    "auxiliary_checks",
    "brute_force_regret",
    "calibrated",
    "cell_regret",
    "check_discount",
    "check_distribution",
    "check_finite",
    "class_floor",
    "closed_form_regret",
    "compact_checks",
    "compact_numbers",
    "compact_problems",
    "deterministic_model",
    "draw_problem",
    "expectation_gap",
    "expectation_model",
    "finite_checks",
    "horizon_cells",
    "lemma_numbers",
    "model_candidates",
    "model_regret",
    "operator_gap",
    "paper_says_calibrated",
    "rollout_regret",
    "shrink_slopes",
    "table_cells",
    "update_norms",
    "value_excess",
    "value_fixed_point",
    "value_floor",
    "value_gradient",
    "value_minimisers",
    "value_problem",
]
