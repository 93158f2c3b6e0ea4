"""The headings that answers lead to, in Chinese; the notebooks have them in English.

Where a heading was renamed the English one is shown alone.
"""

from __future__ import annotations

from tinyrl.course.interview.questions import Section
from tinyrl.course.words import language

CHINESE: dict[str, dict[str, str]] = {
    "00_start_here": {
        "First without any RL: one classifier, three servers": "一个分类器，三台服务器",
        "From a good training run to poor service": "训练很好，上线却差",
        "In an interview": "面试时怎么说",
        "Now a language model": "换成语言模型",
        "Two shifts that look alike": "两种看起来相似的偏移",
        "What it is, in four layers": "四层回答：它是什么",
        "Why large models have it so often": "大模型为何常有这个问题",
        "Why the training loss stays calm": "训练 loss 为何平静",
    },
    "01_two_policies": {
        "The ratio": "比值",
        "The sequence delta": "序列 delta",
        "The token delta": "单个 token 的 delta",
        "What a long response collects": "长回答会累积什么",
        "Who holds the weights twice": "谁把权重存了两份",
        "Whose old logprobs?": "用谁的旧 logprob？",
        "Why the same tokens get two probabilities": "同样的 token 为何有两个概率",
    },
    "02_exposure_bias": {
        "A history that changes": "会变的历史",
        "A road with a ditch": "有沟的路",
        "And in RL?": "那么 RL 呢？",
        "Two repairs": "两种补救",
        "Two ways to read": "两种读法",
        "Why the harm": "为何有害",
    },
    "03_number_formats": {
        "A number is a few bits": "一个数就是几个比特",
        "BF16 against FP16 rollouts": "BF16 与 FP16 rollout 对比",
        "Range and resolution": "范围与精度",
        "Softmax and logsumexp": "softmax 与 logsumexp",
        "Where the error sits": "误差出在哪里",
        "The same format, or the same path?": "格式相同，还是路径相同？",
        "What FP16 does to gradients": "FP16 对梯度的影响",
    },
    "04_kernels": {
        "Attention, four ways": "attention 的四种算法",
        "Norms, and their eps": "归一化与 eps",
        "One field at a time": "每次只改一个字段",
        "Pipeline parallel": "流水线并行",
        "Prompts in chunks, sequences in batches": "prompt 分块与序列组批",
        "Tensor parallel, with two processes": "双进程张量并行",
        "The KV cache": "KV cache",
        "The last steps: head, logits, temperature, logsumexp": "从输出头到 logsumexp",
        "Three different things": "三件不同的事",
    },
    "05_templates": {
        "A template is part of the policy": "模板是策略的一部分",
        "All of it, or the generated part only": "全部，还是只取生成部分",
        "Cut responses: reward and mask in step": "截断的回答：奖励与 mask 保持一致",
        "Positions, and who sees whom": "位置，以及谁能看见谁",
        "Text is not ids": "文本不等于 id",
        "The end of a turn": "一轮对话的结束",
        "Which numbers count: the mask": "哪些数参与计算：mask",
    },
    "06_decoding": {
        "A curve that lies": "会骗人的曲线",
        "A repetition penalty on one side": "只有一侧用重复惩罚",
        "Evaluate on the stack that serves": "在上线的环境里评测",
        "Max tokens": "最大 token 数",
        "Raw or processed": "处理前还是处理后",
        "Replay the mask": "重放 mask",
        "The constant log S": "常数 log S",
        "What the parameters do": "各参数的作用",
        "Which old logprob makes the ratio right?": "哪个旧 logprob 使比值正确？",
    },
    "07_routers": {
        "Balance against reward": "负载均衡与奖励的取舍",
        "Near-ties tip": "接近的专家容易翻转",
        "R3: follow the rollout": "R3：沿用 rollout 的路由",
        "The mismatch, given a flip": "发生翻转后的不一致",
        "What a router does": "router 的作用",
    },
    "08_objectives": {
        "Every objective in one line": "每个目标函数一行写完",
        "GSPO, R3 and equal formats, on a mixture": "在 MoE 上比较 GSPO、R3 与格式对齐",
        "One ratio for a response": "一个回答一个比值",
        "The centre of the clip": "裁剪区间的中心",
        "Which groups are left": "还剩下哪些组",
    },
    "09_corrections": {
        "A bound that destroys": "起破坏作用的上下界",
        "Exact bias, exact noise": "精确的偏差与噪声",
        "First make them equal": "先让两侧一致",
        "In the words of the frameworks": "各框架里的叫法",
        "Level and operation": "层级与操作",
        "Recompute, and what it hides": "重算，以及它掩盖的问题",
        "The length trap": "长度陷阱",
        "The ranking, tested": "检验那个排名",
        "To the last bit": "精确到最后一位",
        "When nothing is right": "什么都不做才对的情形",
        "Which policy gets better?": "变好的是哪个策略？",
    },
    "10_monitoring": {
        "A mean, a percentile, the largest": "均值、分位数与最大值",
        "Clean curves, and served": "训练曲线与上线表现",
        "How sure is a number?": "这个数有多可靠？",
        "One name, two numbers": "一个名字，两个数",
        "Reward against ratio: whose reward is in the log?": "日志里是谁的奖励？",
        "Ten pairs, eight faults": "十组数据，八种故障",
        "Two causes apart": "分清两种原因",
        "What a wrong ratio does to an update": "错误的比值如何影响更新",
    },
    "12_interview": {
        "Design it: a rollout and a trainer that agree": "设计题：让 rollout 与训练端一致",
        "Finding the fault, in eight steps": "八步排错",
        "Five algorithms in five minutes": "五分钟讲五个算法",
        "One fault through four layers": "一个故障，四层回答",
    },
}


def heading(section: Section) -> str:
    """As the reader finds it in the notebook, with its Chinese name for who reads that."""
    chinese = CHINESE.get(section.notebook, {}).get(section.heading)
    if language() != "zh" or chinese in (None, section.heading):
        return section.heading
    return f"{section.heading}（{chinese}）"
