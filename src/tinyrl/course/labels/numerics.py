"""Words for the formats of numbers."""

from __future__ import annotations

from tinyrl.course.labels.label import Label
from tinyrl.course.words import Words

NUMERICS: dict[str, Label] = {
    "numerics.weights": Label(
        Words("weights", "权重格式"),
        Words("number format in which the weights are stored", "权重存储所用的数值格式"),
        Words("--dtype and --quantization of vLLM; an FP8 or INT4 rollout, a BF16 trainer; "
              "BF16 further off than FP16 in one library (transformers#31267)",
              "vLLM 的 --dtype、--quantization；FP8 或 INT4 rollout 配 BF16 训练；同一个库"
              "里 BF16 比 FP16 偏差更大（transformers#31267）"),
        Words("largest where the policy is unsure; both signs; the same at each run",
              "策略不确定处最大；正负都有；每次运行相同"),
        Words("same format on both sides, or more mantissa bits (FP16: 3 more than BF16)",
              "两侧用同一格式，或保留更多尾数位（FP16 比 BF16 多 3 位）"),
    ),
    "numerics.activations": Label(
        Words("activations", "激活格式"),
        Words("format of every operation's result (8 bits and below: of what enters a "
              "matrix product)", "每步运算结果的格式（8 位及以下：矩阵乘法输入的格式）"),
        Words("--dtype; W8A8 and FP8 kernels; autocast on one side only; an FP32 model "
              "that the engine runs in FP16 (olmo-cookbook#60)",
              "--dtype；W8A8 与 FP8 内核；只有一侧开 autocast；引擎用 FP16 运行 FP32 模型"
              "（olmo-cookbook#60）"),
        Words("like weights, often larger: each layer rounds again",
              "与权重相似但常更大：每层都再舍入一次"),
        Words("same format and the same places of rounding on both sides",
              "两侧用相同格式，并在相同位置舍入"),
    ),
    "numerics.kv": Label(
        Words("KV cache", "KV cache 格式"),
        Words("format in which keys and values of earlier tokens are kept",
              "保存先前 token 的 key 与 value 所用的格式"),
        Words("--kv-cache-dtype fp8_e4m3 of vLLM and SGLang (verl#4435); decoding and "
              "scoring apart from the 97th token on (vllm#54035)",
              "vLLM 与 SGLang 的 --kv-cache-dtype fp8_e4m3（verl#4435）；从第 97 个 token "
              "起解码与打分不一致（vllm#54035）"),
        Words("only what is read back is rounded, so it follows how tokens use the "
              "context", "只有读回的内容被舍入，因此取决于 token 如何利用上下文"),
        Words("a 16-bit cache for RL, or calibrated scales",
              "RL 中用 16 位缓存，或使用校准过的缩放系数"),
    ),
    "numerics.router": Label(
        Words("MoE router", "MoE 路由器格式"),
        Words("format of a router: its weights, what enters it and its logits; a dense "
              "model has none", "路由器的权重、输入与 logits 的格式；稠密模型没有路由器"),
        Words("router weights cast to BF16 on the way to the engine (prime-rl#3524); "
              "routers kept in FP32 on both sides by slime's GLM-5 recipe",
              "同步到引擎时路由器权重被转成 BF16（prime-rl#3524）；slime 的 GLM-5 配方两"
              "侧路由器均用 FP32"),
        Words("few tokens, large jumps: where two experts nearly tie, the choice flips",
              "token 少但跳变大：两个专家几乎打平处，选择翻转"),
        Words("an FP32 router on both sides, or replay the rollout's routes (R3)",
              "两侧路由器都用 FP32，或重放采样时的路由（R3）"),
    ),
    "numerics.head": Label(
        Words("LM head", "LM head 格式"),
        Words("format of the LM head's weights and of what enters it; same: as weights "
              "and activations say",
              "LM head 的权重及其输入的格式；same：与权重、激活格式相同"),
        Words("SGLang's --enable-fp32-lm-head, TRL's cast_lm_head_to_fp32",
              "SGLang 的 --enable-fp32-lm-head，TRL 的 cast_lm_head_to_fp32"),
        Words("like activations, at unlikely tokens most; in 16 bits it grows with the "
              "size of the logits",
              "与激活格式相似，低概率 token 最明显；16 位时随 logit 增大"),
        Words("FP32 on both sides; on one side only it can be worse than on neither "
              "(NeMo-RL#3936)", "两侧都用 FP32；只改一侧可能比都不改更差（NeMo-RL#3936）"),
    ),
    "numerics.logits": Label(
        Words("logits", "logits 格式"),
        Words("format in which logits leave the head, before temperature and softmax; "
              "same: that of the head",
              "logits 离开 LM head 时的格式（温度与 softmax 之前）；same：与 head 相同"),
        Words("a head that returns 16 bits and is upcast afterwards, or a fused one that "
              "keeps FP32; logits_dtype of NeMo Automodel (open-instruct#1387)",
              "head 输出 16 位后再升精度，或融合内核全程 FP32；NeMo Automodel 的 "
              "logits_dtype（open-instruct#1387）"),
        Words("both signs; half a step of the format at the size of the logit: larger "
              "logits, larger errors",
              "正负都有；误差为该 logit 大小处格式间距的一半：logit 越大误差越大"),
        Words("FP32 logits on both sides", "两侧 logits 都用 FP32"),
    ),
    "numerics.rope": Label(
        Words("RoPE table", "RoPE 表格式"),
        Words("format of the table of cosines and sines that turns queries and keys",
              "旋转 query 与 key 所用的 cos/sin 表的格式"),
        Words("cos_sin_cache of vLLM and SGLang, and transformers' rotary module: cast "
              "to the dtype of the queries, or kept in FP32 (transformers#25681)",
              "vLLM、SGLang 的 cos_sin_cache 与 transformers 的 rotary 模块：转成 query "
              "的 dtype，或保持 FP32（transformers#25681）"),
        Words("every token a little, the same at each run; a table rounds each place by "
              "itself", "每个 token 都有一点，每次运行相同；表中各位置各自舍入"),
        Words("an FP32 table on both sides", "两侧都用 FP32 的表"),
    ),
    "numerics.boundary": Label(
        Words("between layers", "层间格式"),
        Words("format of what one layer hands to the next; nothing is lost where "
              "activations are as narrow",
              "一层传给下一层的激活的格式；若激活格式同样窄，则不再损失"),
        Words("--pipeline-parallel-size of vLLM, pipeline_dtype of Megatron: stages send "
              "activations to each other; residuals in BF16 or in FP32 (prime-rl#1167)",
              "vLLM 的 --pipeline-parallel-size，Megatron 的 pipeline_dtype：各级之间传"
              "送激活；残差流用 BF16 还是 FP32（prime-rl#1167）"),
        Words("a split alone changes no bit; the cast does, like activations but once a "
              "layer", "单纯切分不改变任何一位；转换才会，像激活格式但每层只一次"),
        Words("send what the layers compute in", "按层内计算的格式传送"),
    ),
    "numerics.partial": Label(
        Words("partial sums", "部分和格式"),
        Words("format of the sums that tensor-parallel ranks exchange; acts only with "
              "tensor parallel 2 or 4",
              "张量并行各 rank 交换的部分和的格式；仅当张量并行为 2 或 4 时起作用"),
        Words("all-reduce in the model's dtype, rounded after each rank or once "
              "(sglang#36143); VLLM_ROCM_QUICK_REDUCE_QUANTIZATION (FP, INT8, INT6, INT4)",
              "以模型 dtype 做 all-reduce，每个 rank 后舍入或只舍入一次（sglang#36143）；"
              "VLLM_ROCM_QUICK_REDUCE_QUANTIZATION（FP、INT8、INT6、INT4）"),
        Words("like activations; grows with the number of ranks",
              "与激活格式相似；随 rank 数增大"),
        Words("the same split on both sides, or FP32 sums", "两侧切分相同，或用 FP32 求和"),
    ),
    "numerics.overflow": Label(
        Words("FP8 overflow", "FP8 溢出"),
        Words("what a value beyond FP8's largest becomes: the largest, or NaN (infinity "
              "in E5M2)", "超出 FP8 最大值时变成什么：取最大值，或 NaN（E5M2 为无穷）"),
        Words("saturating casts of engines against IEEE casts of libraries (ml_dtypes#260)",
              "引擎的饱和转换与库的 IEEE 转换之别（ml_dtypes#260）"),
        Words("nothing until one value is too large, then NaN or a jump",
              "平时无影响；一旦有值过大便出现 NaN 或跳变"),
        Words("scale before the cast; watch the largest value", "转换前先缩放；监控最大值"),
    ),
}  # fmt: skip
