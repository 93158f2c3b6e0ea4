"""Drills on what rounding does: to logits, sums, softmax and a tiny K3."""

from __future__ import annotations

import math
import random

from tinyrl.course.interview.numeric.drawing import (
    D,
    drill,
    listed,
    signed,
    task,
    three,
    uniform,
)
from tinyrl.course.interview.numeric.formats import rounded
from tinyrl.course.interview.numeric.tasks import Task
from tinyrl.course.words import Words
from tinyrl.formats import spacing
from tinyrl.logprobs import as_tensor, token_logp
from tinyrl.metrics import kl_terms


def logprob_of_logits(generator: random.Random) -> Task:
    """Log-softmax by hand."""
    z = [signed(generator, 0.2, 3, 1) for _ in range(3)]
    answer = token_logp(as_tensor("z", [[z]]), as_tensor("ids", [[0]])).item()
    top, total = max(z), sum(math.exp(x) for x in z)
    shifted = sum(math.exp(x - top) for x in z)
    way = f"{top} + ln({shifted:.4g}) = {math.log(total):.4f}"
    return task(
        Words(
            en=f"A vocabulary of three tokens has logits {listed(z)}. What is the logprob "
            "of the first token, in nats?",
            zh=f"词表只有三个 token，logit 为 {listed(z)}。"
            "第一个 token 的 logprob 是多少（单位 nat）？",
        ),
        answer,
        Words(
            en=f"With the maximum taken out, logsumexp = {way}; {z[0]} − "
            f"({math.log(total):.4f}) = {three(answer)}.",
            zh=f"先提出最大值，logsumexp = {way}；{z[0]} − "
            f"({math.log(total):.4f}) = {three(answer)}。",
        ),
        (z[0], "That is the logit, not normalised.", "这是 logit，没有归一化。"),
        (
            math.exp(answer),
            "That is the probability; take its logarithm.",
            "这是概率，还要取对数。",
        ),
        (
            answer / math.log(10),
            "That is with the logarithm to base ten.",
            "这用了以十为底的对数。",
        ),
        (
            z[0] - math.log(shifted),
            "The maximum has to be put back.",
            "提出的最大值还要加回去。",
        ),
    )


def bf16_logit_error(generator: random.Random) -> Task:
    """By how much a logit moves when it is stored in BF16."""
    x = uniform(generator, 8.5, 60)
    answer = abs(rounded(x, "bf16") - x)
    step = spacing(as_tensor("x", [x]), "bf16").item()
    if not 0.05 < answer / step < 0.45:
        return bf16_logit_error(generator)
    k = math.frexp(x)[1] - 1
    way = f"|{rounded(x, 'bf16'):g} − {x}| = {three(answer)}"
    return task(
        Words(
            en=f"A logit of {x} is stored in BF16 (7 bits of mantissa), rounded to "
            "nearest. "
            "What is the size of the rounding error?",
            zh=f"一个 logit 是 {x}，存成 BF16（尾数 7 位，就近舍入）。舍入误差有多大？",
        ),
        answer,
        Words(
            en=f"Between 2^{k} and 2^{k + 1} steps are 2^({k} − 7) = {step:g}: {way}.",
            zh=f"2^{k} 与 2^{k + 1} 之间的步长是 2^({k} − 7) = {step:g}：{way}。",
        ),
        (step, "That is the step.", "这是步长。"),
        (
            step / 2,
            "That is the largest error there, not this one.",
            "这是那里的最大误差，不是这一个。",
        ),
        (
            step - answer,
            "That is the distance to the farther neighbour.",
            "这是到较远那个邻居的距离。",
        ),
        (
            abs(rounded(x, "fp16") - x),
            "That is FP16's, with 10 bits.",
            "这是 FP16 的误差，尾数 10 位。",
        ),
    )


def order_of_a_sum(generator: random.Random) -> Task:
    """Small terms that vanish one by one, and count when they are added first."""
    k, n = generator.randrange(5, 12), generator.randrange(3, 8)
    step = 2.0 ** (k - 7)
    a = 2.0**k + step * generator.randrange(1, 100)
    b = step * generator.choice([0.25, 0.3125, 0.375, 0.4375])
    one_by_one = a
    for _ in range(n):
        one_by_one = rounded(one_by_one + b, "bf16")
    first = rounded(a + rounded(n * b, "bf16"), "bf16")
    answer = first - one_by_one
    if abs((n * b / step) % 1 - 0.5) < 0.1:
        return order_of_a_sum(generator)
    return task(
        Words(
            en=f"All sums are rounded to nearest in BF16 (7 bits of mantissa). One kernel "
            f"adds {b:g} to {a:g}, {n} times in a row; another first adds up the {n} small "
            f"terms, then adds {a:g}. By how much is the second result larger?",
            zh=f"每次求和都就近舍入成 BF16（尾数 7 位）。一个 kernel 把 {b:g} 逐次加到 "
            f"{a:g} 上，共 {n} 次；另一个先把这 {n} 个小数加起来，再加 {a:g}。"
            "第二个结果大多少？",
        ),
        answer,
        Words(
            en=f"Around {a:g} steps are {step:g}: {b:g} is less than half of one and is "
            f"lost each time. {n} × {b:g} = {n * b:g} is rounded to {three(answer)}.",
            zh=f"{a:g} 附近的步长是 {step:g}：{b:g} 不到半步，每次都丢掉。"
            f"{n} × {b:g} = {n * b:g}，舍入成 {three(answer)}。",
        ),
        (0.0, "Sums of floats depend on their order.", "浮点求和与顺序有关。"),
        (n * b, "The last sum is rounded to a step, too.", "最后一次求和也要舍入到步长。"),
        (b, "That is one term; all of them are lost.", "这只是一个小数，而它们全丢了。"),
        (step, "That is one step; how many are nearest?", "这是一步；最近的是几步？"),
    )


def k3_of_a_tiny_delta(generator: random.Random) -> Task:
    """d^2 / 2, of which exp(d) - 1 - d in a narrow format leaves nothing."""
    d = generator.choice([-1, 1]) * uniform(generator, 0.002, 0.0095, 4)
    k1, _, k3 = (k.item() for k in kl_terms(as_tensor("d", [d])))
    way = f"({d})^2 / 2 = {three(k3)}"
    return task(
        Words(
            en=f"{D.en} A token has d = {d}. What is its K3 = exp(d) − 1 − d?",
            zh=f"{D.zh}某个 token 的 d = {d}。它的 K3 = exp(d) − 1 − d 是多少？",
        ),
        k3,
        Words(
            en=f"For a small d it is d^2 / 2: {way}. A calculator or a float that rounds "
            "exp(d) loses it in the subtraction, hence expm1.",
            zh=f"d 很小时约为 d^2 / 2：{way}。exp(d) 一旦舍入，相减时就丢光了，"
            "所以要用 expm1。",
        ),
        (
            2 * k3,
            "Half of that: exp(d) has the term d^2 / 2.",
            "还要除以二：exp(d) 的二次项是 d^2 / 2。",
        ),
        (
            k1,
            "That is −d: what is left when exp(d) is rounded to 1.",
            "这是 −d：exp(d) 被舍入成 1 时剩下的。",
        ),
        (abs(d), "That is |d|.", "这是 |d|。"),
    )


DRILLS = (
    drill("logprob_of_logits", "IV", logprob_of_logits),
    drill("bf16_logit_error", "IV", bf16_logit_error),
    drill("order_of_a_sum", "IV", order_of_a_sum),
    drill("k3_of_a_tiny_delta", "IV", k3_of_a_tiny_delta),
)
