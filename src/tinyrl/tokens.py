"""From messages to token ids: a sixteen-word vocabulary and a real chat template.

The policy only ever sees ids, so the template, the special tokens and the masks are as much
part of a logprob as the weights are. This is the tokenizer that `transformers` and the
engines load (`save_pretrained`), without importing them: the words are split and looked up
by `tokenizers`, and the template is Jinja, rendered with the settings of
`transformers.PreTrainedTokenizerBase.apply_chat_template`.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NoReturn

import tokenizers
import torch
from jinja2 import Template
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import models, pre_tokenizers, processors
from torch import Tensor

from .formats import check_choices

ROLES = ("system", "user", "assistant")
SPECIAL = ("<pad>", "<bos>", "<end>", *(f"<{role}>" for role in ROLES))
VOCABULARY = (*SPECIAL, *"0123456789")
Messages = Sequence[Mapping[str, str]]  # [{"role": "user", "content": "3 1 4"}, ...]
Ids = Sequence[int] | Tensor  # [T]

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

SYSTEM = """\
{%- if messages[0].role != 'system' %}
    {{- '<system>WORDS' + eos_token }}
{%- endif %}
"""
"""What a template with a system prompt of its own begins with."""

REWRITTEN = {
    "last": "message.content.split() | last",
    "number": "(message.content.split() | join).lstrip('0') or '0'",
}
"""What a template makes of an assistant's turn that another message follows. A number has
no leading zeros; Jinja's own `int` would make 0 of a text that it cannot read."""


@dataclass(frozen=True)
class Chat:
    """What one side of a pair makes of a conversation.

    `bos`: written by the template "once" or not at all; "twice" where the tokenizer, which
    adds one to every text, is given a text that has it already. `system`: what the template
    puts in front of a conversation that says nothing of its own there. `generation_prompt`:
    whether the assistant's turn is opened for it. `history`: the assistant's earlier turns
    are "kept"; or only their "last" word is, as in templates that drop earlier reasoning
    (Qwen3's); or each is read as a "number" and written again, as happens to the arguments
    of a tool call: 0 7 becomes 7.
    """

    bos: Literal["once", "twice", "none"] = "once"
    system: str = ""
    generation_prompt: bool = True
    history: Literal["kept", "last", "number"] = "kept"

    def __post_init__(self) -> None:
        check_choices(self)
        if self.system:
            _check_messages([{"role": "system", "content": self.system}])
            _check_words(self.system)

    @property
    def template(self) -> str:
        """The Jinja source, as `transformers` reads it: an edit of the right one."""
        source = CHAT_TEMPLATE
        if self.bos == "none":
            source = source.replace("{{ bos_token }}", "")
        if self.system:
            own = SYSTEM.replace("WORDS", self.system)
            source = source.replace("{%- for", own + "{%- for", 1)
        if self.history != "kept":
            earlier = "message.role == 'assistant' and not loop.last"
            other = f"({REWRITTEN[self.history]}) if {earlier} else message.content"
            source = source.replace("message.content", f"({other})")
        return source


