"""Attention that reads keys and values from a quantised cache."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab04.draws import normal
from tinyrl.course.words import Words


def stored(x: Tensor, levels: int) -> Tensor:
    """Each token's vector in whole steps of a scale of its own."""
    scale = x.abs().amax(-1, keepdim=True) / levels
    return (x / scale).round() * scale


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(k @ q / len(q) ** 0.5, 0) @ v


def reference(q: Tensor, k: Tensor, v: Tensor, levels: int) -> Tensor:
    return attend(q, stored(k, levels), stored(v, levels))


def _token_by_token(q: Tensor, k: Tensor, v: Tensor, levels: int) -> Tensor:
    def kept(x: Tensor) -> Tensor:
        return torch.stack(
            [(t / t.abs().max() * levels).round() * t.abs().max() for t in x]
        )

    weights = (kept(k) * q).sum(-1).div(levels * len(q) ** 0.5).exp()
    mean: Tensor = (weights[:, None] * kept(v)).sum(0) / weights.sum()
    return mean / levels


def _scale_last(q: Tensor, k: Tensor, v: Tensor, levels: int) -> Tensor:
    """Integer codes in the products, scales outside, as INT8 kernels do it."""
    sk, sv = (x.abs().amax(-1) / levels for x in (k, v))
    scores = (k / sk[:, None]).round() @ q * sk / len(q) ** 0.5
    y: Tensor = (scores.softmax(0) * sv) @ (v / sv[:, None]).round()
    return y


def _by(scale_of: Function, rounding: Function = torch.round) -> Function:
    """Another scale or another rounding, of keys and values alike."""

    def kept(x: Tensor, levels: int) -> Tensor:
        scale = scale_of(x, levels)
        return rounding(x / scale).clamp(-levels, levels) * scale  # type: ignore[no-any-return]

    def wrong(q: Tensor, k: Tensor, v: Tensor, levels: int) -> Tensor:
        return attend(q, kept(k, levels), kept(v, levels))

    return wrong


def _own(x: Tensor, levels: int) -> Tensor:
    return x.abs().amax(-1, keepdim=True) / levels


def _newest_exact(q: Tensor, k: Tensor, v: Tensor, levels: int) -> Tensor:
    def kept(x: Tensor) -> Tensor:
        return torch.cat([stored(x[:-1], levels), x[-1:]])

    return attend(q, kept(k), kept(v))


def _codes(q: Tensor, k: Tensor, v: Tensor, levels: int) -> Tensor:
    return attend(q, (k / _own(k, levels)).round(), (v / _own(v, levels)).round())


def _no_root(q: Tensor, k: Tensor, v: Tensor, levels: int) -> Tensor:
    return reference(q * len(q) ** 0.5, k, v, levels)


def _half_scale(x: Tensor, levels: int) -> Tensor:
    return _own(x, levels).half().to(x.dtype)


MISTAKES: Mistakes = {
    "not_quantised": (
        lambda q, k, v, levels: attend(q, k, v),
        Words(
            en="Nothing is quantised: this is the trainer's attention.",
            zh="完全没有量化：这是训练端的 attention。",
        ),
    ),
    "keys_only": (
        lambda q, k, v, levels: attend(q, stored(k, levels), v),
        Words(
            en="The values are exact. They lie in the same cache as the keys.",
            zh="value 没有量化。它们和 key 存在同一个 cache 里。",
        ),
    ),
    "values_only": (
        lambda q, k, v, levels: attend(q, k, stored(v, levels)),
        Words(
            en="The keys are exact. They lie in the same cache as the values.",
            zh="key 没有量化。它们和 value 存在同一个 cache 里。",
        ),
    ),
    "query_too": (
        lambda q, k, v, levels: reference(stored(q, levels), k, v, levels),
        Words(
            en="You quantise the query, too. It is used at once and never stored.",
            zh="你把 query 也量化了。它马上就用掉，不会存入 cache。",
        ),
    ),
    "one_scale_for_all": (
        _by(lambda x, levels: x.abs().max() / levels),
        Words(
            en="One scale for all tokens. A token is written before the later ones are "
            "known, so its scale can't depend on them.",
            zh="所有 token 共用一个 scale。写入一个 token 时还不知道后面的 token，它的 "
            "scale 不能依赖它们。",
        ),
    ),
    "scale_per_channel": (
        _by(lambda x, levels: x.abs().amax(0, keepdim=True) / levels),
        Words(
            en="You take a scale for each channel, over all tokens: later tokens would "
            "change what earlier ones have stored. One scale for each token.",
            zh="你对每个通道、在所有 token 上取 scale：后来的 token 会改变先前已存的内容。"
            "应当每个 token 一个 scale。",
        ),
    ),
    "running_scale": (
        _by(lambda x, levels: x.abs().amax(-1, keepdim=True).cummax(0).values / levels),
        Words(
            en="Your scale is the largest so far. Each token has its own.",
            zh="你用了到目前为止的最大 scale。每个 token 要用自己的。",
        ),
    ),
    "newest_exact": (
        _newest_exact,
        Words(
            en="The newest token is read before it is rounded. It is written first, then "
            "read like all others.",
            zh="最新的 token 在舍入之前就被读取了。它要先写入，再和其他 token 一样读取。",
        ),
    ),
    "truncated": (
        _by(_own, torch.trunc),
        Words(
            en="You cut off instead of rounding to the nearest step.",
            zh="你截断了，而不是舍入到最近的一级。",
        ),
    ),
    "levels_doubled": (
        _by(lambda x, levels: _own(x, 2 * levels + 1)),
        Words(
            en="Your scale divides the whole range, -max to max, by the levels of one "
            "side; large entries are cut off.",
            zh="你的 scale 小了一半，最大的数被截断了：正负两侧各有 levels 级。",
        ),
    ),
    "scale_rounded": (
        _by(_half_scale),
        Words(
            en="You round the scale to FP16. Engines may store it so; here it is exact.",
            zh="你把 scale 舍入到了 FP16。有些引擎这样存储；这里的 scale 是精确的。",
        ),
    ),
    "smallest_scale": (
        _by(lambda x, levels: _own(x, levels).clamp(min=1e-2)),
        Words(
            en="Small vectors lose their digits: the smallest scale that you allow is "
            "larger than theirs. No vector is all zeros, so none is needed.",
            zh="数值很小的向量丢失了精度：你给 scale 设的下限比它们的还大。没有全零的向"
            "量，不需要下限。",
        ),
    ),
    "no_root": (
        _no_root,
        Words(
            en="The scores are not divided by the root of D.",
            zh="分数没有除以 D 的平方根。",
        ),
    ),
    "not_scaled_back": (
        _codes,
        Words(
            en="You attend to the integer codes. Multiply by the scale when you read.",
            zh="你直接用了整数编码。读取时要乘回 scale。",
        ),
    ),
    "bits": (
        lambda q, k, v, levels: reference(q, k, v, 2 ** (levels - 1) - 1),
        Words(
            en="You take `levels` for a number of bits. It is L itself: codes run from -L "
            "to L.",
            zh="你把 `levels` 当成了比特数。它就是 L：编码从 -L 到 L。",
        ),
    ),
    "not_itself": (
        lambda q, k, v, levels: reference(q, k[:-1], v[:-1], levels),
        Words(
            en="The query's own token is left out. It is the last of the T tokens, written "
            "first and read like the others.",
            zh="漏了 query 自己的 token。它是 T 个 token 中的最后一个，先写入，再和别的一起"
            "读。",
        ),
    ),
}

