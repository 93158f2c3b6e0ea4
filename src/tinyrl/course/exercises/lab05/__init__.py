"""Lab 05, templates, masks, positions: one file an exercise, in the order of the lab."""

from tinyrl.course.exercises.lab05 import (
    end_mask,
    first_difference,
    k3_with_padding,
    kept_loss,
    packed_visible,
    padded_logp,
    position_ids,
    reward_in_step,
)

EXERCISES = (
    first_difference.EXERCISE,
    end_mask.EXERCISE,
    position_ids.EXERCISE,
    packed_visible.EXERCISE,
    padded_logp.EXERCISE,
    kept_loss.EXERCISE,
    reward_in_step.EXERCISE,
    k3_with_padding.EXERCISE,
)
