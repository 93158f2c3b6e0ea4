"""The loss mask of a conversation: every assistant's turn, and nothing else."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tinyrl.course.exercise import Case, Exercise, Mistakes
from tinyrl.course.words import Words

IDS = 24


def reference(ids: Tensor, assistant: int, end: int) -> Tensor:
    asked = torch.zeros_like(ids, dtype=torch.bool)
    speaking = torch.zeros(len(ids), dtype=torch.bool)
    for t in range(ids.shape[1]):
        asked[:, t] = speaking
        speaking = speaking & (ids[:, t] != end) | (ids[:, t] == assistant)
    return asked


def _last_seen(found: Tensor) -> Tensor:
    """`[B, S]`: the column of the last true strictly before each, -1 if none."""
    t = torch.arange(found.shape[1])
    seen = torch.where(found, t, -1).cummax(1).values
    return torch.nn.functional.pad(seen[:, :-1], (1, 0), value=-1)


def _by_places(ids: Tensor, assistant: int, end: int) -> Tensor:
    return _last_seen(ids == assistant) > _last_seen(ids == end)


def _in_lists(ids: Tensor, assistant: int, end: int) -> Tensor:
    rows = []
    for row in ids.tolist():
        asked, speaking = [], False
        for token in row:
            asked.append(speaking)
            if token == assistant:
                speaking = True
            elif token == end:
                speaking = False
        rows.append(asked)
    return torch.tensor(rows)


def _last_turn(ids: Tensor, assistant: int, end: int) -> Tensor:
    t = torch.arange(ids.shape[1])
    last = torch.where(ids == assistant, t, -1).amax(1, keepdim=True)
    return reference(ids, assistant, end) & (t > last)


def _first_turn(ids: Tensor, assistant: int, end: int) -> Tensor:
    turn = (ids == assistant).cumsum(1)
    return reference(ids, assistant, end) & (turn == 1)


def _all_after_the_first(ids: Tensor, assistant: int, end: int) -> Tensor:
    return _last_seen(ids == assistant) >= 0


def _never_ends(ids: Tensor, assistant: int, end: int) -> Tensor:
    return _last_seen(ids == assistant) > _last_seen(ids == assistant - 1)


def _shifted(ids: Tensor, assistant: int, end: int) -> Tensor:
    asked = reference(ids, assistant, end)
    return torch.nn.functional.pad(asked[:, 1:], (0, 1))


MISTAKES: Mistakes = {
    "last_turn_only": (
        _last_turn,
        Words(
            en="Only the last answer is asked for. Here every turn of the assistant was "
            "generated and is trained.",
            zh="你只要求了最后一条回答。这里助手的每一轮都是生成出来的，都要训练。",
        ),
    ),
    "first_turn_only": (
        _first_turn,
        Words(
            en="Only the first answer is asked for. The assistant speaks again later.",
            zh="你只要求了第一条回答。助手后面还会说话。",
        ),
    ),
    "all_after_the_first": (
        _all_after_the_first,
        Words(
            en="From the first answer on everything is asked for, the user's later "
            "questions as well: the model would learn to play the user.",
            zh="从第一条回答起你什么都要求了，连用户后来的提问也在内：模型会学着扮演用户。",
        ),
    ),
    "never_ends": (
        _never_ends,
        Words(
            en="A turn goes on past its end token: what lies between it and the next user, "
            "and padding after the last turn, is nobody's answer.",
            zh="一轮在结束符之后还没停：它和下一个用户之间的内容、以及最后一轮后面的 "
            "padding，都不是谁的回答。",
        ),
    ),
    "end_left_out": (
        lambda ids, assistant, end: reference(ids, assistant, end) & (ids != end),
        Words(
            en="The end token of a turn is left out. The model has to say it, or it never "
            "stops.",
            zh="漏掉了每轮的结束符。模型必须学会说它，否则停不下来。",
        ),
    ),
    "marker_in": (
        lambda ids, assistant, end: reference(ids, assistant, end) | (ids == assistant),
        Words(
            en="The marker `<assistant>` is asked for. The template writes it, not the "
            "model.",
            zh="你把 `<assistant>` 标记也算进去了。那是模板写的，不是模型写的。",
        ),
    ),
    "every_end": (
        lambda ids, assistant, end: reference(ids, assistant, end) | (ids == end),
        Words(
            en="The user's end tokens are asked for as well. Only the assistant's are its "
            "own words.",
            zh="用户的结束符也被要求了。只有助手自己的结束符才是它说的话。",
        ),
    ),
    "shifted": (
        _shifted,
        Words(
            en="Your mask marks the places that *predict* an answer. Asked for are the "
            "answer's own tokens, one column further right.",
            zh="你的 mask 标的是*预测*回答的位置。题目要的是回答 token 本身，再往右一列。",
        ),
    ),
    "inverted": (
        lambda ids, assistant, end: ~reference(ids, assistant, end),
        Words(
            en="This is everything but the answers.",
            zh="这是除回答之外的全部。",
        ),
    ),
}

BY_HAND = Words(en="one conversation of two turns", zh="一段两轮的对话")
CUT = Words(
    en="conversations that were cut in the middle of an answer",
    zh="在回答中间被截断的对话",
)
RANDOM = Words(
    en="conversations of several lengths, some with a system prompt",
    zh="长短不一的对话，有的带 system prompt",
)
SAME_ID = Words(
    en="conversations whose padding has the id of an end", zh="padding 与结束符同号的对话"
)
LONG = Words(en="very long conversations", zh="很长的对话")


class Template:
    """Another vocabulary each time: no id means anything but what the arguments say.

    The markers of system, user and assistant follow each other. Between turns stand words,
    as a line break does in most templates.
    """

    def __init__(self, generator: Generator) -> None:
        self.generator = generator
        self.assistant = self.whole(2, IDS)
        self.system, self.user = self.assistant - 2, self.assistant - 1
        ids = torch.randperm(IDS, generator=generator).tolist()
        rest = [i for i in ids if not self.system <= i <= self.assistant]
        self.bos, self.end, self.pad, *self.words = rest

    def whole(self, low: int, high: int) -> int:
        """A whole number in [low, high)."""
        return int(torch.randint(low, high, (), generator=self.generator))

    def said(self, many: int) -> list[int]:
        return [self.words[self.whole(0, len(self.words))] for _ in range(many)]

    def turn(self, role: int) -> list[int]:
        spoken, between = self.said(self.whole(1, 5)), self.said(self.whole(1, 3))
        return [role, *spoken, self.end, *between]

    def conversation(self, turns: int, system: bool) -> list[int]:
        """Turns of both, a tool's note from `system` after some of the answers."""
        ids = [self.bos, *(self.turn(self.system) if system else [])]
        for k in range(turns):
            ids += self.turn(self.user) + self.turn(self.assistant)
            if k % 2 == 0 and system:
                ids += self.turn(self.system)
        return ids

    def cut(self, columns: int) -> list[int]:
        """So many tokens of a conversation whose second answer has not ended yet."""
        ids = [*self.conversation(1, False), *self.turn(self.user), self.assistant]
        return ids + self.said(columns - len(ids))

    def args(self, rows: list[list[int]]) -> tuple[Tensor, int, int]:
        """Rows padded to one length, and the two ids that say what is an answer."""
        longest = max(map(len, rows))
        padded = [row + [self.pad] * (longest - len(row)) for row in rows]
        return torch.tensor(padded), self.assistant, self.end