BY_HAND = Words(en="two tokens, one level", zh="两个 token，只有一级")
HELD = Words(en="a cache that holds its entries exactly", zh="能精确存下的 cache")
INT4 = Words(en="seven levels, INT4", zh="七级，即 INT4")
INT8 = Words(en="127 levels, INT8", zh="127 级，即 INT8")
SMALL = Words(en="tiny keys, a huge query", zh="key 极小，query 极大")
OUTLIER = Words(en="a token with large entries", zh="一个数值很大的 token")


def cases(generator: Generator) -> list[Case]:
    def entries(tokens: int, levels: int, off: float, D: int) -> Tensor:
        """Codes and a bit, far from ties; in each token another channel is the largest."""
        codes = torch.randint(1 - levels, levels, (tokens, D), generator=generator)
        part = off * (2 * torch.rand(tokens, D, generator=generator) - 1)
        top = levels * (1 - 2 * torch.randint(2, (tokens,), generator=generator))
        at = torch.randint(D, (tokens,), generator=generator)
        x = codes + part
        x[torch.arange(tokens), at] = top.to(x)
        step = 0.6 + 0.8 * torch.rand(tokens, 1, generator=generator)  # few digits won't do
        return x * step * 2.0 ** -torch.randint(2, 5, (tokens, 1), generator=generator)

    def args(
        tokens: int, off: float = 0.4, levels: int = 7, D: int = 6
    ) -> tuple[Tensor, Tensor, Tensor, int]:
        k, v = entries(tokens, levels, off, D), entries(tokens, levels, off, D)
        return normal(generator, D), k, v, levels

    k = torch.tensor([[1.0, 0.4], [0.3, -2.0]])
    v = torch.tensor([[4.0, 1.0], [-1.2, 2.0]])
    q, k8, v8, levels = args(6)
    query, keys, values, most = args(5, levels=127, D=8)
    int8 = query / 8, keys, 4 * values, most
    large, little, less, seven = args(5)
    small = large * 2.0**30, little * 2.0**-30, less, seven
    k8[1], v8[1] = 16 * k8[1], 64 * v8[1]
    return [
        Case("example", BY_HAND, (torch.tensor([1.0, 0.0]), k, v, 1)),
        Case("property", HELD, args(4, 0.0)),
        Case("inputs", INT4, args(5)),
        Case("inputs", INT4, args(7)),
        Case("inputs", INT8, int8),
        Case("numbers", SMALL, small),
        Case("numbers", OUTLIER, (q / 16, k8, v8, levels)),
    ]


EXERCISE = Exercise(
    name="cached_attention",
    title=Words(en="Attention from a quantised cache", zh="读取量化 cache 的 attention"),
    reference=reference,
    returns=("y",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"token_by_token": _token_by_token, "scale_last": _scale_last},
    hints=(
        Words(
            en="Which of q, k and v lie in the cache, and what is known when a token is "
            "written?",
            zh="q、k、v 中哪些在 cache 里？写入一个 token 时知道些什么？",
        ),
        Words(
            en="For each token, k and v apart: scale = largest |entry| / levels; what is "
            "read is round(x / scale) * scale.",
            zh="对每个 token，k 和 v 分别处理：scale = 最大的 |元素| / levels；读到的是 "
            "round(x / scale) * scale。",
        ),
        Words(
            en="Write the rounding once, as a function in your function. `x.abs().amax(-1, "
            "keepdim=True)` is one number for each token; `k @ q` are the scores.",
            zh="把舍入写成函数里的一个小函数。`x.abs().amax(-1, keepdim=True)` 是每个 "
            "token 一个数；`k @ q` 就是分数。",
        ),
    ),
    points=(1, 2),
    minutes=10,
    floor=64.0,
    exact=True,
)
