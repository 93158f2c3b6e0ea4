"""Options that decide what a logprob means: temperature, cut tails, who keeps logprobs.

They are read beside the correction, since no threshold cures what they do to rho.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..said import Said
from .flags import Flag, Flags, above_0, at_least_0, boolean, one_of, optional, share, whole

MODES = ("processed_logprobs", "raw_logprobs", "processed_logits", "raw_logits")
VERL = [
    Flag("temperature", above_0, 1.0),
    Flag("top_p", share, 1.0),
    Flag("top_k", whole, -1),
    Flag("logprobs_mode", optional(one_of(*MODES)), "processed_logprobs"),
    Flag("calculate_log_probs", boolean, True),
    Flag("ppo_epochs", whole, 1),
]
TRL = [
    Flag("temperature", above_0, 1.0),
    Flag("top_p", share, 1.0),
    Flag("top_k", whole, 0),
    Flag("min_p", optional(at_least_0), None),
    Flag("repetition_penalty", above_0, 1.0),
    Flag("num_iterations", whole, 1),
]
SLIME = [
    Flag("rollout_temperature", above_0, 1.0),
    Flag("rollout_top_p", share, 1.0),
    Flag("rollout_top_k", whole, -1),
    Flag("use_routing_replay", boolean, False),
    Flag("use_rollout_routing_replay", boolean, False),
]


def verl(flags: Flags) -> Iterator[Said]:
    """What verl's rollout section does to rho."""
    T, raw = flags["temperature"], flags["logprobs_mode"] not in (None, MODES[0])
    if raw:
        yield Said(
            f"logprobs_mode={flags['logprobs_mode']}: vLLM then reports what was not "
            "sampled from. The actor still divides its logits by rollout.temperature, so "
            f"at temperature {T:g} "
            + ("nothing is lost by it" if T == 1 else "rho compares two temperatures")
            + "; a cut tail (top_p, top_k) is not in rho at all.",
            f"logprobs_mode={flags['logprobs_mode']}：vLLM 上报的不是实际采样所用的分布。"
            f"actor 仍把 logits 除以 rollout.temperature，温度为 {T:g} 时"
            + ("没有影响" if T == 1 else " rho 比较的是两个温度")
            + "；被截掉的尾部（top_p、top_k）完全不出现在 rho 里。",
        )
    elif T != 1:
        yield _temperature(
            "temperature", T, "actor", "unless logprobs_mode is raw", "logprobs_mode 为 raw"
        )
    cut = [f"top_p={flags['top_p']:g}"] * (flags["top_p"] < 1)
    cut += [f"top_k={flags['top_k']}"] * (flags["top_k"] > 0)
    if cut and not raw:
        yield _cut(" ".join(cut), "the actor", "actor")
    if not flags["calculate_log_probs"]:
        yield Said(
            "calculate_log_probs=false: the engine's logprobs are not kept, so there is no "
            "rho. Decoupled, verl leaves rollout_is and rollout_rs out without a word; "
            "with bypass_mode=true it raises.",
            "calculate_log_probs=false：不保留引擎的 logprob，也就没有 rho。解耦模式下 "
            "verl 不作提示，直接跳过 rollout_is 和 rollout_rs；bypass_mode=true 时报错。",
        )
    if flags["ppo_epochs"] > 1:
        yield _passes("ppo_epochs", flags["ppo_epochs"])


def trl(flags: Flags) -> Iterator[Said]:
    """What TRL's sampling arguments do to rho: vLLM runs with processed_logprobs."""
    if flags["temperature"] != 1:
        yield _temperature("temperature", flags["temperature"], "trainer")
    cut = [f"top_p={flags['top_p']:g}"] * (flags["top_p"] < 1)
    cut += [f"top_k={flags['top_k']}"] * (flags["top_k"] > 0)
    cut += [f"min_p={flags['min_p'] or 0:g}"] * bool(flags["min_p"])
    if cut:
        yield _cut(" ".join(cut), "the trainer", "训练端")
    penalty = flags["repetition_penalty"]
    if penalty != 1:
        yield Said(
            f"repetition_penalty={penalty:g}: vLLM's processed logprobs have it, the "
            "trainer's have not (vllm-project/vllm#9453). rho is off wherever a token "
            "could repeat what stands before it, and no bound tells that from mismatch.",
            f"repetition_penalty={penalty:g}：vLLM 的 processed logprob 含有它，训练端没有"
            "（vllm-project/vllm#9453）。凡可能重复前文的地方 rho 都有偏，任何界都分不清"
            "它和不一致。",
        )
    if flags["num_iterations"] > 1:
        yield _passes("num_iterations", flags["num_iterations"])


