"""What each picture of the cards shows, in words: its caption and its alternative text."""

from __future__ import annotations

from tinyrl.course.words import Words

CAPTIONS: dict[str, Words] = {
    "bits": Words(
        en="Bits of each format: sign, exponent (range), mantissa (step).",
        zh="各格式的比特分配：符号、指数（决定范围）、尾数（决定步长）。",
    ),
    "neighbours": Words(
        en="Every number from 1 to 1.03: BF16's step is 8 times FP16's.",
        zh="从 1 到 1.03 的每个可表示的数：BF16 的步长是 FP16 的 8 倍。",
    ),
    "exponential": Words(
        en="A difference Δ becomes a factor r; green: within a clip of 0.2.",
        zh="差 Δ 变成倍数 r；绿色：宽度 0.2 的裁剪区间之内。",
    ),
    "length": Words(
        en="What the Δ of T tokens adds up to: noise of 0.01 a token grows with √T (blue), "
        "a bias of 0.01 with T (orange); dashed: a clip of 0.2.",
        zh="T 个 token 的 Δ 之和：每个 token 0.01 的噪声按 √T 增长（蓝），0.01 的偏差按 T "
        "增长（橙）；虚线：裁剪宽度 0.2。",
    ),
    "clip": Words(
        en="PPO's objective J of a token by its ratio r to the old policy. Flat: the token "
        "has no gradient any more.",
        zh="PPO 中单个 token 的目标 J，横轴是对旧策略的比值 r。"
        "平的部分：这个 token 不再有梯度。",
    ),
    "gates": Words(
        en="How much of its gradient a token with A = 1 keeps: PPO's edge is hard, SAPO's "
        "is soft.",
        zh="A = 1 的 token 保留多少梯度：PPO 的边界是硬的，SAPO 是软的。",
    ),
    "kl_estimates": Words(
        en="K1, K2, K3 of one token by its Δ: K1 has a sign and cancels, K3 is never "
        "negative.",
        zh="单个 token 的 K1、K2、K3 随 Δ 的变化：K1 有正负，会抵消；K3 从不为负。",
    ),
    "softmax_terms": Words(
        en="Probabilities from exact logits z (blue) and from the same in BF16 (orange), "
        "whose step near 10 is 1/16; above the bars: the change of logp.",
        zh="精确 logits z 的概率（蓝）与舍入到 BF16 后的概率（橙），"
        "10 附近 BF16 的步长是 1/16；"
        "柱上的数：logp 的变化。",
    ),
    "nucleus": Words(
        en="Tokens by probability: top-p 0.8 keeps the blue ones, of mass S; the sampler's "
        "p is p / S (outline).",
        zh="按概率排列的 token：top-p 0.8 保留蓝色部分，总质量为 S；"
        "采样端的概率是 p / S（轮廓）。",
    ),
    "flip": Words(
        en="Gates g of four experts by an error ε of the router's logits, top 2 thick: a "
        "tiny error swaps an expert.",
        zh="四个专家的门控 g 随 router logits 误差 ε 的变化，粗线是 top 2："
        "极小的误差就会换掉一个专家。",
    ),
    "teacher_forcing": Words(
        en="Above, training: each token after the gold prefix. Below, inference: after the "
        "model's own. One error (orange), and every later state is one never trained.",
        zh="上：训练时每个 token 都接在标准前缀之后。下：推理时接在模型自己的输出之后。"
        "一旦出错（橙），后面的状态都没有训练过。",
    ),
    "cap": Words(
        en="What bounds of 0.5 and 2 make of the ratio r (dotted): truncating bends the "
        "weight w (blue), masking drops the token (orange).",
        zh="上下界 0.5 与 2 对比值 r（点线）的作用：截断把权重 w 压平（蓝），"
        "屏蔽则丢掉这个 token（橙）。",
    ),
    "fingerprint": Words(
        en="With one field changed, on the course's own model: left, how many tokens n "
        "have which Δ; right, the mean |Δ| by the place t in the response.",
        zh="只改一个字段，用课程自带的模型测得。左：各个 Δ 有多少个 token（n）；"
        "右：回答中第 t 个 token 的平均 |Δ|。",
    ),
}


def caption(picture: str) -> str:
    """In the reader's language, of a picture as a question names it."""
    kind, _, field = picture.partition(":")
    return f"{field}: {CAPTIONS[kind]}" if field else str(CAPTIONS[kind])
