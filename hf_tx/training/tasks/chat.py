# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Answers to instructions, in one turn or several."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from jinja2 import TemplateError
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, DataCollatorForTokenClassification, EvalPrediction
from transformers.utils import logging

from ...evaluation.directions import MEASURES
from ...models.losses import IGNORE
from .task import Task, row_name

logger = logging.get_logger(__name__)

#: What is set where a tokenizer has no chat template: roles in words, answers that end with eos, and tools and their
#: calls as JSON.
CHAT_TEMPLATE = (
    "{% if tools %}{{ '### Tools:\\n' }}"
    "{% for tool in tools %}{{ tool | tojson + '\\n' }}{% endfor %}{{ '\\n' }}{% endif %}"
    "{% for message in messages %}"
    "{{ '### ' + message['role'] | capitalize }}"
    "{% for key in ('name', 'tool_call_id') if message[key] %}{{ ' ' + message[key] }}{% endfor %}"
    "{{ ':\\n' + message['content'] | trim }}"
    "{% for call in message['tool_calls'] or [] %}"
    "{{ ('' if loop.first and not message['content'] | trim else '\\n') + call | tojson }}"
    "{% endfor %}"
    "{{ eos_token if message['role'] == 'assistant' else '' }}{{ '\\n\\n' }}"
    "{% endfor %}"
    "{{ '### Assistant:\\n' if add_generation_prompt else '' }}"
)

Message = Mapping[str, Any]
_ROLES = ("system", "user", "assistant", "tool")
# Columns that a chat template is given beside the messages.
_OF_TEMPLATE = ("tools", "documents")


