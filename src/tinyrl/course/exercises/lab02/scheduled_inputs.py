"""Scheduled sampling: what the model reads when some gold tokens are its own."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.exercises.lab02.answers import IDS, another, other, tokens
from tinyrl.course.words import Words


def reference(gold: Tensor, said: Tensor, coin: Tensor, own: float, start: int) -> Tensor:
    mixed = torch.where(coin < own, said, gold)
    return torch.nn.functional.pad(mixed[:, :-1], (1, 0), value=start)


def _cat(gold: Tensor, said: Tensor, coin: Tensor, own: float, start: int) -> Tensor:
    first = torch.full_like(gold[:, :1], start)
    mine = (coin < own)[:, :-1].long()
    return torch.cat([first, mine * said[:, :-1] + (1 - mine) * gold[:, :-1]], 1)


def _loop(gold: Tensor, said: Tensor, coin: Tensor, own: float, start: int) -> Tensor:
    read = gold.clone()
    for t in range(gold.shape[1]):
        if t == 0:
            read[:, t] = start
        else:
            mine = coin[:, t - 1] < own
            read[:, t] = torch.where(mine, said[:, t - 1], gold[:, t - 1])
    return read


def _not_shifted(
    gold: Tensor, said: Tensor, coin: Tensor, own: float, start: int
) -> Tensor:
    return torch.where(coin < own, said, gold)


def _coin_of_the_reader(
    gold: Tensor, said: Tensor, coin: Tensor, own: float, start: int
) -> Tensor:
    return reference(gold, said, coin.roll(-1, 1), own, start)


def _own_not_shifted(
    gold: Tensor, said: Tensor, coin: Tensor, own: float, start: int
) -> Tensor:
    read = torch.nn.functional.pad(gold[:, :-1], (1, 0), value=start)
    mine = torch.nn.functional.pad((coin < own)[:, :-1], (1, 0))
    return torch.where(mine, said, read)


def _from_then_on(
    gold: Tensor, said: Tensor, coin: Tensor, own: float, start: int
) -> Tensor:
    mine = (coin < own).cummax(1).values
    return reference(gold, said, (~mine).float(), 0.5, start)


def _blended(gold: Tensor, said: Tensor, coin: Tensor, own: float, start: int) -> Tensor:
    mixed = own * said.double() + (1 - own) * gold.double()
    return torch.nn.functional.pad(mixed[:, :-1], (1, 0), value=float(start))


def _rolled(gold: Tensor, said: Tensor, coin: Tensor, own: float, start: int) -> Tensor:
    return torch.where(coin < own, said, gold).roll(1, 1)


def _border_in(gold: Tensor, said: Tensor, coin: Tensor, own: float, start: int) -> Tensor:
    return reference(gold, said, torch.where(coin == own, -1.0, coin), own, start)


MISTAKES: Mistakes = {
    "not_shifted": (
        _not_shifted,
        Words(
            en="Each place reads the token that it has to predict. Column t reads what "
            "stands at t - 1, and column 0 the start token.",
            zh="每个位置读到的正是它要预测的 token。第 t 列读 t - 1 处的 token，第 0 列读起"
            "始符。",
        ),
    ),
    "rolled": (
        _rolled,
        Words(
            en="The last token has come round to the front. Column 0 reads the start "
            "token.",
            zh="最后一个 token 转到了最前面。第 0 列应读起始符。",
        ),
    ),
    "coin_of_the_reader": (
        _coin_of_the_reader,
        Words(
            en="You toss the coin of the place that reads. The coin belongs to the token: "
            "`coin[:, t]` decides on what was said at t, wherever it is read.",
            zh="你用了读入位置的硬币。硬币属于 token：`coin[:, t]` 决定的是 t 处说出的 "
            "token，不管在哪里读到。",
        ),
    ),
    "own_not_shifted": (
        _own_not_shifted,
        Words(
            en="Gold is shifted and the model's own is not: column t would read what the "
            "model says *after* reading it.",
            zh="标准 token 移了位，模型自己的却没有：第 t 列会读到模型读完它*之后*才说的"
            "话。",
        ),
    ),
    "reversed": (
        lambda gold, said, coin, own, start: reference(said, gold, coin, own, start),
        Words(
            en="Gold and own are exchanged: with `own` = 0 this must be teacher forcing.",
            zh="标准和自己的弄反了：`own` = 0 时应当就是 teacher forcing。",
        ),
    ),
    "one_coin_an_answer": (
        lambda gold, said, coin, own, start: reference(
            gold, said, coin[:, :1].expand_as(coin), own, start
        ),
        Words(
            en="You toss once an answer. Scheduled sampling tosses for each token.",
            zh="你每条回答只掷了一次硬币。计划采样对每个 token 各掷一次。",
        ),
    ),
    "from_then_on": (
        _from_then_on,
        Words(
            en="After the first own token all are own. The gold token is put back as soon "
            "as a coin says so.",
            zh="第一次用了自己的 token 之后就一直用自己的。只要硬币说用标准的，就要换回来"
            "。",
        ),
    ),
    "teacher_forcing": (
        lambda gold, said, coin, own, start: reference(gold, gold, coin, own, start),
        Words(
            en="This is teacher forcing: the model's own tokens are never read.",
            zh="这是 teacher forcing：从没读到模型自己的 token。",
        ),
    ),
    "free_running": (
        lambda gold, said, coin, own, start: reference(said, said, coin, own, start),
        Words(
            en="This is free running: a gold token is never read.",
            zh="这是自由运行：从没读到标准 token。",
        ),
    ),
    "border_in": (
        _border_in,
        Words(
            en="A coin that equals `own` counts as gold: `<`, not `<=`. Coins come from "
            "[0, 1), so only then is `own` = 0 teacher forcing, for a coin of 0 as well.",
            zh="硬币恰好等于 `own` 时应当用标准的：用 `<` 而不是 `<=`。硬币取自 [0, 1)，只"
            "有这样，`own` = 0 时即使硬币是 0 也还是 teacher forcing。",
        ),
    ),
    "start_zero": (
        lambda gold, said, coin, own, start: reference(gold, said, coin, own, 0),
        Words(
            en="Column 0 reads 0. It reads `start`: what stands in front of the answer.",
            zh="第 0 列读到的是 0。应当读 `start`，即回答前面的那个 token。",
        ),
    ),
    "blended": (
        _blended,
        Words(
            en="You average ids. Half of token 6 and half of token 8 is not token 7: toss "
            "for each token.",
            zh="你对 id 取了平均。一半的 6 和一半的 8 并不是 token 7：要对每个 token 掷硬币"
            "。",
        ),
    ),
}

BY_HAND = Words(en="one answer of four tokens", zh="一条四个 token 的回答")
NONE_OWN = Words(en="own = 0: teacher forcing", zh="own = 0：就是 teacher forcing")
ALL_OWN = Words(en="own = 1: free running", zh="own = 1：自由运行")
RANDOM = Words(en="random answers and coins", zh="随机的回答和硬币")
LONG = Words(en="long answers", zh="很长的回答")

Inputs = tuple[Tensor, Tensor, Tensor, float, int]


def _draw(generator: Generator, rows: int, columns: int, low: int, high: int) -> Inputs:
    """`own` is a number of sixteenths in [low, high], which every dtype holds.

    Two coins of each row equal it, where own and gold are not the same token.
    """
    gold = tokens(generator, rows, columns)
    said = other(generator, gold, 0.8)
    coin = torch.rand((rows, columns), generator=generator)
    own = int(torch.randint(low, high + 1, (), generator=generator)) / 16
    if own < 1:
        said[:, [0, 3]], coin[:, [0, 3]] = another(gold[:, [0, 3]]), own
    return gold, said, coin, own, int(torch.randint(1, IDS, (), generator=generator))


def cases(generator: Generator) -> list[Case]:
    none = _draw(generator, 2, 6, 0, 0)
    gold, said = torch.tensor([[6, 7, 8, 9]]), torch.tensor([[10, 11, 12, 13]])
    coin = torch.tensor([[0.75, 0.25, 0.875, 0.125]])
    return [
        Case("example", BY_HAND, (gold, said, coin, 0.5, 5)),
        Case("property", NONE_OWN, (*none[:4], 0)),
        Case("property", ALL_OWN, _draw(generator, 2, 6, 16, 16)),
        Case("inputs", RANDOM, _draw(generator, 4, 9, 5, 7)),
        Case("inputs", RANDOM, _draw(generator, 5, 12, 10, 12)),
        Case("numbers", LONG, _draw(generator, 3, 500, 8, 8)),
    ]


EXERCISE = Exercise(
    name="scheduled_inputs",
    title=Words(en="Scheduled sampling", zh="计划采样"),
    reference=reference,
    returns=("read",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"cat": _cat, "loop": _loop},
    hints=(
        Words(
            en="First decide, place by place, which token stands there. Then: who reads "
            "it?",
            zh="先逐个位置决定那里放哪个 token。然后：谁来读它？",
        ),
        Words(
            en="Own where coin < own, gold elsewhere; then everything one column to the "
            "right, with `start` in front.",
            zh="coin < own 处用自己的，其余用标准的；再整体右移一列，最前面放 `start`。",
        ),
        Words(
            en="`mixed = torch.where(coin < own, said, gold)`, then "
            "`torch.nn.functional.pad(mixed[:, :-1], (1, 0), value=start)`.",
            zh="`mixed = torch.where(coin < own, said, gold)`，再 `torch.nn.functional."
            "pad(mixed[:, :-1], (1, 0), value=start)`。",
        ),
    ),
    points=(1, 2),
    minutes=8,
    exact=True,
    whole=("read",),
)
