"""Drills on decoding: what a sampler keeps, and which logprob it reports."""

from __future__ import annotations

import itertools
import math
import random

from tinyrl.course.interview.numeric.drawing import drill, listed, signed, task, three
from tinyrl.course.interview.numeric.tasks import Task
from tinyrl.course.words import Words
from tinyrl.logprobs import as_tensor
from tinyrl.sampling import Sampler

RAW = Sampler(logprobs="raw")


def logprob(sampler: Sampler, logits: list[float], token: int = 0) -> float:
    """What the sampler reports for a token."""
    ids = as_tensor("ids", [[token]])
    return sampler.reported(as_tensor("logits", [[logits]]), ids).item()


def nucleus(generator: random.Random) -> tuple[list[float], float]:
    """Probabilities of five tokens, falling, and a top_p that no partial sum is near."""
    parts = sorted((generator.randrange(3, 40) for _ in range(5)), reverse=True)
    p = [round(part / sum(parts), 2) for part in parts]
    p[0] = round(1 - sum(p[1:]), 2)
    top_p = generator.choice([0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9])
    near = any(abs(sum(p[: n + 1]) - top_p) < 0.015 for n in range(5))
    falling = all(a > b for a, b in itertools.pairwise(p))
    return (p, top_p) if falling and not near else nucleus(generator)


def kept(p: list[float], top_p: float) -> int:
    logits = as_tensor("p", p).log()
    return int(Sampler(top_p=top_p).process(logits).isfinite().sum())


def top_p_kept(generator: random.Random) -> Task:
    """How many tokens a nucleus holds."""
    p, top_p = nucleus(generator)
    n = kept(p, top_p)
    way = " + ".join(f"{x:g}" for x in p[:n]) + f" = {sum(p[:n]):.2g}"
    return task(
        Words(
            en=f"The next token's probabilities are {listed(p)}. How many tokens does "
            f"top-p keep at p = {top_p}?",
            zh=f"下一个 token 的概率是 {listed(p)}。top-p 取 p = {top_p}，保留几个 token？",
        ),
        n,
        Words(
            en=f"From the likeliest on until p is reached, that token included: {way}, so "
            f"{three(n)}.",
            zh=f"从最可能的开始累加，直到够 p，越过 p 的那个也保留：{way}，共 "
            f"{three(n)} 个。",
        ),
        (n - 1, "The token that crosses p is kept.", "越过 p 的那个 token 也要保留。"),
        (5, "Those behind it are cut.", "后面的都会被截掉。"),
        (5 - n, "That is how many are cut.", "这是被截掉的个数。"),
        within=0,
    )


def top_p_log_s(generator: random.Random) -> Task:
    """Processed less raw logprob is -log S, S being the probability of what is kept."""
    p, top_p = nucleus(generator)
    logits, n = [math.log(x) for x in p], kept(p, top_p)
    answer = logprob(Sampler(top_p=top_p), logits) - logprob(RAW, logits)
    S = sum(p[:n])
    if n == 1:
        return top_p_log_s(generator)
    return task(
        Words(
            en=f"The next token's probabilities are {listed(p)}. The sampler keeps top-p "
            f"at p = {top_p}. For the likeliest token, what is its processed logprob minus "
            "its raw one, in nats?",
            zh=f"下一个 token 的概率是 {listed(p)}，采样器用 top-p，p = {top_p}。"
            "对最可能的 token，处理后的 logprob 减原始 logprob 是多少（单位 nat）？",
        ),
        answer,
        Words(
            en=f"Kept: {n}, S = {S:.2f}; all are divided by S: −ln({S:.2f}) = "
            f"{three(answer)}.",
            zh=f"保留 {n} 个，S = {S:.2f}，概率都除以 S：−ln({S:.2f}) = {three(answer)}。",
        ),
        (
            -answer,
            "What is kept becomes likelier, not less likely.",
            "保留下来的只会更可能，不会更不可能。",
        ),
        (
            -math.log(top_p),
            "Divide by what is kept, which is more than p.",
            "要除以实际保留的概率，它比 p 大。",
        ),
        (
            -math.log(sum(p[: n - 1])),
            "The token that crosses p is kept.",
            "越过 p 的那个 token 也要保留。",
        ),
        (1 / S, "That is the ratio; take its logarithm.", "这是比值，还要取对数。"),
    )


