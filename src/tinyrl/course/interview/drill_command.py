"""`tinyrl drill`: the cards of the interview that are due, in a terminal."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tinyrl.course.interview import terminal_cards
from tinyrl.course.interview.cards import Kind, cards
from tinyrl.course.interview.sitting import Sitting
from tinyrl.course.interview.terminal import Left, Terminal
from tinyrl.course.words import Words

LEAVE = Words(en=" q leaves at any time.", zh="随时可输入 q 退出。")


def run(
    groups: Sequence[str],
    kinds: Sequence[Kind],
    count: int,
    generator: random.Random,
    *,
    ahead: bool = False,
) -> int:
    """Ask up to `count` cards as `Sitting` chooses them; the command's exit status."""
    terminal = Terminal()
    sitting = Sitting(cards(groups, kinds), count, ahead, "--ahead")
    terminal.say(f"{sitting.begun}{LEAVE}" if sitting.waiting else sitting.begun)
    try:
        while sitting.waiting:
            terminal.rule(sitting.title)
            reached, told = terminal_cards.ask(sitting.waiting[0], terminal, generator)
            note = sitting.keep(reached)  # before it is read: who leaves there has answered
            if note is not None:
                terminal.say(note, style="yellow")
            terminal.pages(told, last=not sitting.waiting)
    except (Left, KeyboardInterrupt):
        pass
    if sitting.reached:
        terminal.say("")
        terminal.say(sitting.summary)
    return 0
