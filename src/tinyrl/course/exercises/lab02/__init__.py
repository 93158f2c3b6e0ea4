"""Lab 02, exposure bias: one file an exercise, in the order of the lab."""

from tinyrl.course.exercises.lab02 import (
    expert_targets,
    free_running_error,
    hazard,
    history_loss_mask,
    local_error_split,
    scheduled_inputs,
    shift_targets,
    wrong_by_place,
)

EXERCISES = (
    shift_targets.EXERCISE,
    wrong_by_place.EXERCISE,
    hazard.EXERCISE,
    free_running_error.EXERCISE,
    local_error_split.EXERCISE,
    scheduled_inputs.EXERCISE,
    expert_targets.EXERCISE,
    history_loss_mask.EXERCISE,
)
