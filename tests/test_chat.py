"""Chat templates that differ, against `transformers` and its own way of calling them."""

from __future__ import annotations

import itertools
from typing import get_args, get_type_hints

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from tinyrl.tokens import CHAT_TEMPLATE, VOCABULARY, Chat, Tokenizer, response_mask

HINTS = get_type_hints(Chat)
CHATS = [
    Chat(*choice)
    for choice in itertools.product(
        get_args(HINTS["bos"]), ("", "7", "3 1"), (True, False), get_args(HINTS["history"])
    )
]
USER = {"role": "user", "content": "3 1 4"}
TURN = {"role": "assistant", "content": "0 7"}
LONG = {"role": "assistant", "content": "0 0 0 3 0"}
SYSTEM = {"role": "system", "content": "9"}
CONVERSATIONS = [
    [USER],
    [SYSTEM, USER],
    [USER, TURN],
    [USER, TURN, USER],
    [USER, LONG, USER, TURN],
]


def words(ids: list[int]) -> str:
    return " ".join(VOCABULARY[i] for i in ids)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """Each setting as `transformers` loads it from its folder."""
    from transformers import AutoTokenizer

    found = {}
    for i, chat in enumerate(CHATS):
        folder = tmp_path_factory.mktemp("chat") / str(i)
        Tokenizer(chat).save_pretrained(folder)
        found[chat] = AutoTokenizer.from_pretrained(folder)
    return found


@pytest.mark.parametrize("chat", CHATS, ids=str)
def test_ids_are_those_of_transformers(loaded, chat):
    """Text by the template, then ids by a call: that is where a second <bos> comes from."""
    for messages in CONVERSATIONS:
        text = loaded[chat].apply_chat_template(
            messages, tokenize=False, add_generation_prompt=chat.generation_prompt
        )
        assert Tokenizer(chat).render(messages) == text
        ids = Tokenizer(chat).chat(messages)
        assert ids == loaded[chat](text).input_ids
        at_once = loaded[chat].apply_chat_template(
            messages, add_generation_prompt=chat.generation_prompt, return_dict=False
        )
        assert ids == ([1] if chat.bos == "twice" else []) + at_once


def test_every_setting_says_what_it_says():
    def of(**how):
        return words(Tokenizer(Chat(**how)).chat([USER, TURN, USER]))

    right = "<bos> <user> 3 1 4 <end> <assistant> 0 7 <end> <user> 3 1 4 <end> <assistant>"
    assert of() == right
    assert of(bos="twice") == "<bos> " + right
    assert of(bos="none") == right.removeprefix("<bos> ")
    assert of(system="7") == right.replace("<bos>", "<bos> <system> 7 <end>")
    assert of(generation_prompt=False) == right.removesuffix(" <assistant>")
    assert of(history="last") == of(history="number") == right.replace("0 7", "7")


def test_the_last_turn_and_a_system_prompt_of_its_own_are_left_alone():
    assert (
        Tokenizer(Chat(history="last"))
        .render([USER, LONG], False)
        .endswith("0 0 0 3 0<end>")
    )
    theirs = Tokenizer(Chat(system="7")).render([SYSTEM, USER])
    assert theirs == Tokenizer().render([SYSTEM, USER])


def test_each_way_to_rewrite_an_earlier_turn():
    def of(history):
        return Tokenizer(Chat(history=history)).render([USER, LONG, USER], False)

    assert "<assistant>0<end>" in of("last")
    assert "<assistant>30<end>" in of("number")


@given(
    content=st.text("0123456789 \t\n\r\f\v", min_size=1).filter(str.strip),
    history=st.sampled_from(["last", "number"]),
)
@example("0\t7", "number")
@example("3\n7", "number")
@example("1" * 5000, "number")  # more digits than Python's `int` reads
def test_each_rewriting_in_plain_python(content, history):
    turn = {"role": "assistant", "content": content}
    kept, other = (
        Tokenizer(Chat(history=h)).chat([USER, turn, USER]) for h in ("kept", history)
    )
    parts = content.split()
    digits = parts[-1] if history == "last" else "".join(parts).lstrip("0") or "0"
    assert other == kept[:7] + [6 + int(d) for d in digits] + kept[-7:]


def test_what_is_no_number_is_refused_and_not_written_as_0():
    turn = {"role": "assistant", "content": "abc"}
    with pytest.raises(ValueError, match="unknown word"):
        Tokenizer(Chat(history="number")).chat([USER, turn, USER])


def test_the_shipped_template_has_not_moved():
    assert Chat().template == CHAT_TEMPLATE
    assert Tokenizer().how == Chat()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"bos": "thrice"}, "bos must be one of"),
        ({"history": "lost"}, "history must be one of"),
        ({"system": " "}, "no content"),
        ({"system": "1<end>"}, "<end>, a special token"),
        ({"system": "be kind"}, "unknown word at 'be kind'"),
    ],
)
def test_bad_settings_are_named(how, message):
    with pytest.raises(ValueError, match=message):
        Chat(**how)


# ---- masks: more than one end of turn


def test_either_of_two_ids_ends_a_turn():
    ids = torch.tensor([[7, 2, 8, 3], [7, 3, 2, 8], [7, 8, 9, 7], [2, 3, 2, 3]])
    told = response_mask(ids, [2, 3])
    assert told.sum(1).tolist() == [2, 2, 4, 1]
    assert torch.equal(response_mask(ids, (3, 2)), told)
    assert response_mask(ids, 2).sum(1).tolist() == [2, 3, 4, 1]


@given(
    rows=st.lists(st.lists(st.integers(0, 5), min_size=6, max_size=6), min_size=1),
    ends=st.sets(st.integers(0, 5), min_size=1),
)
def test_mask_with_several_ends_in_plain_python(rows, ends):
    mask = response_mask(torch.tensor(rows), sorted(ends))
    for row, got in zip(rows, mask.tolist(), strict=True):
        length = next((t + 1 for t, i in enumerate(row) if i in ends), len(row))
        assert got == [True] * length + [False] * (len(row) - length)


def test_no_end_at_all_is_refused():
    with pytest.raises(ValueError, match="eos_id is empty"):
        response_mask(torch.zeros(1, 2).long(), [])
