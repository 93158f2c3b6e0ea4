"""Lab 10, measuring and monitoring: one file an exercise, in the order of the lab."""

from tinyrl.course.exercises.lab10 import (
    alarm_on,
    bootstrap_interval,
    delta_quantile,
    dropped_shares,
    ess_and_chi2,
    reward_correlation,
    top_k_drift,
    two_causes,
)

EXERCISES = (
    delta_quantile.EXERCISE,
    two_causes.EXERCISE,
    ess_and_chi2.EXERCISE,
    reward_correlation.EXERCISE,
    dropped_shares.EXERCISE,
    top_k_drift.EXERCISE,
    bootstrap_interval.EXERCISE,
    alarm_on.EXERCISE,
)