def slime(flags: Flags) -> Iterator[Said]:
    """What slime's rollout arguments do to rho."""
    if flags["rollout_temperature"] != 1:
        yield _temperature("rollout_temperature", flags["rollout_temperature"], "trainer")
    if flags["rollout_top_p"] < 1:
        yield Said(
            f"rollout_top_p={flags['rollout_top_p']:g}: slime sends the kept sets along "
            "(rollout_top_p_token_ids) and normalises the trainer's logprobs over them. A "
            "custom generate function that leaves them out is refused.",
            f"rollout_top_p={flags['rollout_top_p']:g}：slime 会带上保留的 token 集合"
            "（rollout_top_p_token_ids），训练端也在集合内归一化。自定义 generate 函数若没"
            "有带上，会被拒绝。",
        )
    if flags["rollout_top_k"] > 0:
        k = flags["rollout_top_k"]
        yield Said(
            f"rollout_top_k={k}: only top-p's sets are replayed, not top-k's. The trainer "
            "normalises over the whole vocabulary, so rho is not a ratio of one kind if "
            "the engine's logprobs are over the kept set.",
            f"rollout_top_k={k}：重放的只有 top-p 的集合，没有 top-k 的。训练端在整个词表上"
            "归一化；若引擎的 logprob 只在保留集合内归一化，rho 比的就不是同一种概率。",
        )
    if flags["use_routing_replay"] and not flags["use_rollout_routing_replay"]:
        yield Said(
            "use_routing_replay repeats the trainer's own routes in its later passes "
            "(GSPO's paper). The rollout's routes come with use_rollout_routing_replay "
            "(R3): only that one acts on p_old/mu.",
            "use_routing_replay 重放的是训练端自己的路由（GSPO 论文）。采样端的路由要用 "
            "use_rollout_routing_replay（R3）：只有它影响 p_old/mu。",
        )


def _temperature(
    name: str, T: float, trainer: str, but_en: str = "", but_zh: str = ""
) -> Said:
    who = {"actor": " actor ", "trainer": "训练端"}[trainer]
    return Said(
        f"{name}={T:g} is no mismatch by itself: the {trainer} divides its logits by it, "
        "too, and the engine's logprobs are taken at it"
        + (f" ({but_en})" if but_en else "")
        + ". A rollout server of one's own, started without it, or logprobs computed "
        "again elsewhere are the usual fault (huggingface/trl#4159).",
        f"{name}={T:g} 本身不造成不一致：{who}也把 logits 除以它，引擎的 logprob 也在此温度"
        "下计算" + (f"（除非 {but_zh}）" if but_zh else "") + "。常见的错是自己启动的推理"
        "服务没有这个温度，或在别处重算 logprob 时漏了它（huggingface/trl#4159）。",
    )


def _cut(options: str, who: str, who_zh: str) -> Said:
    return Said(
        f"{options}: the engine's logprobs are normalised over the tokens that it keeps, "
        f"{who}'s over the whole vocabulary. So every rho is below 1 before any fault, "
        "and its mean is the kept mass, about 0.9 at top-p 0.9 (huggingface/trl#6789, "
        "#7269): bounds around 1 are then off centre, and a product over a response goes "
        "to 0.",
        f"{options}：引擎的 logprob 只在保留的 token 内归一化，{who_zh} 的在整个词表上。"
        "所以即使没有别的问题，每个 rho 都小于 1，均值就是保留的概率，top-p 0.9 时约 0.9"
        "（huggingface/trl#6789、#7269）：围绕 1 设的界偏离了中心，整条回答的连乘趋于 0。",
    )


def _passes(name: str, n: int) -> Said:
    return Said(
        f"{name}={n}: from the second pass on p_new/p_old moves away from 1 by learning. "
        "That is staleness, which the clip is for; rho = p_old/mu is not worked out again.",
        f"{name}={n}：从第二遍起，p_new/p_old 因学习而偏离 1。那是策略滞后，由裁剪处理；"
        "rho = p_old/mu 不会重算。",
    )
