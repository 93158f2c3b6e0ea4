"""Words for what goes in and comes out: weights, positions, sampler."""

from __future__ import annotations

from tinyrl.course.labels.label import Label
from tinyrl.course.words import Words

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
              "采样前先同步权重；否则限制滞后并用比值加权"),
        zero=Words("newest", "最新"),
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
              "the response", "左填充未给 position id 会平移全部（trl#469）；回答起点算错只"
              "平移回答"),
        Words("nothing by itself; it says where the offset acts",
              "本身无影响；只决定偏移作用在哪里"),
        Words("as for the offset", "同位置偏移"),
    ),
    "router.replay": Label(
        Words("routing replay", "路由重放"),
        Words("whose choice of experts training follows: its own, the rollout's (R3), or "
              "that of its own pass over the old policy (train, R2); needs an MoE model",
              "训练遵循谁的专家选择：自己的、采样时的（R3），或训练端对旧策略那次前向的"
              "（train，R2）；需 MoE 模型"),
        Words("routing replay of verl, slime, prime-rl and Megatron: R2, R3 "
              "(prime-rl#3543, Megatron-LM#4168)",
              "verl、slime、prime-rl、Megatron 的 routing replay：R2、R3"
              "（prime-rl#3543、Megatron-LM#4168）"),
        Words("without it few tokens have a large delta: those whose experts changed",
              "不重放时少数 token 的 delta 很大：专家发生变化的那些"),
        Words("replay the rollout's routes, with gates from the training logits",
              "重放采样时的路由，门控仍由训练端 logits 计算"),
    ),
    "sampler.temperature": Label(
        Words("temperature", "温度"),
        Words("logits are divided by it before the softmax", "softmax 之前 logits 除以它"),
        Words("set in the sampling parameters, forgotten in the trainer, or the reverse "
              "(trl#3029, trl#4159)",
              "采样参数里设了，训练端忘了除，或相反（trl#3029、trl#4159）"),
        Words("likely tokens move one way and unlikely ones the other: the cooler side "
              "is surer", "高概率与低概率 token 朝相反方向偏：温度低的一侧更自信"),
        Words("divide by the same temperature when scoring", "打分时除以同一温度"),
        (0.1, 2.0, 0.05),
    ),
    "sampler.top_k": Label(
        Words("top-k", "top-k"),
        Words("only the k likeliest tokens can be sampled; 0 keeps all, 1 is greedy",
              "只从概率最高的 k 个 token 中采样；0 表示全部，1 即贪心"),
        Words("top_k of a request, or of the checkpoint's generation_config.json, which "
              "engines take as default (trl#3494)",
              "请求里的 top_k，或检查点 generation_config.json 里的值：引擎会当作默认"
              "（trl#3494）"),
        Words("every delta has one sign: log S, S the mass that was kept; the trainer "
              "cutting alone gives its own cut tokens -inf",
              "delta 全部同号，等于 log S，S 是保留的概率质量；若只有训练端截断，被它截掉的"
              " token 得 -inf"),
        Words("sample from everything, or replay the kept set when scoring",
              "采样时不截断，或打分时重放保留的集合"),
        (0, 16, 1),
        Words("all", "全部"),
    ),
    "sampler.top_p": Label(
        Words("top-p", "top-p"),
        Words("only the likeliest tokens whose probabilities just reach p can be sampled",
              "只从概率之和刚好达到 p 的最高概率 token 中采样"),
        Words("top_p of a request; processed logprobs are then renormalised, the trainer's "
              "are not (trl#6789)",
              "请求里的 top_p；processed logprob 已重新归一化，训练端没有（trl#6789）"),
        Words("every delta has one sign: log S, where the kept mass S is top-p or more; "
              "large where the model is unsure",
              "delta 全部同号，等于 log S，保留质量 S 不小于 top-p；模型越没把握越大"),
        Words("sample from everything, or replay the kept set when scoring",
              "采样时不截断，或打分时重放保留的集合"),
        (0.05, 1.0, 0.05),
    ),
    "sampler.min_p": Label(
        Words("min-p", "min-p"),
        Words("only tokens at least this share as likely as the likeliest can be sampled",
              "只保留概率不低于最高概率这一比例的 token"),
        Words("min_p of a request; kept sets of all three cuts travel in SkyRL#2237",
              "请求里的 min_p；SkyRL#2237 传递三种截断各自保留的集合"),
        Words("like top-p, and hardly anything where the model is sure",
              "与 top-p 相似；模型有把握处几乎没有影响"),
        Words("sample from everything, or replay the kept set when scoring",
              "采样时不截断，或打分时重放保留的集合"),
        (0.0, 1.0, 0.01),
    ),
    "sampler.repetition_penalty": Label(
        Words("repeat penalty", "重复惩罚"),
        Words("logits of tokens that stand in prompt or response are divided by it (below "
              "0: multiplied); 1 changes nothing",
              "提示或回答中出现过的 token，其 logit 除以该值（为负则乘）；1 表示不变"),
        Words("repetition_penalty of a request or of the checkpoint's "
              "generation_config.json: 1.05 in Qwen2.5-Instruct (verl#7270, prime-rl#886)",
              "请求或检查点 generation_config.json 里的 repetition_penalty：Qwen2.5-"
              "Instruct 为 1.05（verl#7270、prime-rl#886）"),
        Words("both signs: which one depends on what came before; a likely token that "
              "stood before is rated lower, unlikely ones higher",
              "正负都有，取决于前文：出现过的高概率 token 被压低，低概率的被抬高"),
        Words("1 on both sides; scoring needs the same penalty over the same tokens",
              "两侧都设为 1；否则打分时对同样的 token 施加同样的惩罚"),
        (0.5, 2.0, 0.05),
    ),
    "sampler.logprobs": Label(
        Words("reported logprob", "上报的 logprob"),
        Words("after penalty, temperature and cuts (processed: the distribution sampled "
              "from) or before them (raw)",
              "重复惩罚、温度与截断之后（processed：真正采样的分布）或之前（raw）"),
        Words("vLLM's logprobs_mode: raw_logprobs by default, or processed_logprobs "
              "(vllm#9453); raw ones divided by the temperature (prime-rl#697)",
              "vLLM 的 logprobs_mode：默认 raw_logprobs，或 processed_logprobs"
              "（vllm#9453）；把 raw 值直接除以温度（prime-rl#697）"),
        Words("raw hides what shapes the draw: whatever cut, temperature or penalty the "
              "engine has, delta can be nothing, and the data come from another policy",
              "raw 会掩盖影响采样的一切：引擎侧有截断、温度或重复惩罚时，delta 可以为零，"
              "而数据仍出自另一个策略"),
        Words("report what was sampled from: processed",
              "上报真正采样所用的分布：processed"),
    ),
    "sampler.replay": Label(
        Words("mask replay", "掩码重放"),
        Words("whether training cuts the vocabulary for itself (own) or to what the "
              "rollout's top-k, top-p and min-p left (rollout)",
              "训练端自行截断词表（own），还是只在采样端 top-k、top-p、min-p 保留的集合上归"
              "一化（rollout）"),
        Words("Keep Sampling Mask of DeepSeek-V3.2 (arXiv 2512.02556); vLLM's sampling "
              "masks (vllm#49577), sampling replay in prime-rl#3431",
              "DeepSeek-V3.2 的 Keep Sampling Mask（arXiv 2512.02556）；vLLM 的采样掩码"
              "（vllm#49577），prime-rl#3431 的 sampling replay"),
        Words("without it every token of a truncated rollout is off by log S",
              "不重放时，截断采样得到的每个 token 都差一个 log S"),
        Words("replay; what was cut stays unexplored, and no weight brings it back",
              "重放；被截掉的 token 仍然采不到，任何权重都补不回来"),
    ),
}  # fmt: skip
