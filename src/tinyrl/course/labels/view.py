"""Words for what the loss sees: no logprob changes, the update does."""

from __future__ import annotations

from tinyrl.course.labels.label import Label
from tinyrl.course.words import Words

VIEW: dict[str, Label] = {
    "view.anchor": Label(
        Words("old logprobs", "old logprob 的来源"),
        Words("whose logprobs are the old ones in the ratio: recomputed by the trainer, or "
              "as the rollout reported them",
              "比值中 old logprob 用谁的：训练端重算，或采样端上报"),
        Words("bypass mode of verl and OpenRLHF, slime's --use-rollout-logprobs "
              "(RLinf#1534)",
              "verl 与 OpenRLHF 的 bypass 模式，slime 的 --use-rollout-logprobs"
              "（RLinf#1534）"),
        Words("tokens are clipped before anything has been learned",
              "尚未学习就有 token 被裁剪"),
        Words("recompute, or a clip that is not centred on another policy",
              "重算，或不以另一策略为中心裁剪"),
    ),
    "view.aggregation": Label(
        Words("averaging", "聚合方式"),
        Words("mean over all tokens, or over each response first",
              "对全部 token 取均值，或先在每条回答内取均值"),
        Words("GRPO against DAPO; loss_agg_mode of verl, loss_type of TRL (trl#6369)",
              "GRPO 与 DAPO；verl 的 loss_agg_mode，TRL 的 loss_type（trl#6369）"),
        Words("no delta at all; long and short responses weigh otherwise",
              "delta 不变；长短回答的权重改变"),
        Words("the same in both runs that are compared", "被比较的两次训练用同一种"),
    ),
}  # fmt: skip
"""By path of `objectives.LossView`, as "view" and its field."""
