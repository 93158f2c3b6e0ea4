"""Words for the order of the arithmetic."""

from __future__ import annotations

from tinyrl.course.labels.label import Label
from tinyrl.course.words import Words

KERNELS: dict[str, Label] = {
    "kernels.attention": Label(
        Words("attention", "注意力内核"),
        Words("torch's fused kernel (sdpa), the formula as written (naive), a few keys "
              "at a time (online), or parts of the keys merged (split_kv): another order, "
              "and in 16 bits other roundings of scores and weights",
              "torch 融合内核（sdpa）、按公式逐步（naive）、逐块读 key（online），或分段"
              "后合并（split_kv）：次序不同；16 位下分数与权重的舍入位置也不同"),
        Words("--attention-backend: FlashAttention, FlashInfer, Triton, eager; SGLang's "
              "--triton-attention-num-kv-splits; cascade attention (vllm#22103)",
              "--attention-backend：FlashAttention、FlashInfer、Triton、eager；SGLang 的"
              " --triton-attention-num-kv-splits；cascade attention（vllm#22103）"),
        Words("about 1e-6 in FP32; in 16 bits as large as the format's own rounding",
              "FP32 约 1e-6；16 位时与该格式本身的舍入同量级"),
        Words("the same kernel on both sides", "两侧用同一内核"),
    ),
    "kernels.shapes": Label(
        Words("matrix shapes", "矩阵形状"),
        Words("free: a step multiplies what it has; fixed: padded, so a token's "
              "arithmetic does not depend on its neighbours",
              "free：有多少算多少；fixed：补齐到固定大小，运算与同批其他 token 无关"),
        Words("VLLM_BATCH_INVARIANT=1, SGLang's --enable-deterministic-inference "
              "(slime#830)",
              "VLLM_BATCH_INVARIANT=1；SGLang 的 --enable-deterministic-inference"
              "（slime#830）"),
        Words("the last bits: decoding one token adds in another order than scoring all",
              "最后几位：逐 token 解码与整段打分的求和次序不同"),
        Words("fixed on both sides, and another attention than sdpa: delta is then exactly "
              "0", "两侧都选 fixed，且注意力不用 sdpa：delta 恰为 0"),
    ),
    "kernels.norm": Label(
        Words("norm", "归一化内核"),
        Words("fused rounds the result; unfused rounds square, mean, root, product and "
              "gain each; alike unless activations have 16 bits",
              "fused 只舍入结果；unfused 对平方、均值、开方、乘积、增益逐步舍入；仅当激"
              "活为 16 位时不同"),
        Words("RMSNorm kernels of vLLM, Liger and Apex against a module run step by step "
              "in 16 bits; round before the gain or after it (TransformerEngine#1132)",
              "vLLM、Liger、Apex 的 RMSNorm 内核，与以 16 位逐步执行的模块；乘增益之前还是"
              "之后舍入（TransformerEngine#1132）"),
        Words("like activations, and as large; in FP16 a square beyond 65504 overflows",
              "与激活格式相似，大小相当；FP16 下平方超过 65504 会溢出"),
        Words("the same kernel on both sides, with the mean of squares in FP32",
              "两侧用同一内核，均方用 FP32"),
    ),
    "kernels.norm_eps": Label(
        Words("norm eps", "归一化 eps"),
        Words("added to the mean square before the root; 0 takes the model's own (1e-6)",
              "开方前加到均方上的数；0 表示用模型自带的值（1e-6）"),
        Words("rms_norm_eps in config.json: lost in a conversion, or a default of 1e-5 "
              "(Megatron-Bridge#5712)",
              "config.json 中的 rms_norm_eps：转换时丢失，或默认成 1e-5"
              "（Megatron-Bridge#5712）"),
        Words("small, smooth and the same at each run; largest where activations are "
              "small", "小而平滑，每次运行相同；激活较小处最大"),
        Words("read it from the checkpoint on both sides", "两侧都从 checkpoint 读取"),
        (0.0, 1e-4, 1e-5),
        Words("default", "默认"),
    ),
    "kernels.logsumexp": Label(
        Words("logsumexp", "logsumexp 次序"),
        Words("how the reported logprob is normalised: fused log-softmax, the logit less "
              "a whole logsumexp (naive), or parts of the vocabulary merged (chunked)",
              "上报的 logprob 如何归一化：融合 log-softmax、logit 减整个 logsumexp（"
              "naive），或分段词表合并（chunked）"),
        Words("log_softmax; verl's logprobs_from_logits_v2; vocabulary-parallel and "
              "chunked cross-entropy; logprobs above 0 from a difference (maxtext#5231)",
              "log_softmax；verl 的 logprobs_from_logits_v2；词表并行或分块的交叉熵；相减"
              "得到大于 0 的 logprob（maxtext#5231）"),
        Words("the last bits of FP32, more where all logits are large",
              "FP32 的最后几位；logits 整体很大时更多"),
        Words("harmless in FP32: take the logits to FP32 first",
              "FP32 下无害：先把 logits 转成 FP32"),
    ),
    "kernels.tensor_parallel": Label(
        Words("tensor parallel", "张量并行"),
        Words("ranks that share a sum's terms: each adds its own, then theirs are added "
              "(simulated)", "分担一个和的 rank 数：各自先加，再合并（模拟）"),
        Words("--tensor-parallel-size of vLLM, --tp of SGLang; another size in training "
              "(vllm#2679)",
              "vLLM 的 --tensor-parallel-size，SGLang 的 --tp；训练端用不同大小（"
              "vllm#2679）"),
        Words("the last bits of the format; far more if partial sums are exchanged in 16 "
              "bits", "格式的最后几位；若以 16 位交换部分和则大得多"),
        Words("the same number of ranks on both sides, or FP32 partial sums",
              "两侧 rank 数相同，或用 FP32 部分和"),
    ),
    "kernels.prefill": Label(
        Words("prefill chunk", "预填充分块"),
        Words("prompt tokens that a rollout reads in one pass; 0 is all. Training scores "
              "in one pass, so it acts on the rollout's side only",
              "采样端一次读入的提示 token 数；0 为全部。训练端一次打分，因此只影响采样端"),
        Words("--max-num-batched-tokens of vLLM, --chunked-prefill-size of SGLang "
              "(vllm#5952)",
              "vLLM 的 --max-num-batched-tokens，SGLang 的 --chunked-prefill-size"
              "（vllm#5952）"),
        Words("the last bits, from matrices of another size", "最后几位，来自矩阵大小不同"),
        Words("harmless by itself; fixed shapes remove it", "本身无害；fixed 形状可消除"),
        (0, 16, 1),
        Words("all", "全部"),
    ),
}  # fmt: skip