class Tokenizer:
    """Digits and roles as token ids; whitespace only separates.

    >>> Tokenizer().render([{"role": "user", "content": "3 1 4"}])
    '<bos><user>3 1 4<end><assistant>'
    """

    vocab_size = len(VOCABULARY)
    pad_id, bos_id, eos_id, system_id, user_id, assistant_id = range(len(SPECIAL))
    digit_0 = len(SPECIAL)  # the digit d has id digit_0 + d

    def __init__(self, chat: Chat | None = None) -> None:
        self.how = chat or Chat()
        words = {word: i for i, word in enumerate(VOCABULARY)}
        self._words = tokenizers.Tokenizer(models.WordLevel(words))
        split = [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Digits(True),
        ]  # each digit
        self._words.pre_tokenizer = pre_tokenizers.Sequence(split)
        self._words.add_special_tokens(list(SPECIAL))
        if self.how.bos == "twice":
            self._words.post_processor = processors.TemplateProcessing(
                single="<bos> $A", special_tokens=[("<bos>", self.bos_id)]
            )

    def encode(self, text: str) -> list[int]:
        """The ids of a text, special tokens written out; ValueError for an unknown word."""
        _check_words(text)
        return list(self._words.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Ids, skip_special_tokens: bool = False) -> str:
        """The words of [T] ids, separated by spaces."""
        ids = _whole(ids)
        for t, i in enumerate(ids):
            if not 0 <= i < self.vocab_size:
                raise ValueError(f"ids[{t}] is {i}: ids are 0..{self.vocab_size - 1}")
        return str(self._words.decode(ids, skip_special_tokens=skip_special_tokens))

    def render(self, messages: Messages, add_generation_prompt: bool | None = None) -> str:
        """The text that the chat template makes of a conversation.

        The generation prompt opens the assistant's turn: as `Chat` says, unless told.
        """
        _check_messages(messages)
        opened = add_generation_prompt
        return _compiled(self.how.template).render(
            messages=messages,
            bos_token="<bos>",
            eos_token="<end>",
            add_generation_prompt=self.how.generation_prompt if opened is None else opened,
        )

    def chat(
        self, messages: Messages, add_generation_prompt: bool | None = None
    ) -> list[int]:
        """The ids of a conversation: its text, through the tokenizer as it is called."""
        text = self.render(messages, add_generation_prompt)
        _check_words(text)
        return list(self._words.encode(text).ids)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write what `transformers.AutoTokenizer.from_pretrained(folder)` reads."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._words.save(str(folder / "tokenizer.json"))
        special = {"bos_token": "<bos>", "eos_token": "<end>", "pad_token": "<pad>"}
        config = special | {
            "additional_special_tokens": list(SPECIAL[3:]),
            "chat_template": self.how.template,
            "clean_up_tokenization_spaces": False,
            "padding_side": "left",  # a prompt ends where its response begins
            "tokenizer_class": "PreTrainedTokenizerFast",
        }
        for name, content in ("special_tokens_map", special), ("tokenizer_config", config):
            text = json.dumps(content, indent=2) + "\n"
            (folder / f"{name}.json").write_text(text, encoding="utf-8")


@cache
def _compiled(source: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = _raise_exception
    return environment.from_string(source)


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
    if isinstance(messages, str) or not isinstance(messages, Sequence):
        raise ValueError(
            'messages must be a list such as [{"role": "user", "content": "3 1"}], '
            f"not {messages!r}"
        )
    if not messages:
        raise ValueError("messages is empty: a conversation has at least one")
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise ValueError(f"messages[{i}] must have role and content, not {message!r}")
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


# ---- ids and masks


def _whole(ids: Ids) -> list[int]:
    """As a list; `int` would cut a float, and take two logprobs for one id."""
    try:
        return [operator.index(i) for i in ids]
    except TypeError:
        raise ValueError(f"ids must be whole numbers [T], not {ids}") from None


def first_difference(a: Ids, b: Ids) -> int | None:
    """Where two lists of ids part: the first place at which they differ or one has ended.

    None where they are the same. To be asked before any logprob is compared.
    """
    a, b = _whole(a), _whole(b)
    for t, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return t
    return None if len(a) == len(b) else min(len(a), len(b))


def response_mask(response_ids: Tensor, eos_id: int | Sequence[int]) -> Tensor:
    """[B, T] ids -> [B, T] bool: true up to and including the first end of turn.

    `eos_id` is one id, or all that end a turn: many models have two. A response that was
    cut off has none, and all of its tokens count.
    """
    if response_ids.ndim != 2:
        raise ValueError(f"response_ids must be [B, T], not {list(response_ids.shape)}")
    ends = [eos_id] if isinstance(eos_id, int) else list(eos_id)
    if not ends:
        raise ValueError("eos_id is empty: at least one id ends a turn")
    is_eos = torch.isin(response_ids, torch.tensor(ends)).long()
    return is_eos.cumsum(1) - is_eos == 0  # no eos *before* this token
