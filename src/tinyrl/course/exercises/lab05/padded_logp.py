"""The logprob of response tokens in a padded batch: shift, then gather."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab01.batch import uniform
from tinyrl.course.exercises.lab05.draws import padded, spans, whole
from tinyrl.course.words import Words

IGNORED = -100


def _gathered(logp: Tensor, ids: Tensor) -> Tensor:
    """Of `logp [B, L, V]` those of `ids [B, L]`, whatever is no id taken for 0."""
    return logp.gather(-1, ids.clamp(min=0)[..., None])[..., 0]


def _after(logits: Tensor, ids: Tensor) -> Tensor:
    """Logprob of each token under the logits one column before; 0 in the first column."""
    logp = _gathered(logits[:, :-1].log_softmax(-1), ids[:, 1:])
    return torch.nn.functional.pad(logp, (1, 0))


def _clean(logits: Tensor, response: Tensor) -> Tensor:
    """0 for the logits of columns after which no response token stands."""
    asked = torch.nn.functional.pad(response[:, 1:], (0, 1))
    return torch.where(asked[..., None], logits, 0.0)


def reference(logits: Tensor, ids: Tensor, response: Tensor) -> Tensor:
    """Clean first: `where` after the softmax would let NaN into the gradient."""
    return torch.where(response, _after(_clean(logits, response), ids), 0.0)


def _selected(logits: Tensor, ids: Tensor, response: Tensor) -> Tensor:
    row, column = response.nonzero(as_tuple=True)
    logp = logits[row, column - 1].log_softmax(-1)
    out = torch.zeros(ids.shape, dtype=logits.dtype)
    picked = logp[torch.arange(len(row)), ids[row, column]]
    return out.index_put((row, column), picked)


def _cross_entropy(logits: Tensor, ids: Tensor, response: Tensor) -> Tensor:
    labels = torch.where(response, ids, IGNORED)[:, 1:]
    z = logits.nan_to_num()[:, :-1]
    loss = torch.nn.functional.cross_entropy(
        z.flatten(0, 1), labels.flatten(), reduction="none"
    )
    return torch.nn.functional.pad(-loss.view(labels.shape), (1, 0))


def _where_after(logits: Tensor, ids: Tensor, response: Tensor) -> Tensor:
    """Right values; the padding's NaN is in the way of the gradient."""
    return torch.where(response, _after(logits, ids), 0.0)


def _log_of(more: float) -> Function:
    """log(softmax + more), as it is written to keep the log from being -inf."""

    def wrong(logits: Tensor, ids: Tensor, response: Tensor) -> Tensor:
        p = _clean(logits, response)[:, :-1].softmax(-1) + more
        logp = torch.nn.functional.pad(_gathered(p, ids[:, 1:]).log(), (1, 0))
        return torch.where(response, logp, 0.0)

    return wrong


def _unshifted(logits: Tensor, ids: Tensor, response: Tensor) -> Tensor:
    return torch.where(response, _gathered(logits.log_softmax(-1), ids), 0.0)


def _two_columns(logits: Tensor, ids: Tensor, response: Tensor) -> Tensor:
    logp = _gathered(logits[:, :-2].log_softmax(-1), ids[:, 2:])
    return torch.where(response, torch.nn.functional.pad(logp, (2, 0)), 0.0)


def _one_early(logits: Tensor, ids: Tensor, response: Tensor) -> Tensor:
    return reference(logits, ids, response).roll(-1, 1)


def _raw(logits: Tensor, ids: Tensor, response: Tensor) -> Tensor:
    logp = torch.nn.functional.pad(_gathered(logits[:, :-1], ids[:, 1:]), (1, 0))
    return torch.where(response, logp, 0.0)


def _first_lost(logits: Tensor, ids: Tensor, response: Tensor) -> Tensor:
    begins = response & ~response.roll(1, 1)
    return reference(logits, ids, response & ~begins)


def _all_tokens(logits: Tensor, ids: Tensor, response: Tensor) -> Tensor:
    real = ids >= 0
    inside = real & real.roll(1, 1)
    inside[:, 0] = False
    return torch.where(inside, _after(logits, ids), 0.0)


def _over_time(logits: Tensor, ids: Tensor, response: Tensor) -> Tensor:
    logp = _gathered(logits[:, :-1].log_softmax(1), ids[:, 1:])
    return torch.where(response, torch.nn.functional.pad(logp, (1, 0)), 0.0)


