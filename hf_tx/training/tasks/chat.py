# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Answers to instructions, in one turn or several."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from jinja2 import TemplateError
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, DataCollatorForTokenClassification, EvalPrediction

from ...evaluation.directions import MEASURES
from ...models.losses import IGNORE
from .task import Task, row_name

#: What is set where a tokenizer has no chat template: roles in words, and answers that end with eos.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '### ' + message['role'] | capitalize + ':\\n' + message['content'] | trim }}"
    "{{ eos_token if message['role'] == 'assistant' else '' }}{{ '\\n\\n' }}"
    "{% endfor %}"
    "{{ '### Assistant:\\n' if add_generation_prompt else '' }}"
)

Message = Mapping[str, str]


class Chat(Task):
    """Answer instructions, with a causal language model. See [`Task`].

    A row has a prompt and a response, or `messages`: turns with `role` (`system`, `user`, `assistant`) and `content`.
    They become one text by the chat template of the tokenizer; where it has none, `CHAT_TEMPLATE` is set, and saved
    with it. What the assistant says is learnt, in all turns, with the token that ends it; everything else is only
    read. A row that is too long loses its end, and is left out if no answer remains.

    Measured are the perplexity and the accuracy of the tokens of answers, beside the model before the training. An
    unknown token is never right: it is not what was to be said.
    """

    name = "chat"
    hub_name = "text-generation"
    auto_class = AutoModelForCausalLM
    texts = ("prompt",)
    labels = ("messages", "response", "completion")
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

    def set_up(self, **options: Any) -> None:
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
            return batch[self.label_column]
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
                f"no answer begins within {self.max_length} tokens (--max-length): nothing can be learnt."
            )
        return rows

    def encode(self, batch: Mapping[str, list[Any]]) -> Mapping[str, list[Any]]:
        """Encode conversations, with labels for what the assistant says."""
        rendered = [answer_spans(self.tokenizer, messages) for messages in self.conversations(batch)]
        encoded, cut = self.encode_cut(
            [text for text, _ in rendered],
            add_special_tokens=False,  # the template has them
            return_offsets_mapping=True,
        )
        labels = [
            [
                token if any(begin <= start < end for begin, end in spans) else IGNORE
                for token, (start, _) in zip(tokens, offsets, strict=True)
            ]
            for tokens, offsets, (_, spans) in zip(
                encoded["input_ids"], encoded["offset_mapping"], rendered, strict=True
            )
        ]
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


def answer_spans(tokenizer: Any, messages: Sequence[Message]) -> tuple[str, list[tuple[int, int]]]:
    """Return a conversation as one text, and where in it the answers of the assistant begin and end.

    Raises:
        ValueError: the chat template fails, or changes what was said before when a turn is added.
    """

    def render(turns: Sequence[Message], prompts: bool = False) -> str:
        try:
            return tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=prompts)
        except TemplateError as error:
            raise ValueError(f"the tokenizer's chat template does not take the messages: {error}.") from error

    text, spans = render(messages), []
    for number, message in enumerate(messages):
        if message["role"] == "assistant":
            before, after = render(messages[:number], prompts=True), render(messages[: number + 1])
            if not (after.startswith(before) and text.startswith(after)):
                raise ValueError(
                    f"the tokenizer's chat template does not add turn {number} to the turns before it, but changes "
                    "them: what is to be learnt cannot be found. Set another (tokenizer.chat_template)."
                )
            spans.append((len(before), len(after.rstrip())))
    return text, spans


def _check_messages(messages: Any, where: str) -> None:
    if not isinstance(messages, list) or not messages:
        raise ValueError(f"{where}: messages = {messages!r:.60} is no list of turns; leave such rows out.")
    for turn in messages:
        role, content = (turn.get(key) if isinstance(turn, dict) else None for key in ("role", "content"))
        if role not in ("system", "user", "assistant") or not isinstance(content, str) or not content.strip():
            raise ValueError(
                f"{where}: the turn {turn!r:.80} must have a `role` (system, user or assistant) and `content`, a text."
            )
    if messages[0]["role"] == "assistant" or all(turn["role"] != "assistant" for turn in messages):
        raise ValueError(f"{where}: the messages must hold an answer of the assistant, and not begin with it.")