class Chat(Task):
    """Answer instructions, with a causal language model. See [`Task`].

    A row has a prompt and a response, or `messages`: turns with `role` (`system`, `user`, `assistant`, `tool`) and
    `content`, which may be left out beside `tool_calls`. The columns `tools` (JSON schemas, or JSON that holds them)
    and `documents` go to the chat template too. All of it becomes one text by the chat template of the tokenizer;
    where it has none, `CHAT_TEMPLATE` is set, and saved with it. What the template does not show, of a column or of a
    turn, is refused. What the assistant says is learnt, in all turns, with the token that ends it; everything else is
    only read. A row that is too long loses its end, and is left out if no answer remains.

    Measured are the perplexity and the accuracy of the tokens of answers, beside the model before the training. An
    unknown token is never right: it is not what was to be said.
    """

    name = "chat"
    pipeline_tag = "text-generation"
    auto_class = AutoModelForCausalLM
    texts = ("prompt",)
    labels = ("messages", "response", "completion")
    reads = _OF_TEMPLATE
    baseline_name = "before training"
    cuts: ClassVar = {
        "cut_rows": "rows that were cut",
        "left_out": "rows left out",
        "unknown_answers": "rows whose answers have unknown tokens",
    }

    def choose_columns(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the column of prompts, and none where there are messages."""
        if not columns and "messages" in self.first_split.column_names:
            return ()
        return super().choose_columns(columns)

    def set_up(self) -> None:
        """Check the turns, and give the tokenizer a template if it has none."""
        if not self.tokenizer.is_fast or self.tokenizer.eos_token_id is None:
            raise ValueError("chat needs a fast tokenizer with an eos_token, which ends an answer.")
        self.has_messages = not self.columns or self.label_column == "messages"
        if self.has_messages:
            self.columns = ()
            for split_name, split in self.splits.items():
                for number, messages in enumerate(split[self.label_column]):
                    _check_messages(messages, row_name(split, split_name, number))
        else:
            self.check_texts(*self.columns, self.label_column)
        if self.tokenizer.chat_template is None:
            # Templates say which special tokens there are; this is what the tokenizer puts in front of any text.
            first = self.tokenizer("a")["input_ids"][:1]
            begins = first == [self.tokenizer.bos_token_id]
            self.tokenizer.chat_template = ("{{ bos_token }}" if begins else "") + CHAT_TEMPLATE

    def conversations(self, batch: Mapping[str, list[Any]]) -> list[Sequence[Message]]:
        """Return rows as messages."""
        if self.has_messages:
            return [[_turn(turn) for turn in messages] for messages in batch[self.label_column]]
        return [
            [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]
            for prompt, response in zip(batch[self.columns[0]], batch[self.label_column], strict=True)
        ]

    def rows(self, split: Any) -> Any:
        """Return the rows in which something is to be learnt.

        Raises:
            ValueError: there is none.
        """
        rows = super().rows(split).filter(lambda row: any(label != IGNORE for label in row["labels"]))
        if not len(rows):
            raise ValueError(
                f"no answer begins within {self.max_length} tokens (--max-length): there is nothing to learn."
            )
        return rows

    def encode(self, batch: Mapping[str, list[Any]]) -> Mapping[str, list[Any]]:
        """Encode conversations, with labels for what the assistant says."""
        names = [name for name in _OF_TEMPLATE if name in batch]
        rendered = [
            answer_spans(self.tokenizer, messages, **{name: _listed(batch[name][row], name) for name in names})
            for row, messages in enumerate(self.conversations(batch))
        ]
        encoded, cut = self.encode_cut(
            [text for text, _ in rendered],
            add_special_tokens=False,  # the template has them
            return_offsets_mapping=True,
        )
        labels = [
            [
                token if any(overlaps(offset, span) for span in spans) else IGNORE
                for token, offset in zip(tokens, offsets, strict=True)
            ]
            for tokens, offsets, (_, spans) in zip(
                encoded["input_ids"], encoded["offset_mapping"], rendered, strict=True
            )
        ]
        for offsets, (text, spans) in zip(encoded["offset_mapping"], rendered, strict=True):
            joint = [text[start:stop] for start, stop in offsets for begin, _ in spans if start < begin < stop]
            if joint:
                logger.warning_once(
                    "the chat template ends a prompt with a character that is one token with the beginning of an "
                    f"answer ({joint[0]!r}). That token is learnt, but generate() is given the character by itself; "
                    "a template whose prompts end with a special token has no such token (tokenizer.chat_template)."
                )
        inputs = {name: encoded[name] for name in ("input_ids", "attention_mask")}
        left_out = [all(label == IGNORE for label in row) for row in labels]
        unknown = [self.unknown in row for row in labels]
        return {**inputs, "labels": labels, "cut_rows": cut, "left_out": left_out, "unknown_answers": unknown}

    def collator(self, model: Any) -> DataCollatorForTokenClassification:
        """Pad tokens and their labels."""
        return DataCollatorForTokenClassification(self.tokenizer)

    def reduce(self, outputs: Any, labels: torch.Tensor) -> torch.Tensor:
        """Return for each row the summed loss of its answers, the tokens that are predicted right, and all of them.
        *Shape:* `(rows, 3)`, float32."""
        logits, targets = super().reduce(outputs, labels)[:, :-1].float(), labels[:, 1:]
        losses = cross_entropy(logits.transpose(1, 2), targets, ignore_index=IGNORE, reduction="none")
        right = logits.argmax(-1) == targets
        if self.unknown is not None:
            right &= targets != self.unknown
        return torch.stack([losses.sum(1), right.sum(1).float(), (targets != IGNORE).sum(1).float()], dim=1)

    @property
    def measured(self) -> Iterable[str]:
        """The names of the numbers in `measures`."""
        return MEASURES["chat"]

    def measures(self, prediction: EvalPrediction) -> dict[str, Any]:
        """Return the perplexity and the accuracy of the tokens of answers."""
        sums: Any = prediction.predictions
        loss, right, count = sums.sum(0, dtype=np.float64)
        return {"answer_perplexity": float(np.exp(loss / count)), "answer_token_accuracy": float(right / count)}


def overlaps(token: tuple[int, int], span: tuple[int, int]) -> bool:
    """Return whether a token has a part in a span of the text. One of no characters is where it stands."""
    start, stop = token
    return start < span[1] and max(stop, start + 1) > span[0]


def answer_spans(
    tokenizer: Any, messages: Sequence[Message], **given: list[Any] | None
) -> tuple[str, list[tuple[int, int]]]:
    """Return a conversation as one text, and where in it the answers of the assistant begin and end.

    Args:
        tokenizer: has a chat template.
        messages: the turns.
        **given: what the template is given beside them: `tools`, `documents`.

    Raises:
        ValueError: the chat template fails, does not show something that is given, or changes what was said before
            when a turn is added.
    """
    given = {name: value for name, value in given.items() if value}

    def render(turns: Sequence[Message], prompts: bool = False, options: Mapping[str, Any] = given) -> str:
        try:
            return tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=prompts, **options)
        except (TemplateError, TypeError) as error:
            raise ValueError(f"the tokenizer's chat template does not take the messages: {error}.") from error

    text, spans = render(messages), []
    for name in given:
        if render(messages, options={other: given[other] for other in given if other != name}) == text:
            raise ValueError(_not_shown(f"the column {name!r}", given[name]))
    for number, message in enumerate(messages):
        for key in message.keys() - {"role", "content"}:
            without = {name: value for name, value in message.items() if name != key}
            if render([*messages[:number], without, *messages[number + 1 :]]) == text:
                raise ValueError(_not_shown(f"{key!r} of turn {number}", message[key]))
        if message["role"] == "assistant":
            before, after = render(messages[:number], prompts=True), render(messages[: number + 1])
            if not (after.startswith(before) and text.startswith(after)):
                raise ValueError(
                    f"the tokenizer's chat template does not add turn {number} to the turns before it, but changes "
                    "them: what is to be learnt cannot be found. Set another (tokenizer.chat_template)."
                )
            spans.append((len(before), len(after.rstrip())))
    return text, spans


def _not_shown(what: str, value: Any) -> str:
    return (
        f"the tokenizer's chat template does not show {what} ({value!r:.60}), which nothing would be learnt from: "
        "leave it out of the data, or set a template that shows it (tokenizer.chat_template)."
    )


def _without_null(value: Any) -> Any:
    """Return a value of a table without what is null: a table gives all rows the keys that one of them has."""
    if isinstance(value, Mapping):
        return {key: _without_null(each) for key, each in value.items() if each is not None}
    return [_without_null(each) for each in value] if isinstance(value, list) else value


def _turn(turn: Message) -> Message:
    """Return a turn as chat templates take it: without keys that it does not have, and with a text as its content."""
    kept = {key: value for key, value in _without_null(turn).items() if value not in ([], {}, "")}
    return {"role": kept.pop("role"), "content": kept.pop("content", ""), **kept}


def _listed(value: Any, name: str) -> list[Any] | None:
    """Return a list of a column, which may be written as JSON.

    Raises:
        ValueError: it is something else.
    """
    found = value
    if isinstance(value, str) and value.strip():
        try:
            found = json.loads(value)
        except json.JSONDecodeError:
            found = value
    found = _without_null(found) or None
    if found is not None and (not isinstance(found, list) or not all(isinstance(each, dict) for each in found)):
        raise ValueError(f"{name} = {value!r:.80} is not a list of objects, nor JSON of one; remove such rows.")
    return found


def _check_messages(messages: Any, where: str) -> None:
    if not isinstance(messages, list) or not messages:
        raise ValueError(f"{where}: messages = {messages!r:.60} is not a list of turns; remove such rows.")
    for turn in messages:
        found = turn if isinstance(turn, dict) else {}
        role, content, calls = (found.get(key) for key in ("role", "content", "tool_calls"))
        says = isinstance(content, str) and bool(content.strip())
        if role not in _ROLES or not (says or (role == "assistant" and calls and content in (None, ""))):
            raise ValueError(
                f"{where}: the turn {turn!r:.80} must have a `role` (system, user, assistant or tool) and `content`, "
                "a text, which only the assistant may leave out, beside `tool_calls`."
            )
    if messages[0]["role"] == "assistant" or all(turn["role"] != "assistant" for turn in messages):
        raise ValueError(f"{where}: the messages must hold an answer of the assistant, and not begin with it.")
