"""What two arrays are, if they are no logprobs of the same tokens: a mask, probabilities,
losses, token ids, whole distributions. Asked before anything is compared."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ..logprobs import TOLERANCE
from ..said import NOTHING_SAID, Said
from .files import FileError, printable, wrong

PADDING = Said("; if that is padding, give --mask FILE", "；若是填充，请给 --mask FILE")


class Named:
    """An array and the file that it is from."""

    def __init__(self, path: Path, x: Tensor) -> None:
        self.path, self.x = path, x

    @property
    def name(self) -> str:
        return printable(self.path)

    def wrong(self, en: str, zh: str) -> FileError:
        return wrong(self.path, en, zh)


def checked(a: Named, b: Named, mask: Named | None) -> tuple[Tensor, Tensor, Tensor]:
    """Both as logprobs `[B, T]`, and the mask. A response alone, `[T]`, is one row."""
    given = [a, b] if mask is None else [a, b, mask]
    if all(array.x.dim() == 1 for array in given):
        for array in given:
            array.x = array.x[None]
    for array in (a, b):
        _form(array)
    if a.x.shape != b.x.shape:
        raise _unlike(a, b)
    real = torch.ones_like(a.x, dtype=torch.bool) if mask is None else _mask(mask, a)
    for array, other in ((a, b), (b, a)):
        _values(array, other, real, mask is None)
    return a.x, b.x, real


def _form(array: Named) -> None:
    """`array` may be logprobs by its shape and type."""
    x, shape = array.x, list(array.x.shape)
    if x.dim() == 3:
        raise array.wrong(
            f"is {shape}: if these are logprobs [B, T, V] of all tokens, gather the "
            "sampled token's (x.gather(-1, ids[..., None])[..., 0])",
            f"的形状是 {shape}：若是全词表的 logprob [B, T, V]，请取出所采样 token 的那一个"
            "（x.gather(-1, ids[..., None])[..., 0]）",
        )
    if x.dim() != 2 or x.numel() == 0:
        raise array.wrong(
            f"is {shape}: logprobs must be [B, T] with at least one token, a row a "
            f"response",
            f"的形状是 {shape}：logprob 应为 [B, T]，一行一条回答，至少一个 token",
        )
    if x.dtype == torch.bool or (_zeros_and_ones(x)):
        raise array.wrong(
            "holds only 0 and 1: is it the mask? Give that with --mask FILE, and ROLLOUT "
            "and TRAIN before it",
            "里只有 0 和 1：是掩码吗？掩码用 --mask FILE 给，前面是 ROLLOUT 和 TRAIN",
        )
    if not x.is_floating_point() and bool((x > 0).any()):
        raise array.wrong(
            "holds whole numbers above 0: token ids? Give the logprobs of these tokens",
            "里是大于 0 的整数：是 token id 吗？请给这些 token 的 logprob",
        )
    if not x.is_floating_point():
        raise array.wrong(
            "must hold floats: these whole numbers are no logprobs, or lost what stood "
            "behind the point",
            "应为浮点数：这些整数不是 logprob，或者小数部分已丢失",
        )


def _zeros_and_ones(x: Tensor) -> bool:
    """Nothing else, and some 1."""
    return bool(((x == 0) | (x == 1)).all()) and bool((x == 1).any())


def _unlike(a: Named, b: Named) -> FileError:
    """Two shapes."""
    (B, T), (b_rows, b_columns) = a.x.shape, b.x.shape
    hint = ("", "")
    if (b_columns, b_rows) == (B, T):
        hint = ": is one of them transposed?", "：其中一个转置了吗？"
    elif b_rows == B and abs(T - b_columns) == 1:
        hint = (
            ": one column more, as a BOS, an EOS or logits that were not moved by one "
            "leave. Cut both to the response tokens",
            "：多出一列，常见于 BOS、EOS 或没有错开一位的 logits。请都切成只含回答 token",
        )
    elif b_rows == B:
        hint = (
            ": does one hold the prompt, too, or another padding? Cut both to the response "
            "tokens",
            "：其中一个是否含 prompt，或补齐长度不同？请都切成只含回答 token",
        )
    elif b_columns == T:
        hint = ": not the same responses", "：不是同一批回答"
    shapes = list(b.x.shape), list(a.x.shape)
    return b.wrong(
        f"is {shapes[0]} and {a.name} is {shapes[1]}" + hint[0],
        f"的形状是 {shapes[0]}，{a.name} 是 {shapes[1]}" + hint[1],
    )


def _mask(mask: Named, a: Named) -> Tensor:
    """Real tokens, from truth values or from 0 and 1 in any type."""
    x = mask.x
    if x.shape != a.x.shape:
        raise mask.wrong(
            f"is {list(x.shape)} and the logprobs are {list(a.x.shape)}: a mask has one "
            "value a token",
            f"的形状是 {list(x.shape)}，logprob 是 {list(a.x.shape)}：掩码每个 token 一个"
            f"值",
        )
    if x.dtype != torch.bool and bool((bad := (x != 0) & (x != 1)).any()):
        if bool((x[bad] < 0).all()):
            raise mask.wrong(
                "has numbers below 0: is it logprobs? The order is ROLLOUT TRAIN --mask "
                "MASK",
                "里有小于 0 的数：是 logprob 吗？顺序是 ROLLOUT TRAIN --mask MASK",
            )
        raise _at(mask, bad, "is neither 0 nor 1: {}", "既不是 0 也不是 1：{}")
    real = x if x.dtype == torch.bool else x == 1
    if not real.any():
        raise mask.wrong("is false everywhere: no token is real", "全为假：没有真实 token")
    return real


def _values(array: Named, other: Named, real: Tensor, bare: bool) -> None:
    """Real tokens hold possible logprobs; `bare`: no mask was given."""
    x = torch.where(real, array.x, 0.0)
    hint = PADDING if bare else NOTHING_SAID
    if (bad := x.isnan()).any():
        raise _at(array, bad, "is not a number", "不是数", hint)
    if (bad := x.isinf()).any():
        raise _at(
            array,
            bad,
            "is infinite: a token that a filter (top-p, top-k) on this side excludes has "
            "no logprob there",
            "是无穷：被这一侧的过滤（top-p、top-k）排除的 token 没有 logprob",
            hint,
        )
    if not (bad := x > TOLERANCE).any():
        return
    positive = bool((array.x[real] >= 0).all())
    if positive and x.max() <= 1 + TOLERANCE and _probabilities(array, other, real):
        raise array.wrong(
            "holds nothing but numbers from 0 to 1: probabilities? Take their log",
            "里全是 0 到 1 之间的数：是概率吗？请取对数",
        )
    if positive:
        raise array.wrong(
            "holds no number below 0: negative log-likelihoods? Negate them",
            "里没有小于 0 的数：是负对数似然吗？请取相反数",
        )
    raise _at(
        array,
        bad,
        "is positive, so no logprob: {}; logits? Take log_softmax, then the sampled "
        "token's",
        "大于 0，不可能是 logprob：{}；是 logits 吗？先做 log_softmax，再取所采样的 token",
        hint,
    )


def _probabilities(array: Named, other: Named, real: Tensor) -> bool:
    """Whether they are nearer to the other side's probabilities than to its losses."""
    x, y = array.x[real], other.x[real]
    if not bool((y <= TOLERANCE).all()):
        return True
    return bool((x - y.exp()).abs().mean() <= (x + y).abs().mean())


def _at(
    array: Named, bad: Tensor, en: str, zh: str, hint: Said = NOTHING_SAID
) -> FileError:
    """`array` is so at the first place that is `bad`; then `hint`."""
    places = bad.nonzero()
    row, column = places[0].tolist()
    more = f" ({len(places):,} such values)" * (len(places) > 1)
    more_zh = f"（共 {len(places):,} 处）" * (len(places) > 1)
    value = f"{array.x[row, column].item():.6g}"
    return array.wrong(
        f"row {row}, column {column} {en.format(value)}{more}{hint.en}",
        f"第 {row} 行第 {column} 列{zh.format(value)}{more_zh}{hint.zh}",
    )