def cases(generator: Generator) -> list[Case]:
    def drawn(turns: tuple[int, ...], pad_is_end: bool = False) -> tuple[Tensor, int, int]:
        made = Template(generator)
        made.pad = made.end if pad_is_end else made.pad
        return made.args([made.conversation(n, n % 2 == 1) for n in turns])

    first = [1, 4, 7, 2, 5, 8, 9, 2]  # <bos>, a question, an answer
    small = torch.tensor([[*first, 4, 6, 2, 5, 7, 2]])
    broken = Template(generator)
    return [
        Case("example", BY_HAND, (small, 5, 2)),
        Case("property", CUT, broken.args([broken.cut(30) for _ in range(3)])),
        Case("inputs", RANDOM, drawn((3, 2, 1))),
        Case("inputs", RANDOM, drawn((2, 5, 3, 4))),
        Case("inputs", SAME_ID, drawn((1, 4, 3), pad_is_end=True)),
        Case("numbers", LONG, drawn((60, 41))),
    ]


EXERCISE = Exercise(
    name="history_loss_mask",
    title=Words(en="The loss mask of a conversation", zh="多轮对话的 loss mask"),
    reference=reference,
    returns=("mask",),
    cases=cases,
    mistakes=MISTAKES,
    alternatives={"by_places": _by_places, "in_lists": _in_lists},
    hints=(
        Words(
            en="Walk from left to right. What opens an answer, what closes it?",
            zh="从左往右走。什么开启一条回答，什么结束它？",
        ),
        Words(
            en="Note for each column whether the assistant was speaking *before* it; then "
            "let the token there open or close the turn.",
            zh="对每一列，先记下*在它之前*助手是否正在说话；再让该列的 token 开启或结束这"
            "一轮。",
        ),
        Words(
            en="In a loop over t: `asked[:, t] = speaking`, then `speaking = speaking & "
            "(ids[:, t] != end) | (ids[:, t] == assistant)`.",
            zh="对 t 循环：`asked[:, t] = speaking`，再 `speaking = speaking & (ids[:, t]"
            " != end) | (ids[:, t] == assistant)`。",
        ),
    ),
    points=(1, 2),
    minutes=9,
    boolean=("mask",),
)
