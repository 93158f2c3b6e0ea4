"""Teacher forcing: what the model reads and what it is asked for."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Function, Mistakes
from tinyrl.course.exercises.lab01.batch import lengths
from tinyrl.course.exercises.lab02.answers import tokens
from tinyrl.course.words import Words

Two = tuple[Tensor, Tensor]


def _asked(ids: Tensor, first: Tensor, end: Tensor, fill: int = -100) -> Tensor:
    """`ids [B, S]` at the places from `first [B]` up to `end [B]`, `fill` elsewhere."""
    t = torch.arange(ids.shape[1])
    where = (t >= first[:, None]) & (t < end[:, None])
    return torch.where(where, ids, fill)


def reference(ids: Tensor, prompt: Tensor, length: Tensor) -> Two:
    return ids[:, :-1], _asked(ids, prompt, length)[:, 1:]


def _loop(ids: Tensor, prompt: Tensor, length: Tensor) -> Two:
    targets = torch.full_like(ids[:, 1:], -100)
    for b in range(len(ids)):
        answer = slice(int(prompt[b]), int(length[b]))
        targets[b, int(prompt[b]) - 1 : int(length[b]) - 1] = ids[b, answer]
    return ids[:, :-1], targets


def _filled(ids: Tensor, prompt: Tensor, length: Tensor) -> Two:
    t = torch.arange(1, ids.shape[1])
    other = (t < prompt[:, None]) | (t >= length[:, None])
    return ids[:, :-1], ids[:, 1:].masked_fill(other, -100)


def _with(first: int = 0, end: int = 0, fill: int = -100) -> Function:
    """Targets whose borders are this much off."""

    def wrong(ids: Tensor, prompt: Tensor, length: Tensor) -> Two:
        asked = _asked(ids, prompt + first, length + end, fill)
        return ids[:, :-1], asked[:, 1:]

    return wrong


def _not_shifted(ids: Tensor, prompt: Tensor, length: Tensor) -> Two:
    return ids[:, :-1], _asked(ids, prompt, length)[:, :-1]


def _places_not_shifted(ids: Tensor, prompt: Tensor, length: Tensor) -> Two:
    t = torch.arange(ids.shape[1] - 1)
    where = (t >= prompt[:, None]) & (t < length[:, None])
    return ids[:, :-1], torch.where(where, ids[:, 1:], -100)


def _masked_inputs(ids: Tensor, prompt: Tensor, length: Tensor) -> Two:
    read = torch.where(torch.arange(ids.shape[1]) < length[:, None], ids, -100)
    return read[:, :-1], _asked(ids, prompt, length)[:, 1:]


MISTAKES: Mistakes = {
    "not_shifted": (
        _not_shifted,
        Words(
            en="Each place is asked for the token that it reads. Nothing is left to "
            "predict: the target of column t is column t + 1 of ids.",
            zh="每个位置要预测的正是它读到的 token，没有什么可预测的：第 t 列的目标是 ids"
            " 的第 t + 1 列。",
        ),
    ),
    "places_not_shifted": (
        _places_not_shifted,
        Words(
            en="The tokens are shifted, but the borders are not: compare the place that "
            "the *target* has in ids with prompt and length.",
            zh="token 移位了，边界却没有：要拿*目标*在 ids 中的位置去和 prompt、length 比"
            "较。",
        ),
    ),
    "prompt_asked": (
        lambda ids, prompt, length: reference(ids, prompt * 0, length),
        Words(
            en="The prompt is asked for as well. The user wrote it; only the answer is "
            "learned.",
            zh="你把 prompt 也当成了目标。那是用户写的，只有回答才需要学。",
        ),
    ),
    "padding_asked": (
        lambda ids, prompt, length: reference(ids, prompt, length * 0 + ids.shape[1]),
        Words(
            en="The padding is asked for: stale ids after the end of short answers.",
            zh="你把 padding 也当成了目标：短回答结尾之后是旧的 id。",
        ),
    ),
    "late": (
        _with(first=1),
        Words(
            en="The first token of the answer is not asked for. The prompt's last token "
            "predicts it.",
            zh="回答的第一个 token 没有被要求。它由 prompt 的最后一个 token 来预测。",
        ),
    ),
    "early": (
        _with(first=-1),
        Words(
            en="The last token of the prompt is asked for. It sits at prompt - 1, and the "
            "answer begins at prompt.",
            zh="你要求了 prompt 的最后一个 token。它在位置 prompt - 1，回答从 prompt 开始"
            "。",
        ),
    ),
    "end_left_out": (
        _with(end=-1),
        Words(
            en="The last token of the answer is not asked for: the end token, without "
            "which a model never learns to stop.",
            zh="回答的最后一个 token 没有被要求：那是结束符，不学它模型就不会停。",
        ),
    ),
    "zeros": (
        _with(fill=0),
        Words(
            en="Where nothing is asked for you put 0, which is a token. `cross_entropy` "
            "leaves out -100.",
            zh="不作要求的地方你填了 0，而 0 是一个 token。`cross_entropy` 跳过的是 -100。",
        ),
    ),
    "inputs_masked": (
        _masked_inputs,
        Words(
            en="You put -100 into what is read: no embedding has that number. Only targets "
            "are masked.",
            zh="你把 -100 放进了输入：embedding 没有这个编号。只有目标需要屏蔽。",
        ),
    ),
    "last_kept": (
        lambda ids, prompt, length: (ids, _asked(ids, prompt, length)),
        Words(
            en="S tokens give S - 1 predictions: the last one is read by nobody, the first "
            "predicted by nobody.",
            zh="S 个 token 只有 S - 1 次预测：最后一个不用读，第一个没人预测。",
        ),
    ),
    "swapped": (
        lambda ids, prompt, length: reference(ids, prompt, length)[::-1],
        Words(
            en="The two are the wrong way round: what is read comes first.",
            zh="两个返回值的顺序反了：先返回读入的。",
        ),
    ),
}

BY_HAND = Words(
    en="two answers of three and one tokens", zh="两个回答，分别有三个和一个 token"
)
SHORT = Words(
    en="prompts of one token, no padding", zh="prompt 只有一个 token，没有 padding"
)
RANDOM = Words(
    en="prompts of several lengths, stale ids in the padding",
    zh="长度不同的 prompt，padding 里是旧的 id",
)
LONG = Words(en="long sequences", zh="很长的序列")

Inputs = tuple[Tensor, Tensor, Tensor]


def _draw(generator: Generator, rows: int, columns: int) -> Inputs:
    ids = tokens(generator, rows, columns)
    length = lengths(generator, rows, columns)
    prompt = 1 + (torch.rand(rows, generator=generator) * (length - 3)).long()
    prompt[0], prompt[1] = 2, length[1] - 1  # an answer of one token
    return ids, prompt, length


def cases(generator: Generator) -> list[Case]:
    small = torch.tensor([[1, 7, 8, 9, 2], [1, 6, 9, 2, 12]])
    whole = tokens(generator, 3, 6)
    one, six = torch.ones(3, dtype=torch.long), torch.full((3,), 6)
    return [
        Case("example", BY_HAND, (small, torch.tensor([2, 3]), torch.tensor([5, 4]))),
        Case("property", SHORT, (whole, one, six)),
        Case("inputs", RANDOM, _draw(generator, 4, 12)),
        Case("inputs", RANDOM, _draw(generator, 6, 16)),
        Case("numbers", LONG, _draw(generator, 3, 400)),
    ]


EXERCISE = Exercise(
    name="shift_targets",
    title=Words(en="Teacher forcing", zh="Teacher forcing"),
    reference=reference,
    returns=("inputs", "targets"),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"loop": _loop, "masked_fill": _filled},
    hints=(
        Words(
            en="Column t of the inputs predicts which column of ids? And which of those "
            "are the answer's?",
            zh="输入的第 t 列预测 ids 的哪一列？其中哪些属于回答？",
        ),
        Words(
            en="inputs are ids without the last column, targets without the first. A "
            "target at place t of ids counts if prompt <= t < length.",
            zh="输入是去掉最后一列的 ids，目标是去掉第一列的 ids。目标在 ids 中的位置 t "
            "满足 prompt <= t < length 才算数。",
        ),
        Words(
            en="`t = torch.arange(1, ids.shape[1])`, then `torch.where((t >= prompt[:, "
            "None]) & (t < length[:, None]), ids[:, 1:], -100)`.",
            zh="`t = torch.arange(1, ids.shape[1])`，再 `torch.where((t >= prompt[:, None"
            "]) & (t < length[:, None]), ids[:, 1:], -100)`。",
        ),
    ),
    points=(1, 1),
    minutes=7,
    whole=("inputs", "targets"),
)
