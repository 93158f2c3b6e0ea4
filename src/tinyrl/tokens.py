"""From messages to token ids: a sixteen-word vocabulary and a real chat template.

The policy only ever sees ids, so the template, the special tokens and the masks are as much
part of a logprob as the weights are. This is the tokenizer that `transformers` and the
engines load (`save_pretrained`), without importing them: the words are split and looked up
by `tokenizers`, and the template is Jinja, rendered with the settings of
`transformers.PreTrainedTokenizerBase.apply_chat_template`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

import tokenizers
from jinja2 import Template
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import models, pre_tokenizers
from torch import Tensor

ROLES = ("system", "user", "assistant")
SPECIAL = ("<pad>", "<bos>", "<end>", *(f"<{role}>" for role in ROLES))
VOCABULARY = (*SPECIAL, *"0123456789")
Messages = Sequence[Mapping[str, str]]  # [{"role": "user", "content": "3 1 4"}, ...]

CHAT_TEMPLATE = """\
{{ bos_token }}
{%- for message in messages %}
    {%- if message.role not in ['system', 'user', 'assistant'] %}
        {{- raise_exception('unknown role ' + message.role) }}
    {%- endif %}
    {{- '<' + message.role + '>' + message.content + eos_token }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<assistant>' }}
{%- endif %}"""


class Tokenizer:
    """Digits and roles as token ids; whitespace only separates.

    >>> Tokenizer().render([{"role": "user", "content": "3 1 4"}])
    '<bos><user>3 1 4<end><assistant>'
    """

    vocab_size = len(VOCABULARY)
    pad_id, bos_id, eos_id, system_id, user_id, assistant_id = range(len(SPECIAL))
    digit_0 = len(SPECIAL)  # the digit d has id digit_0 + d

    def __init__(self) -> None:
        words = {word: i for i, word in enumerate(VOCABULARY)}
        self._words = tokenizers.Tokenizer(models.WordLevel(words))
        split = [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Digits(True),
        ]  # each digit
        self._words.pre_tokenizer = pre_tokenizers.Sequence(split)
        self._words.add_special_tokens(list(SPECIAL))

    def encode(self, text: str) -> list[int]:
        """The ids of a text, special tokens written out; ValueError for an unknown word."""
        _check_words(text)
        return list(self._words.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int] | Tensor, skip_special_tokens: bool = False) -> str:
        """The words of [T] ids, separated by spaces."""
        ids = [int(i) for i in ids]
        for t, i in enumerate(ids):
            if not 0 <= i < self.vocab_size:
                raise ValueError(f"ids[{t}] is {i}: ids are 0..{self.vocab_size - 1}")
        return str(self._words.decode(ids, skip_special_tokens=skip_special_tokens))

    def render(self, messages: Messages, add_generation_prompt: bool = True) -> str:
        """The text that the chat template makes of a conversation."""
        _check_messages(messages)
        return _template().render(
            messages=messages,
            bos_token="<bos>",
            eos_token="<end>",
            add_generation_prompt=add_generation_prompt,
        )

    def chat(self, messages: Messages, add_generation_prompt: bool = True) -> list[int]:
        """The ids of a conversation; the generation prompt opens the assistant's turn."""
        return self.encode(self.render(messages, add_generation_prompt))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write what `transformers.AutoTokenizer.from_pretrained(folder)` reads."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._words.save(str(folder / "tokenizer.json"))
        special = {"bos_token": "<bos>", "eos_token": "<end>", "pad_token": "<pad>"}
        config = special | {
            "additional_special_tokens": list(SPECIAL[3:]),
            "chat_template": CHAT_TEMPLATE,
            "clean_up_tokenization_spaces": False,
            "padding_side": "left",  # a prompt ends where its response begins
            "tokenizer_class": "PreTrainedTokenizerFast",
        }
        for name, content in ("special_tokens_map", special), ("tokenizer_config", config):
            text = json.dumps(content, indent=2) + "\n"
            (folder / f"{name}.json").write_text(text, encoding="utf-8")


@cache
def _template() -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = _raise_exception
    return environment.from_string(CHAT_TEMPLATE)


def _raise_exception(message: str) -> NoReturn:
    """What a chat template calls where it refuses a conversation."""
    raise TemplateError(message)


_WORD = re.compile(rf"\s*({'|'.join(VOCABULARY)})\s*", re.ASCII)


def _check_words(text: str) -> None:
    if not text.strip():
        raise ValueError("the text is empty: there is no token in it")
    at = 0
    while at < len(text):
        word = _WORD.match(text, at)
        if word is None:
            known = " ".join(VOCABULARY)
            raise ValueError(f"unknown word at {text[at:]!r} in {text!r}; known: {known}")
        at = word.end()


def _check_messages(messages: Messages) -> None:
    """What a template would let pass or report without saying where."""
    if not messages:
        raise ValueError("messages is empty: a conversation has at least one")
    for i, message in enumerate(messages):
        if message.get("role") not in ROLES:
            role, known = message.get("role"), ", ".join(ROLES)
            raise ValueError(f"messages[{i}] has role {role!r}; known: {known}")
        content = message.get("content")
        if not isinstance(content, str) or not content.strip():
            raise ValueError(f"messages[{i}] has no content, but {content!r}")
        for token in SPECIAL:  # else a user could close the turn and speak as another role
            if token in content:
                raise ValueError(
                    f"messages[{i}] has {token}, a special token, in its content"
                )


# ---- masks


def response_mask(response_ids: Tensor, eos_id: int) -> Tensor:
    """[B, T] ids -> [B, T] bool: true up to and including the first eos.

    A response that was cut off has no eos, and all of its tokens count.
    """
    if response_ids.ndim != 2:
        raise ValueError(f"response_ids must be [B, T], not {list(response_ids.shape)}")
    is_eos = (response_ids == eos_id).long()
    return is_eos.cumsum(1) - is_eos == 0  # no eos *before* this token
