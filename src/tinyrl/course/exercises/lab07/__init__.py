"""Lab 07, MoE routers and R3: one file an exercise, in the order of the lab."""

from tinyrl.course.exercises.lab07 import (
    delta_by_flip,
    flip_rate,
    load_balance,
    load_drift,
    replayed_gates,
    router_consistency,
    router_margin,
    top_k_gates,
)

EXERCISES = (
    top_k_gates.EXERCISE,
    router_margin.EXERCISE,
    flip_rate.EXERCISE,
    delta_by_flip.EXERCISE,
    load_drift.EXERCISE,
    replayed_gates.EXERCISE,
    router_consistency.EXERCISE,
    load_balance.EXERCISE,
)
