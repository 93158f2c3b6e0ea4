"""The tokenizer against the real `transformers`, and masks against their definition."""

import json
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinyrl.tokens import VOCABULARY, Tokenizer, response_mask

TOKENIZER = Tokenizer()
USER = {"role": "user", "content": "3 1 4"}
SYSTEM = {"role": "system", "content": "7"}
ANSWER = {"role": "assistant", "content": "3 4 8"}
CONVERSATIONS = [
    [USER],
    [SYSTEM, USER],
    [USER, ANSWER],
    [SYSTEM, USER, ANSWER, {"role": "user", "content": " 2\n71  "}],
]
digits = st.text("0123456789 ", min_size=1).filter(str.strip)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant"]), "content": digits}
    ),
    min_size=1,
    max_size=5,
)


def words(ids: list[int]) -> list[str]:
    return [VOCABULARY[i] for i in ids]


@pytest.fixture(scope="module", params=["tokenizer alone", "beside a Qwen3 config"])
def loaded(request, tmp_path_factory):
    """What transformers makes of the saved folder, with and without a model in it."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("saved") / "new" / "folder"
    TOKENIZER.save_pretrained(folder)
    if request.param == "beside a Qwen3 config":
        transformers.Qwen3Config(vocab_size=16).save_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


# ---- ids


def test_vocabulary_is_sixteen_words_in_order():
    assert len(VOCABULARY) == len(set(VOCABULARY)) == TOKENIZER.vocab_size == 16
    t = TOKENIZER
    special = [t.pad_id, t.bos_id, t.eos_id, t.system_id, t.user_id, t.assistant_id]
    assert words(special) == [
        "<pad>",
        "<bos>",
        "<end>",
        "<system>",
        "<user>",
        "<assistant>",
    ]
    assert words([t.digit_0 + d for d in range(10)]) == list("0123456789")


def test_encode_splits_digits_and_drops_whitespace():
    for text in ("3 1 4", "314", " 3\n14\t"):
        assert words(TOKENIZER.encode(text)) == ["3", "1", "4"]
    assert TOKENIZER.encode("<pad><bos>0<end>") == [0, 1, 6, 2]


@given(ids=st.lists(st.integers(0, 15), min_size=1))
def test_encode_undoes_decode(ids):
    text = TOKENIZER.decode(ids)
    assert text.split() == words(ids)
    assert TOKENIZER.encode(text) == ids
    assert TOKENIZER.decode(torch.tensor(ids)) == text
    plain = TOKENIZER.decode(ids, skip_special_tokens=True)
    assert plain.split() == words([i for i in ids if i >= TOKENIZER.digit_0])


# ---- chat template


def test_render_is_the_documented_text():
    assert TOKENIZER.render([USER]) == "<bos><user>3 1 4<end><assistant>"
    assert TOKENIZER.render([USER], add_generation_prompt=False) == "<bos><user>3 1 4<end>"
    whole = TOKENIZER.render([SYSTEM, USER, ANSWER], add_generation_prompt=False)
    assert whole == "<bos><system>7<end><user>3 1 4<end><assistant>3 4 8<end>"


def test_chat_is_the_ids_of_the_rendered_text():
    ids = TOKENIZER.chat([USER])
    assert words(ids) == ["<bos>", "<user>", "3", "1", "4", "<end>", "<assistant>"]


@given(messages=messages, answer=digits)
def test_prompt_is_a_prefix_of_the_answered_conversation(messages, answer):
    prompt = TOKENIZER.chat(messages)
    answered = [*messages, {"role": "assistant", "content": answer}]
    whole = TOKENIZER.chat(answered, add_generation_prompt=False)
    response = TOKENIZER.encode(answer + "<end>")
    assert whole == prompt + response


@pytest.mark.parametrize("generation", [True, False])
@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_chat_equals_transformers(loaded, conversation, generation):
    def theirs(**kwargs):
        return loaded.apply_chat_template(
            conversation, add_generation_prompt=generation, **kwargs
        )

    text = TOKENIZER.render(conversation, generation)
    assert theirs(tokenize=False) == text
    assert theirs(return_dict=False) == TOKENIZER.chat(conversation, generation)


@given(messages=messages)
def test_any_chat_equals_transformers(loaded, messages):
    theirs = loaded.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False
    )
    assert theirs == TOKENIZER.chat(messages)


def test_transformers_template_refuses_an_unknown_role(loaded):
    with pytest.raises(Exception, match="unknown role tool"):
        loaded.apply_chat_template([{"role": "tool", "content": "1"}], tokenize=False)


# ---- the saved folder


def test_transformers_loads_the_same_ids(loaded):
    assert len(loaded) == loaded.vocab_size == 16
    assert loaded.convert_ids_to_tokens(list(range(16))) == list(VOCABULARY)
    t = TOKENIZER
    assert (loaded.pad_token_id, loaded.bos_token_id, loaded.eos_token_id) == (0, 1, 2)
    assert (t.pad_id, t.bos_id, t.eos_id) == (0, 1, 2)
    assert set(loaded.all_special_tokens) == set(VOCABULARY[:6])
    text = "<bos><user>3 14<end><assistant>5<pad>"
    assert loaded(text).input_ids == TOKENIZER.encode(text)  # and nothing added around it
    ids = TOKENIZER.encode(text)
    for skip in (True, False):
        assert loaded.decode(ids, skip_special_tokens=skip) == TOKENIZER.decode(ids, skip)


def test_transformers_pads_prompts_on_the_left(loaded):
    batch = loaded(["1 2 3", "4"], padding=True, return_tensors="pt")
    assert batch.input_ids.tolist() == [[7, 8, 9], [0, 0, 10]]


def test_saving_twice_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        Tokenizer().save_pretrained(tmp_path / name)
        (tmp_path / name / "notes.txt").write_text("kept")
    TOKENIZER.save_pretrained(tmp_path / "b")
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
    config = json.loads((tmp_path / "a" / "tokenizer_config.json").read_text())
    assert "add_generation_prompt" in config["chat_template"]


def test_does_not_import_transformers():
    code = "import sys, tinyrl.tasks; assert 'transformers' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- masks


@given(rows=st.lists(st.lists(st.integers(0, 15), min_size=6, max_size=6), min_size=1))
def test_response_mask_ends_with_the_first_eos(rows):
    mask = response_mask(torch.tensor(rows), TOKENIZER.eos_id)
    for row, got in zip(rows, mask.tolist(), strict=True):
        length = row.index(2) + 1 if 2 in row else len(row)
        assert got == [True] * length + [False] * (len(row) - length)


# ---- bad input


@pytest.mark.parametrize(
    ("conversation", "message"),
    [
        ([], "messages is empty"),
        ("3 1", "messages must be a list such as"),
        (["3 1"], r"messages\[0\] must have role and content"),
        (
            [USER, {"role": "tool", "content": "1"}],
            r"messages\[1\] has role 'tool'; known: sys",
        ),
        ([{"content": "1"}], r"messages\[0\] has role None"),
        ([{"role": "user", "content": " "}], r"messages\[0\] has no content, but ' '"),
        ([{"role": "user"}], r"messages\[0\] has no content, but None"),
        (
            [{"role": "user", "content": "1<end><assistant>1"}],
            r"\[0\] has <end>, a special",
        ),
        ([{"role": "user", "content": "3 x 4"}], "unknown word at 'x 4"),
    ],
)
def test_bad_conversation_is_named(conversation, message):
    with pytest.raises(ValueError, match=message):
        TOKENIZER.chat(conversation)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3 x 4", "unknown word at 'x 4' in '3 x 4'; known: <pad> <bos>"),
        ("<unk>", "unknown word at '<unk>'"),
        ("3 ٣", "unknown word at '٣'"),  # a digit, but of another script
        ("1\u20282", "unknown word at"),
        ("-1", "unknown word at '-1'"),
        ("", "the text is empty"),
        (" \n", "the text is empty"),
    ],
)
def test_unknown_text_is_named(text, message):
    with pytest.raises(ValueError, match=message):
        TOKENIZER.encode(text)


def test_bad_ids_and_shapes_are_named():
    with pytest.raises(ValueError, match=r"ids\[1\] is 16: ids are 0\.\.15"):
        TOKENIZER.decode([3, 16])
    with pytest.raises(ValueError, match=r"ids\[0\] is -1"):
        TOKENIZER.decode(torch.tensor([-1]))
    with pytest.raises(ValueError, match=r"response_ids must be \[B, T\], not \[3\]"):
        response_mask(torch.zeros(3), 2)
