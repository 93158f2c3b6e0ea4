"""What the compare-runs panel says, in both languages."""

from __future__ import annotations

import re

from tinyrl.course.words import Words, language

OBJECTIVE, CORRECTION = Words("objective", "目标函数"), Words("correction", "修正")
ANCHOR, ROLLOUT = Words("old logprobs", "旧 logprob"), Words("rollout stack", "采样端")
STALE, SEEDS = Words("stale steps", "滞后步数"), Words("seeds", "种子数")
ANCHORS = {
    "recompute": Words("recomputed", "重算"),
    "rollout": Words("rollout's", "采样端的"),
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
    "旧 logprob 取自采样端时，比值里已含这一权重，再截断就会重复计算。请选择重算的旧 "
    "logprob、屏蔽，或不修正。",
)
CLEARS = Words(
    "forgets the arms that were added; pressed again, the first ones too",
    "清除后来添加的各组；再按一次，连最初的也清除",
)
FULL = Words(
    "{} arms are as many as one picture holds: clear first", "最多 {} 组，请先清空"
)

NAMES = {
    "as given": "按给定设置",
    "none": "不修正",
    "grpo, mean over tokens": "grpo，按 token 平均",
    "token, truncated at 2": "token 级，截断于 2",
    "token, masked outside 0.5 to 2": "token 级，0.5 到 2 之外屏蔽",
    "sequence, truncated at 2": "序列级，截断于 2",
    "sequence, masked above 2": "序列级，大于 2 屏蔽",
    "geometric, masked outside 0.9 to 1.1": "几何平均，0.9 到 1.1 之外屏蔽",
    "temperature 1.5": "温度 1.5",
    "old: rollout's": "旧 logprob：采样端的",
    "old: recomputed": "旧 logprob：重算",
}
"""The Chinese of a choice in a menu, and of a part of an arm's name."""
STEPS = re.compile(r"(\d+) steps stale")


def in_words(arm: str) -> str:
    """A choice, or an arm by its parts; figures keep the English, which all fonts hold."""
    if language() == "en":
        return arm
    parts = [STEPS.sub(r"滞后 \1 步", part) for part in arm.split("; ")]
    return "；".join(NAMES.get(part, part) for part in parts)