def top_k_logprob(generator: random.Random) -> Task:
    """The processed logprob of a token among the k likeliest."""
    p, _ = nucleus(generator)
    k, token = generator.choice([2, 3, 4]), 1
    answer = logprob(Sampler(top_k=k), [math.log(x) for x in p], token)
    S = sum(p[:k])
    return task(
        Words(
            en=f"The next token's probabilities are {listed(p)}. The sampler keeps top-k "
            f"with k = {k}. What is the processed logprob of the second token, in nats?",
            zh=f"下一个 token 的概率是 {listed(p)}，采样器用 top-k，k = {k}。"
            "第二个 token 处理后的 logprob 是多少（单位 nat）？",
        ),
        answer,
        Words(
            en=f"ln({p[token]:g} / ({' + '.join(f'{x:g}' for x in p[:k])})) = "
            f"ln({p[token] / S:.4f}) = {three(answer)}.",
            zh=f"ln({p[token]:g} / ({' + '.join(f'{x:g}' for x in p[:k])})) = "
            f"ln({p[token] / S:.4f}) = {three(answer)}。",
        ),
        (
            math.log(p[token]),
            "That is the raw one; divide by what is kept.",
            "这是原始的，还要除以保留部分的概率。",
        ),
        (
            p[token] / S,
            "That is the probability; take its logarithm.",
            "这是概率，还要取对数。",
        ),
        (
            math.log(p[token] * S),
            "Divide by the kept probability instead of multiplying.",
            "应当除以保留部分的概率，而不是乘。",
        ),
    )


def temperature_logprob(generator: random.Random) -> Task:
    """The processed logprob under a temperature."""
    z = [0.0, signed(generator, 0.3, 2.5, 1), signed(generator, 0.3, 2.5, 1)]
    generator.shuffle(z)
    T = generator.choice([0.5, 0.6, 0.7, 0.8, 1.25, 1.5])
    answer, raw = logprob(Sampler(temperature=T), z), logprob(RAW, z)
    scaled = [x / T for x in z]
    total = math.log(sum(math.exp(x) for x in scaled))
    way = f"{scaled[0]:.3f} − ({total:.4f}) = {three(answer)}"
    return task(
        Words(
            en=f"A vocabulary of three tokens has logits {listed(z)}. The sampler uses "
            f"temperature {T}. What is the processed logprob of the first token, in nats?",
            zh=f"词表只有三个 token，logit 为 {listed(z)}，采样温度 {T}。"
            "第一个 token 处理后的 logprob 是多少（单位 nat）？",
        ),
        answer,
        Words(
            en="Divide the logits, then normalise: "
            f"{', '.join(f'{x:.3f}' for x in scaled)}, logsumexp {total:.4f}; {way}.",
            zh="先除 logit，再归一化："
            f"{', '.join(f'{x:.3f}' for x in scaled)}，logsumexp {total:.4f}；{way}。",
        ),
        (raw, "That is the raw one, at temperature 1.", "这是原始的，温度为 1。"),
        (
            raw / T,
            "Divide logits, not logprobs: it has to be normalised again.",
            "要除的是 logit 而不是 logprob，除完要重新归一化。",
        ),
        (
            logprob(Sampler(temperature=1 / T), z),
            "Divide by the temperature instead of multiplying.",
            "应当除以温度，而不是乘。",
        ),
        (
            math.exp(answer),
            "That is the probability; take its logarithm.",
            "这是概率，还要取对数。",
        ),
    )


def repetition_penalty(generator: random.Random) -> Task:
    """What a repetition penalty makes of a logit, whatever its sign."""
    z, r = signed(generator, 0.5, 6, 1), generator.choice([1.05, 1.1, 1.2, 1.25, 1.3, 1.5])
    before = as_tensor("before", [True])
    answer = Sampler(repetition_penalty=r).penalised(as_tensor("z", [z]), before).item()
    sign = "×" if z < 0 else "/"
    return task(
        Words(
            en=f"A token with logit {z} has occurred before. What does a repetition "
            f"penalty of {r} make of the logit, as transformers and vLLM apply it?",
            zh=f"某个 token 的 logit 是 {z}，前文里出现过。重复惩罚取 {r}，"
            "按 transformers 和 vLLM 的做法，这个 logit 变成多少？",
        ),
        answer,
        Words(
            en=f"A positive logit is divided, a negative one multiplied, so that it falls: "
            f"{z} {sign} {r} = {three(answer)}.",
            zh=f"正的 logit 相除，负的相乘，总之要变小：{z} {sign} {r} = {three(answer)}。",
        ),
        (
            z * z / answer,
            "That raises it: the token would become likelier.",
            "这样反而变大了，token 会更容易出现。",
        ),
        (
            z - r,
            "It is no subtraction; that is a presence penalty.",
            "它不是减法；减法是 presence penalty。",
        ),
        (
            z - math.log(r),
            "The logit itself is scaled, not the probability.",
            "缩放的是 logit，不是概率。",
        ),
        (z, "It has occurred, so it is penalised.", "它出现过，所以要惩罚。"),
    )


DRILLS = (
    drill("top_p_kept", "V", top_p_kept),
    drill("top_p_log_s", "V", top_p_log_s),
    drill("top_k_logprob", "V", top_k_logprob),
    drill("temperature_logprob", "V", temperature_logprob),
    drill("repetition_penalty", "V", repetition_penalty),
)
