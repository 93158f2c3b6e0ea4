"""Sampling-mask replay: the trainer's logprob over the set that the engine kept."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab01.batch import GRADIENT, NAN
from tinyrl.course.exercises.lab06.decoded import (
    ALL,
    BELOW,
    FINITE,
    FP16_FILL,
    HOPELESS,
    over,
    responses,
)
from tinyrl.course.words import Words


def _take(logp: Tensor, ids: Tensor) -> Tensor:
    return logp.gather(-1, ids[..., None])[..., 0]


def reference(logits: Tensor, ids: Tensor, kept: Tensor, mask: Tensor) -> Tensor:
    clean = torch.where(mask[..., None], logits, 0.0)
    logp = over(clean, kept | ~mask[..., None]).log_softmax(-1)
    return torch.where(mask, _take(logp, ids), 0.0)


def _selected(logits: Tensor, ids: Tensor, kept: Tensor, mask: Tensor) -> Tensor:
    logp = over(logits[mask], kept[mask]).log_softmax(-1)
    out = torch.zeros(mask.shape, dtype=logits.dtype)
    return out.masked_scatter(mask, _take(logp, ids[mask]))


def _minus_log_S(logits: Tensor, ids: Tensor, kept: Tensor, mask: Tensor) -> Tensor:
    z = torch.where(mask[..., None], logits, 0.0)
    some = kept | ~mask[..., None]
    logp = _take(z, ids) - over(z, some).logsumexp(-1)
    return torch.where(mask, logp, 0.0)


def _after(logits: Tensor, ids: Tensor, kept: Tensor, mask: Tensor) -> Tensor:
    """Right values; the padding's NaN is in the way of the gradient."""
    return torch.where(mask, _take(over(logits, kept).log_softmax(-1), ids), 0.0)


def _padding(logits: Tensor, ids: Tensor, kept: Tensor, mask: Tensor) -> Tensor:
    return _take(over(logits, kept).log_softmax(-1), ids)


def _full(logits: Tensor, ids: Tensor, kept: Tensor, mask: Tensor) -> Tensor:
    return reference(logits, ids, torch.ones_like(kept), mask)


def _cut(logits: Tensor, ids: Tensor, kept: Tensor, mask: Tensor) -> Tensor:
    """Full logprob minus the renormalised one: log S, 0 in padding."""
    return _full(logits, ids, kept, mask) - reference(logits, ids, kept, mask)


def _zeros(logits: Tensor, ids: Tensor, kept: Tensor, mask: Tensor) -> Tensor:
    z = torch.where(mask[..., None], logits * kept, 0.0)
    return torch.where(mask, _take(z.log_softmax(-1), ids), 0.0)


def _finite_fill(
    logits: Tensor, ids: Tensor, kept: Tensor, mask: Tensor, fill: float = -1e4
) -> Tensor:
    z = torch.where(mask[..., None], logits, 0.0).masked_fill(~kept, fill)
    return torch.where(mask, _take(z.log_softmax(-1), ids), 0.0)


def _own_top(logits: Tensor, ids: Tensor, kept: Tensor, mask: Tensor) -> Tensor:
    """As many tokens as the engine kept, but the trainer's likeliest."""
    z = torch.where(mask[..., None], logits, 0.0)
    rank = (z[..., None, :] > z[..., :, None]).sum(-1)
    return reference(logits, ids, rank < kept.sum(-1, keepdim=True), mask)


def _divided(logits: Tensor, ids: Tensor, kept: Tensor, mask: Tensor) -> Tensor:
    z = torch.where(mask[..., None], logits, 0.0)
    p = z.softmax(-1)
    some = kept | ~mask[..., None]
    logp = _take(p, ids).log() - (p * some).sum(-1).log()
    return torch.where(mask, logp, 0.0)