def _probabilities(logits: Tensor, ids: Tensor, response: Tensor) -> Tensor:
    return torch.where(response, _after(logits, ids).exp(), 0.0)


MISTAKES: Mistakes = {
    "unshifted": (
        _unshifted,
        Words(
            en="You read each token's logprob in its own column. The logits there are for "
            "the *next* token: look one column to the left.",
            zh="你在 token 自己那一列取 logprob。那里的 logits 是给*下一个* token 的：应当"
            "看左"
            "边一列。",
        ),
    ),
    "two_columns": (
        _two_columns,
        Words(
            en="You shift by two. One column to the left is right.",
            zh="你移了两列。往左一列就对了。",
        ),
    ),
    "one_early": (
        _one_early,
        Words(
            en="The numbers are right and stand one column too far left: the logprob of a "
            "token belongs into its own column, where its mask is.",
            zh="数值是对的，但整体偏左一列：token 的 logprob 应放在它自己的列，和 mask 对齐"
            "。",
        ),
    ),
    "raw": (
        _raw,
        Words(
            en="These are logits. Take the log-softmax over the vocabulary first.",
            zh="这是 logits。先在词表上取 log-softmax。",
        ),
    ),
    "first_lost": (
        _first_lost,
        Words(
            en="The first response token is missing. The last *prompt* token's logits give "
            "it its logprob.",
            zh="少了第一个回答 token。它的 logprob 来自最后一个*提示* token 处的 logits。",
        ),
    ),
    "all_tokens": (
        _all_tokens,
        Words(
            en="Prompt tokens have a logprob here as well. Only the response was sampled.",
            zh="提示 token 也有了 logprob。只有回答是采样出来的。",
        ),
    ),
    "over_time": (
        _over_time,
        Words(
            en="The softmax goes over the columns. It goes over the vocabulary, the last "
            "axis.",
            zh="softmax 沿列（时间）方向做了。应当沿词表，即最后一维。",
        ),
    ),
    "probabilities": (
        _probabilities,
        Words(
            en="These are probabilities; asked for are their logarithms.",
            zh="这是概率；题目要的是对数。",
        ),
    ),
    "log_of_softmax": (
        _log_of(0.0),
        Words(
            en="An unlikely token's probability underflows to 0 and its log is -inf. "
            "`log_softmax` never leaves the log scale.",
            zh="很小的概率会下溢成 0，取对数得 -inf。`log_softmax` 始终在对数尺度上。",
        ),
    ),
    "log_of_more": (
        _log_of(1e-9),
        Words(
            en="You add a small number before the log, and no logprob can be below its "
            "own: of a token of probability e^-200 it is -200. Use `log_softmax`.",
            zh="取对数之前加了一个小数，logprob 就低不过它的对数。概率为 e^-200 的 token 应"
            "当是 -200。请用 `log_softmax`。",
        ),
    ),
    "times_mask": (
        lambda logits, ids, response: _after(logits, ids) * response,
        Words(
            en="Multiplying by the mask leaves NaN where padding holds NaN. Choose with "
            "`torch.where`.",
            zh="padding 里有 NaN 时，乘以 mask 去不掉。请用 `torch.where` 来选择。",
        ),
    ),
    "no_guard": (
        lambda logits, ids, response: torch.where(
            response,
            torch.nn.functional.pad(
                logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0], (1, 0)
            ),
            0.0,
        ),
        Words(
            en="`gather` stops at the id -100 that marks padding. Make such ids harmless "
            "first, with `clamp(min=0)` or `torch.where`.",
            zh="padding 用 id -100 标记，`gather` 会报错。先用 `clamp(min=0)` 或 "
            "`torch.where` "
            "把它们变成无害的值。",
        ),
    ),
    "where_after": (
        _where_after,
        Words(
            en="The values are right, but the gradient is NaN: a `where` after the "
            "softmax lets the padding's NaN through backwards. Take the logits of response "
            "tokens only, or clean the others first.",
            zh="数值正确，但梯度是 NaN：在 softmax 之后才 `where`，反向时 padding 的 NaN 仍"
            "会漏过来。应当只取回答 token 的 logits，或先清理其余的。",
        ),
    ),
    "detach": (
        lambda logits, ids, response: reference(logits, ids, response).detach(),
        Words(
            en="The numbers are right, but no gradient reaches the logits.",
            zh="数值正确，但梯度传不到 logits。",
        ),
    ),
}

