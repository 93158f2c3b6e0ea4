"""How large the mismatch is where a token changed experts, and where it did not."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab01 import batch
from tinyrl.course.words import Words

Three = tuple[Tensor, Tensor, Tensor]


def _parts(size: Tensor, some: Tensor) -> Three:
    """Mean size where `some`, elsewhere, and the share of the total that `some` carry."""
    return size[some].mean(), size[~some].mean(), size[some].sum() / size.sum()


def reference(
    logp_train: Tensor, logp_rollout: Tensor, flipped: Tensor, mask: Tensor
) -> Three:
    size = (logp_train[mask] - logp_rollout[mask]).abs()
    return _parts(size, flipped[mask].any(-1))


def _with_where(
    logp_train: Tensor, logp_rollout: Tensor, flipped: Tensor, mask: Tensor
) -> Three:
    some = (flipped.sum(-1) > 0) & mask
    size = torch.where(mask, logp_train - logp_rollout, 0.0).abs()
    of_flipped, total = torch.where(some, size, 0.0).sum(), size.sum()
    n = some.sum()
    kept = (total - of_flipped) / (mask.sum() - n)
    return of_flipped / n, kept, of_flipped / total


def _by_loops(
    logp_train: Tensor, logp_rollout: Tensor, flipped: Tensor, mask: Tensor
) -> tuple[float, float, float]:
    sizes: dict[bool, list[float]] = {True: [], False: []}
    for b, t in mask.nonzero().tolist():
        delta = logp_train[b, t].item() - logp_rollout[b, t].item()
        sizes[any(flipped[b, t].tolist())].append(abs(delta))
    a, b = sizes[True], sizes[False]
    return sum(a) / len(a), sum(b) / len(b), sum(a) / sum(a + b)


def _with_size(size: Callable[[Tensor], Tensor]) -> Function:
    """The three numbers of another size of delta."""

    def wrong(
        logp_train: Tensor, logp_rollout: Tensor, flipped: Tensor, mask: Tensor
    ) -> Three:
        delta = logp_train[mask] - logp_rollout[mask]
        return _parts(size(delta), flipped[mask].any(-1))

    return wrong


def _of_layers(choose: Callable[[Tensor], Tensor]) -> Function:
    """The three numbers where `choose` picks the tokens from `flipped [n, L]`."""

    def wrong(
        logp_train: Tensor, logp_rollout: Tensor, flipped: Tensor, mask: Tensor
    ) -> Three:
        size = (logp_train[mask] - logp_rollout[mask]).abs()
        return _parts(size, choose(flipped[mask]))

    return wrong


def _with(change: Callable[[Three, Tensor, Tensor], Three]) -> Function:
    """The right numbers, then `change(numbers, size [n], flips [n])`."""

    def wrong(
        logp_train: Tensor, logp_rollout: Tensor, flipped: Tensor, mask: Tensor
    ) -> Three:
        size = (logp_train[mask] - logp_rollout[mask]).abs()
        some = flipped[mask].any(-1)
        return change(_parts(size, some), size, some)

    return wrong


def _times_mask(
    logp_train: Tensor, logp_rollout: Tensor, flipped: Tensor, mask: Tensor
) -> Three:
    some = flipped.any(-1)
    size = (logp_train - logp_rollout).abs() * mask
    a, b = some & mask, ~some & mask
    total = (size * a).sum()
    return total / a.sum(), (size * b).sum() / b.sum(), total / size.sum()


def _per_flip(
    logp_train: Tensor, logp_rollout: Tensor, flipped: Tensor, mask: Tensor
) -> Three:
    """Tokens that flip in two layers count twice."""
    size, flips = (logp_train[mask] - logp_rollout[mask]).abs(), flipped[mask]
    each = size[:, None].expand(flips.shape)
    return each[flips].mean(), each[~flips].mean(), each[flips].sum() / each.sum()


MISTAKES: Mistakes = {
    "clamped": (_with_size(lambda delta: delta.clamp(-20, 20).abs()), batch.CLAMPED),
    "signed": (
        _with_size(lambda delta: delta),
        Words(
            en="You average delta with its sign, and signs cancel. Take |delta| of each "
            "token first.",
            zh="你直接平均了带符号的 delta，正负相互抵消。请先对每个 token 取 |delta|。",
        ),
    ),
    "squared": (
        _with_size(lambda delta: delta**2),
        Words(
            en="You average delta squared. Asked for is |delta|.",
            zh="你平均的是 delta 的平方。题目要的是 |delta|。",
        ),
    ),
    "every_layer": (
        _of_layers(lambda flips: flips.all(-1)),
        Words(
            en="You call a token flipped if it flips in every layer. One layer is enough "
            "to send it another way: `any`, not `all`.",
            zh="你要求每一层都翻转才算翻转。一层翻转路径就变了：用 `any`，不是 `all`。",
        ),
    ),
    "first_layer": (
        _of_layers(lambda flips: flips[:, 0]),
        Words(
            en="You look at the first layer only. Deeper layers flip more often.",
            zh="你只看了第一层。更深的层翻转更频繁。",
        ),
    ),
    "last_layer": (
        _of_layers(lambda flips: flips[:, -1]),
        Words(
            en="You look at the last layer only. A flip in any layer counts.",
            zh="你只看了最后一层。任何一层的翻转都算。",
        ),
    ),
    "outer_layers": (
        _of_layers(lambda flips: flips[:, 0] | flips[:, -1]),
        Words(
            en="You look at the first and the last layer. There may be others between.",
            zh="你只看了第一层和最后一层。中间可能还有别的层。",
        ),
    ),
    "most_layers": (
        _of_layers(lambda flips: flips.double().mean(-1) >= 0.5),
        Words(
            en="You call a token flipped if half of its layers flip. One layer is enough, "
            "however many there are: `any`.",
            zh="你把至少一半层翻转的 token 才算作翻转。不管有多少层，一层就够：用 `any`。",
        ),
    ),
    "per_flip": (
        _per_flip,
        Words(
            en="You count a token once for each layer, so one that flips in two layers "
            "weighs double. Reduce the layers first, with `any(-1)`.",
            zh="你让每个 token 按层重复计数，两层都翻转的 token 权重加倍了。请先用 "
            "`any(-1)` 把各层合并。",
        ),
    ),
    "swapped": (
        _with(lambda three, size, some: (three[1], three[0], 1 - three[2])),
        Words(
            en="Flipped and kept are the wrong way round: first the tokens with a flip.",
            zh="翻转和未翻转写反了：先返回有翻转的 token。",
        ),
    ),
    "per_token": (
        _with(
            lambda three, size, some: (
                (size * some).sum() / len(size),
                (size * ~some).sum() / len(size),
                three[2],
            )
        ),
        Words(
            en="You divide both sums by all tokens. That is what each group adds to the "
            "mean; asked for is the mean inside each group.",
            zh="你把两个和都除以了全部 token 数。题目要的不是各组的贡献，而是组内的平均。",
        ),
    ),
    "share_of_tokens": (
        _with(lambda three, size, some: (*three[:2], some.double().mean())),
        Words(
            en="The third number is the share of tokens that flip. Asked for is the share "
            "of the summed |delta| that they carry.",
            zh="第三个数是翻转 token 的占比。题目要的是它们在 |delta| 总和中的占比。",
        ),
    ),
    "factor": (
        _with(lambda three, size, some: (*three[:2], three[0] / three[1])),
        Words(
            en="The third number is how many times larger flipped tokens are. Asked for is "
            "their share of the summed |delta|, between 0 and 1.",
            zh="第三个数是翻转 token 大多少倍。题目要的是它们占 |delta| 总和的比例。",
        ),
    ),
    "to_kept": (
        _with(lambda three, size, some: (*three[:2], size[some].sum() / size[~some].sum())),
        Words(
            en="You divide by the sum of the other tokens. A share is of all of them.",
            zh="你除以的是其余 token 之和。占比应当除以全部 token 之和。",
        ),
    ),
    "nonzero_counted": (
        lambda a, b, flips, mask: reference(a, b, flips, mask & (a != b)),
        batch.NONZERO,
    ),
    "padding_counted": (
        lambda a, b, flips, mask: reference(a, b, flips, torch.ones_like(mask)),
        Words(
            en="The padding is counted, with the numbers and the flips it happens to hold. "
            "Use the mask.",
            zh="把 padding 也算进去了，包括那里碰巧存着的数和翻转标记。请用 mask。",
        ),
    ),
    "times_mask": (
        _times_mask,
        Words(
            en="Multiplying by the mask does not remove NaN: NaN * 0 is NaN. Choose with "
            "`[mask]` or `torch.where`.",
            zh="乘以 mask 去不掉 NaN：NaN * 0 还是 NaN。请用 `[mask]` 或 `torch.where`。",
        ),
    ),
}

BY_HAND = Words(
    en="five tokens, two layers, two of the tokens flip",
    zh="五个 token、两层，其中两个 token 翻转",
)
ALIKE = Words(en="every |delta| is the same", zh="所有 |delta| 都相同")
DEEP = Words(en="many layers, each of which may flip", zh="很多层，哪一层都可能翻转")
FEW = Words(en="two flips in thousands of tokens", zh="几千个 token 里只有两次翻转")

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]


def _draw(
    generator: Generator, shape: tuple[int, int, int], padding: batch.Padding = "finite"
) -> Inputs:
    """Each row begins with tokens that flip nowhere, in each layer alone and in all.

    The policies agree on its first two.
    """
    rows, columns, layers = shape
    train, rollout, mask = batch.policies(
        generator, rows=rows, columns=columns, padding=padding
    )
    flipped = torch.rand(shape, generator=generator) < 0.3
    batch.agree_on_two(train, rollout)
    flipped[:, 0] = False
    flipped[:, 1 : layers + 1] = torch.eye(layers, dtype=torch.bool)
    flipped[:, layers + 1] = True
    return train, rollout, flipped, mask


def cases(generator: Generator) -> list[Case]:
    flipped = torch.zeros(2, 3, 2, dtype=torch.bool)
    flipped[0, 1, 0] = flipped[1, 1] = flipped[1, 2] = True  # the last one is padding
    example = (batch.TRAIN, batch.ROLLOUT, flipped, batch.MASK)
    train, _, either, mask = _draw(generator, (3, 10, 2))
    sign = torch.where(torch.arange(10) % 3 == 0, 0.25, -0.25)
    far = _draw(generator, (3, 10, 2))
    far[0][0, 0] -= 60  # a kept token
    far[1][1, 1] -= 60  # one that flips
    layers = int(torch.randint(4, 7, (), generator=generator))
    long = _draw(generator, (2, 2000, 2))
    long[2][:, 4:] = False
    return [
        Case("example", BY_HAND, example),
        Case("property", ALIKE, (train, train + sign, either, mask)),
        Case("inputs", batch.RANDOM, _draw(generator, (3, 10, 2))),
        Case("inputs", DEEP, _draw(generator, (5, 12, layers))),
        Case("padding", batch.NAN, _draw(generator, (3, 10, 2), "nan")),
        Case("padding", batch.INF, _draw(generator, (3, 10, 2), "inf")),
        Case("numbers", FEW, long),
        Case("numbers", batch.IMPOSSIBLE, far),
    ]


EXERCISE = Exercise(
    name="delta_by_flip",
    title=Words(en="The mismatch given a flip", zh="以翻转为条件的不一致"),
    reference=reference,
    returns=("flipped", "kept", "share"),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"where": _with_where, "loops": _by_loops},
    hints=(
        Words(
            en="First one boolean for each token, then one |delta| for each, then three "
            "simple averages and sums.",
            zh="先得到每个 token 一个布尔值、一个 |delta|，然后只是几个平均与求和。",
        ),
        Words(
            en="A token counts as flipped if it flips in any layer. Third: the sum of "
            "|delta| over flipped tokens, divided by that over all.",
            zh="任何一层翻转就算翻转。第三个：翻转 token 的 |delta| 之和除以全部之和。",
        ),
        Words(
            en="`size = (logp_train[mask] - logp_rollout[mask]).abs()` and "
            "`some = flipped[mask].any(-1)`; then `size[some].mean()`.",
            zh="`size = (logp_train[mask] - logp_rollout[mask]).abs()`，"
            "`some = flipped[mask].any(-1)`；然后 `size[some].mean()` 等。",
        ),
    ),
    points=(1, 2),
    minutes=8,
)