MISTAKES: Mistakes = {
    "not_replayed": (
        _full,
        Words(
            en="This is the logprob over the whole vocabulary: off by log S at every "
            "token. Cut to the kept set first.",
            zh="这是整个词表上的 logprob，每个 token 都差一个 log S。应当先限制在保留的集合"
            "上。",
        ),
    ),
    "wrong_way": (
        lambda z, ids, k, m: _full(z, ids, k, m) + _cut(z, ids, k, m),
        Words(
            en="You add log S. Renormalising divides by S: take it off.",
            zh="你加上了 log S。重新归一化是除以 S，应当减去。",
        ),
    ),
    "log_S_alone": (
        _cut,
        Words(
            en="This is log S, what replay removes. Asked for is the logprob that is left.",
            zh="这是 log S，即回放消除的那一项。题目要的是回放后的 logprob。",
        ),
    ),
    "zeros_left_in": (
        _zeros,
        Words(
            en="You set cut logits to 0, and exp(0) is 1: they keep a share. Minus "
            "infinity is the logit of what is out.",
            zh="你把被截掉的 logit 置成 0，而 exp(0) = 1，它们仍占一份。应当置为负无穷。",
        ),
    ),
    "own_cut": (
        _own_top,
        Words(
            en="You keep as many tokens as the engine did, but those that the *trainer* "
            "finds likeliest. Replay uses the engine's own set.",
            zh="你保留了同样多的 token，但选的是 *训练端* 认为最可能的。回放要用引擎的集合"
            "。",
        ),
    ),
    "complement": (
        lambda z, ids, k, m: reference(z, ids, ~k | _one_hot(ids, k), m),
        Words(
            en="You normalise over what was cut. True in `kept` means it was in.",
            zh="你在被截掉的 token 上归一化了。`kept` 为真表示保留。",
        ),
    ),
    "finite_fill": (
        _finite_fill,
        FINITE,
    ),
    "clamped": (
        lambda z, ids, k, m: reference(z, ids, k, m).clamp(min=-50),
        Words(
            en="You clamp the logprobs. A sampled token that the trainer finds nearly "
            "impossible is what replay is watched for: return it as it is.",
            zh="你截断了 logprob。训练端认为几乎不可能的采样 token 正是要关注的：应当如实返"
            "回。",
        ),
    ),
    "probability": (
        lambda z, ids, k, m: torch.where(m, reference(z, ids, k, m).exp(), 0.0),
        Words(
            en="This is the probability; asked for is its logarithm.",
            zh="这是概率；题目要的是它的对数。",
        ),
    ),
    "shifted": (
        lambda z, ids, k, m: reference(z, ids, k.roll(1, 1) | _one_hot(ids, k), m),
        Words(
            en="The kept sets are moved by one: kept[b, t] belongs to token t itself.",
            zh="保留集合错了一位：kept[b, t] 属于第 t 个 token 本身。",
        ),
    ),
    "divided": (
        _divided,
        Words(
            en="p over S, each from a softmax over everything: where the trainer finds the "
            "kept tokens hopeless both underflow. Cut first, then one log_softmax.",
            zh="你用全词表 softmax 的 p 除以 S：训练端认为保留的 token 毫无可能时两者都下溢"
            "。应当先截断，再做一次 log_softmax。",
        ),
    ),
    "padding_left": (
        _padding,
        Words(
            en="The padding holds NaN or whatever stands in the buffers. Return 0 there.",
            zh="padding 里还是 NaN 或缓冲区里的东西。那里应当返回 0。",
        ),
    ),
    "where_after": (
        _after,
        Words(
            en="The values are right, but the gradient is NaN: a `where` behind the "
            "softmax lets the padding's NaN through backwards. Clean the logits first.",
            zh="数值正确，但梯度是 NaN：在 softmax 之后才 `where`，反向时 padding 的 NaN 仍"
            "会漏过来。应当先清理 logits。",
        ),
    ),
    "detach": (
        lambda z, ids, k, m: reference(z, ids, k, m).detach(),
        Words(
            en="The values are right, but no gradient reaches the logits: the set is "
            "replayed, the numbers are the trainer's.",
            zh="数值正确，但梯度传不到 logits：回放的是集合，数值仍是训练端自己的。",
        ),
    ),
    "fp16_fill": (
        lambda z, ids, k, m: _finite_fill(z, ids, k, m, -6e4),
        FP16_FILL,
    ),
}


def _one_hot(ids: Tensor, kept: Tensor) -> Tensor:
    return torch.zeros_like(kept).scatter(-1, ids[..., None], True)


UNLIKELY = Words(
    en="kept tokens of probability e^-60 and less", zh="保留的 token 中有概率不到 e^-60 的"
)
HAND = Words(en="two short responses by hand", zh="两条可手算的短回答")
RANDOM = Words(en="random responses and kept sets", zh="随机的回答和保留集合")


def cases(generator: Generator) -> list[Case]:
    probs = torch.tensor(
        [[[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]], [[0.1, 0.4, 0.5], [0.3, 0.3, 0.4]]]
    )
    ids = torch.tensor([[0, 1], [2, 0]])
    kept = torch.tensor(
        [[[True, True, False], [True, True, False]], [[False, True, True], [True] * 3]]
    )
    mask = torch.tensor([[True, True], [True, False]])
    z, chosen, some, real = responses(generator, 3, 6, 8)
    hopeless = z - BELOW * (some & real[..., None])
    return [
        Case("example", HAND, (probs.log(), ids, kept, mask)),
        Case("property", ALL, (z, chosen, torch.ones_like(some), real)),
        Case("inputs", RANDOM, responses(generator, 3, 6, 8)),
        Case("inputs", RANDOM, responses(generator, 4, 9, 12)),
        Case("padding", NAN, responses(generator, 3, 7, 8, padding=True)),
        Case("gradient", GRADIENT, responses(generator, 3, 6, 8, padding=True)),
        Case("numbers", HOPELESS, (hopeless, chosen, some, real)),
        Case("numbers", UNLIKELY, responses(generator, 3, 6, 8, scale=40.0)),
    ]


EXERCISE = Exercise(
    name="replayed_logp",
    title=Words(en="Replay the sampling mask", zh="回放采样掩码"),
    reference=reference,
    returns=("logp",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"selected": _selected, "minus_log_S": _minus_log_S},
    hints=(
        Words(
            en="Whose set, whose numbers? And what must not reach the softmax?",
            zh="用谁的集合，谁的数值？什么不能进入 softmax？",
        ),
        Words(
            en="Clean the padding's logits, set cut ones to -inf, log_softmax, gather, and "
            "0 in the padding.",
            zh="先清理 padding 的 logits，把被截掉的置为 -inf，再 log_softmax、gather，最后"
            " padding 置 0。",
        ),
        Words(
            en="Or select the real tokens first: `logits[mask]`, `kept[mask]` and "
            "`ids[mask]`, and write the result into zeros with `masked_scatter`.",
            zh="也可以先取出真实 token：`logits[mask]`、`kept[mask]`、`ids[mask]`，最后用 "
            "`masked_scatter` 写回全零张量。",
        ),
    ),
    points=(1, 2),
    minutes=9,
    gradient=("logits",),
    floor=8.0,  # the logits that cancel
)
