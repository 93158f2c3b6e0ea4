"""Lab 06, decoding: one file an exercise, in the order of the lab."""

from tinyrl.course.exercises.lab06 import (
    kept_log_mass,
    min_p_kept,
    repetition_penalty,
    replayed_logp,
    tempered_logp,
    top_k_kept,
    top_p_kept,
    unreachable_mass,
)

EXERCISES = (
    tempered_logp.EXERCISE,
    top_k_kept.EXERCISE,
    top_p_kept.EXERCISE,
    min_p_kept.EXERCISE,
    repetition_penalty.EXERCISE,
    kept_log_mass.EXERCISE,
    replayed_logp.EXERCISE,
    unreachable_mass.EXERCISE,
)
