"""What the compare-runs panel says, in both languages."""

from __future__ import annotations

from tinyrl.course.words import Words

OBJECTIVE, CORRECTION = Words("objective", "目标函数"), Words("correction", "修正")
ANCHOR, ROLLOUT = Words("old logprobs", "旧 logprob"), Words("rollout stack", "采样侧")
STALE, SEEDS = Words("stale steps", "陈旧步数"), Words("seeds", "种子数")
ANCHORS = {
    "recompute": Words("recomputed", "重算"),
    "rollout": Words("rollout's", "采样侧的"),
}
RUN, CANCEL, CLEAR = Words("run", "运行"), Words("cancel", "停止"), Words("clear", "清空")
DOING = Words("{}, seed {}: step {} of {}", "{}，种子 {}：第 {} 步，共 {} 步")
NONE = Words("No run yet: choose, and press run.", "还没有运行：选好后按“运行”。")
CANCELLED = Words("cancelled; run goes on from there", "已停止；再按“运行”会从这里继续")
DONE = Words(
    "{} is trained on {} seeds already: ask for more seeds, or change a control",
    "{} 已在 {} 个种子上训练过：请增加种子数，或改变一个选项",
)
TWICE = Words(
    "With the rollout's old logprobs the ratio holds the weight already: truncating would "
    "count it twice. Choose recomputed old logprobs, a mask, or no correction.",
    "旧 logprob 取自采样侧时，比值里已含这一权重，再截断就会重复计算。请选择重算的旧 "
    "logprob、屏蔽，或不修正。",
)
CLEARS = Words(
    "forgets the arms that were added; pressed again, the first ones too",
    "清除后来添加的各组；再按一次，连最初的也清除",
)
FULL = Words(
    "{} arms are as many as one picture holds: clear first", "最多 {} 组，请先清空"
)