BY_HAND = Words(
    en="one row: padding, two prompt tokens, two response tokens",
    zh="一行：padding、两个提示 token、两个回答 token",
)
EVEN = Words(en="all logits are equal: log 1/V", zh="所有 logits 相同：log 1/V")
RANDOM = Words(en="random rows, padding on either side", zh="随机的行，两侧有 padding")
MARKED = Words(en="padding is marked by the id -100", zh="padding 用 id -100 标记")
NAN = Words(en="logits of padding are NaN", zh="padding 的 logits 是 NaN")
GRADIENT = Words(
    en="the same with gradients, NaN in the padding", zh="要求梯度，padding 里是 NaN"
)
FAR = Words(en="logits 1000 apart", zh="相差 1000 的 logits")
LARGE = Words(en="logits near 100", zh="100 左右的 logits")


def cases(generator: Generator) -> list[Case]:
    def batch(
        rows: int, columns: int, V: int, *, marked: bool = False, nan: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        start, length = padded(generator, rows, columns)
        real = spans(start, length, columns)
        prompt = torch.tensor([whole(generator, 2, 3) for _ in range(rows)])
        prompt[1] = 1  # of a row without padding in front: a response from column 1 on
        response = spans(start + prompt, length - prompt, columns)
        logits = uniform(generator, (rows, columns, V), -3, 3)
        ids = torch.randint(V, (rows, columns), generator=generator)
        if marked:
            ids = torch.where(real, ids, IGNORED)
        if nan:
            logits = torch.where(real[..., None], logits, torch.nan)
        return logits, ids, response

    by_hand = torch.zeros(1, 5, 3)
    by_hand[0, 2] = torch.tensor([2.0, 1.0, 0.0])
    by_hand[0, 3] = torch.tensor([0.0, 3.0, 1.0])
    by_hand[0, 4] = torch.tensor([1.0, 0.0, 4.0])
    answered = torch.tensor([[False, False, False, True, True]])
    even, ids, response = batch(4, 8, 5)
    large, *rest = batch(4, 10, 6)
    near, *chosen = batch(4, 10, 6)
    far = near + 1000 * torch.rand(near.shape, generator=generator).argsort(-1)
    return [
        Case("example", BY_HAND, (by_hand, torch.tensor([[0, 1, 2, 1, 2]]), answered)),
        Case("property", EVEN, (0 * even + even[0, 0, 0], ids, response)),
        Case("inputs", RANDOM, batch(4, 10, 7)),
        Case("inputs", RANDOM, batch(5, 12, 9)),
        Case("padding", MARKED, batch(4, 10, 6, marked=True)),
        Case("padding", NAN, batch(4, 10, 6, nan=True)),
        Case("gradient", GRADIENT, batch(4, 9, 6, marked=True, nan=True)),
        Case("numbers", LARGE, (100 + large, *rest)),
        Case("numbers", FAR, (far, *chosen)),
    ]


EXERCISE = Exercise(
    name="padded_logp",
    title=Words(en="Logprobs of a padded batch", zh="有填充的 batch 的 logprob"),
    reference=reference,
    returns=("logp",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"selected": _selected, "cross_entropy": _cross_entropy},
    hints=(
        Words(
            en="Which column's logits were the response token in column c drawn from?",
            zh="第 c 列的回答 token 是从哪一列的 logits 里采样出来的？",
        ),
        Words(
            en="Select before you compute: `row, column = response.nonzero(as_tuple=True)` "
            "says where the response tokens are, and their logits are one column to the "
            "left. What is not selected may be NaN or -100.",
            zh="先选出来再计算：`row, column = response.nonzero(as_tuple=True)` 给出回答 "
            "token 的位置，它们的 logits 在左边一列。没选中的是 NaN 还是 -100 都没关系。",
        ),
        Words(
            en="`logits[row, column - 1].log_softmax(-1)`, gathered at `ids[row, column]`, "
            "put into zeros with `index_put`.",
            zh="对 `logits[row, column - 1]` 取 `log_softmax(-1)`，按 `ids[row, column]` "
            "gather，再用 `index_put` 放进全零张量。",
        ),
    ),
    points=(1, 2),
    minutes=10,
    gradient=("logits",),
    floor=1.0,  # log(sum) with a sum near 1, where the token is nearly certain
)
