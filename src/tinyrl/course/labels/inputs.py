"""Words for what goes in and comes out: weights, positions, sampler."""

from __future__ import annotations

from ..words import Words
from .label import Label

INPUTS: dict[str, Label] = {
    "weights": Label(
        Words("updates behind", "落后更新数"),
        Words("how many updates older the weights that sample are",
              "采样所用的权重比训练权重旧多少次更新"),
        Words("asynchronous RL; a weight sync that failed or was late (trl#5312)",
              "异步 RL；权重同步失败或延迟（trl#5312）"),
        Words("grows with every update; on tokens that training changes, at all positions",
              "随更新次数增大；出现在训练正在改变的 token 上，各位置都有"),
        Words("sync before sampling, or bound the age and weight by the ratio",
              "采样前先同步权重；否则限制陈旧度并用比值加权"),
    ),
    "positions.offset": Label(
        Words("position offset", "位置偏移"),
        Words("how far the position ids are moved", "position id 平移多少"),
        Words("position ids counted over padding, or restarted after a cached prefix "
              "(trl#6800)",
              "position id 把 padding 也计入，或在缓存前缀之后重新计数（trl#6800）"),
        Words("far too large for rounding, from the second token on; top-1 agreement "
              "falls", "远大于舍入误差，从第二个 token 起；top-1 一致率下降"),
        Words("make position ids from the attention mask, alike on both sides",
              "两侧都由 attention mask 推出 position id"),
        (-4, 4, 1),
    ),
    "positions.of": Label(
        Words("offset moves", "偏移对象"),
        Words("which tokens are moved; moving all changes nothing, because RoPE sees "
              "differences only",
              "平移哪些 token；全部平移没有影响，因为 RoPE 只看相对位置"),
        Words("left padding without position ids moves all (trl#469); a wrong start moves "
              "the response", "左填充未给 position id 会平移全部（trl#469）；回复起点算错只"
              "平移回复"),
        Words("nothing by itself; it says where the offset acts",
              "本身无影响；只决定偏移作用在哪里"),
        Words("as for the offset", "同位置偏移"),
    ),
    "router.replay": Label(
        Words("routing replay", "路由重放"),
        Words("whose choice of experts training follows: its own, the rollout's (R3), or "
              "that of its own pass over the old policy (train, R2); needs an MoE model",
              "训练遵循谁的专家选择：自己的、采样时的（R3），或训练侧对旧策略那次前向的"
              "（train，R2）；需 MoE 模型"),
        Words("routing replay of verl, slime, prime-rl and Megatron: R2, R3 "
              "(prime-rl#3543, Megatron-LM#4168)",
              "verl、slime、prime-rl、Megatron 的 routing replay：R2、R3"
              "（prime-rl#3543、Megatron-LM#4168）"),
        Words("without it few tokens have a large delta: those whose experts changed",
              "不重放时少数 token 的 delta 很大：专家发生变化的那些"),
        Words("replay the rollout's routes, with gates from the training logits",
              "重放采样时的路由，门控仍由训练侧 logits 计算"),
    ),
    "sampler.temperature": Label(
        Words("temperature", "温度"),
        Words("logits are divided by it before the softmax", "softmax 之前 logits 除以它"),
        Words("set in the sampling parameters, forgotten in the trainer, or the reverse "
              "(trl#3029, trl#4159)",
              "采样参数里设了，训练侧忘了除，或相反（trl#3029、trl#4159）"),
        Words("likely tokens move one way and unlikely ones the other: the cooler side "
              "is surer", "高概率与低概率 token 朝相反方向偏：温度低的一侧更自信"),
        Words("divide by the same temperature when scoring", "打分时除以同一温度"),
        (0.1, 2.0, 0.05),
    ),
    "sampler.logprobs": Label(
        Words("reported logprob", "上报的 logprob"),
        Words("after temperature (processed: the distribution sampled from) or before it "
              "(raw)", "温度之后（processed：真正采样的分布）或之前（raw）"),
        Words("vLLM's logprobs_mode: raw_logprobs by default, or processed_logprobs "
              "(vllm#9453); raw ones divided by the temperature (prime-rl#697)",
              "vLLM 的 logprobs_mode：默认 raw_logprobs，或 processed_logprobs"
              "（vllm#9453）；把 raw 值直接除以温度（prime-rl#697）"),
        Words("nothing at temperature 1; else like a forgotten temperature, or hides one",
              "温度为 1 时无影响；否则像漏掉温度，或掩盖温度差异"),
        Words("report what was sampled from: processed",
              "上报真正采样所用的分布：processed"),
    ),
}  # fmt: skip
