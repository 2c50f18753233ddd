# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Where in a text the answer to a question stands."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, ClassVar

import numpy as np
from transformers import AutoModelForQuestionAnswering, DataCollatorWithPadding, EvalPrediction

from ...evaluation.directions import MEASURES
from ...evaluation.task_metrics import question_answering_metrics
from .options import TaskOptions, option
from .task import Task, row_name

Span = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class QuestionAnsweringOptions(TaskOptions):
    """See [`TaskOptions`]."""

    doc_stride: int | None = option(None, "tokens by which windows overlap; default: a quarter of a row", least=0)
    max_answer_length: int = option(30, "the most tokens of an answer", least=1)
    n_best: int = option(20, "how many beginnings and ends of an answer are tried with each other", least=1)


class QuestionAnswering(Task):
    """Find answers in texts, as in SQuAD (https://huggingface.co/papers/1606.05250). See [`Task`].

    A text that is longer than the model reads is cut into windows, which overlap by `doc_stride` tokens. A window that
    holds the whole answer learns where it is; the others learn that there is none, by pointing to the first token.
    The answer to a question is the best of all its windows. Where some held-out questions have no answer, it is none
    if pointing to the first token scores higher in every window (https://huggingface.co/papers/1806.03822).

    The column of answers holds, as in SQuAD, lists of `text` and `answer_start`, which are empty where there is none.
    """

    name = "question-answering"
    options_class = QuestionAnsweringOptions
    pipeline_tag = "question-answering"
    auto_class = AutoModelForQuestionAnswering
    texts = ("question", "context")
    labels = ("answers",)
    metric = "question_answering"
    cuts: ClassVar = {"lost_answers": "answers that no window holds"}
    honours = tuple(name for name in Task.honours if name != "label_smoothing_factor")  # places are no classes
    baseline_name = "before training"

    def set_up(self) -> None:
        """Check that all answers stand where they are said to."""
        super().set_up()
        given = self.given
        self.stride = self.max_length // 4 if given.doc_stride is None else given.doc_stride
        self.max_answer_length, self.n_best = given.max_answer_length, given.n_best
        if not self.tokenizer.is_fast:
            raise ValueError("question-answering needs a fast tokenizer, which says where tokens stand in a text.")
        question, context = self.columns
        for split_name, split in self.splits.items():
            for number, (text, answers) in enumerate(zip(split[context], split[self.label_column], strict=True)):
                _check_answers(answers, text, row_name(split, split_name, number))
            longest = max(len(ids) for ids in self.tokenizer(list(split[question]))["input_ids"])
            if longest + self.stride >= self.max_length:
                raise ValueError(
                    f"a question of the {split_name} data has {longest} tokens, and windows of {self.max_length} "
                    f"tokens overlap by {self.stride} (doc_stride in --task-options): there is no room for the text."
                )
        self.has_unanswerable = any(not answers["text"] for answers in self.held_out[self.label_column])
        #: Of each held-out window: its question, and where its tokens stand in the text; None outside.
        self.windows: list[tuple[int, list[Span | None]]] = []

    def measuring_options(self) -> dict[str, Any]:
        """Return how windows overlap, and how answers are chosen."""
        return {**asdict(self.given), "doc_stride": self.stride}

    def rows(self, split: Any) -> Any:
        """Return the windows of a split."""
        if split is self.held_out:
            encoded = self._encode(split[:])
            self.windows = [
                (number, list(_spans(encoded, window)))
                for window, number in enumerate(encoded["overflow_to_sample_mapping"])
            ]
        return super().rows(split)

    def _encode(self, batch: Mapping[str, list[Any]]) -> Any:
        return self.tokenizer(
            *(list(batch[name]) for name in self.columns),
            truncation="only_second",
            max_length=self.max_length,
            stride=self.stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )

    def encode(self, batch: Mapping[str, list[Any]]) -> Mapping[str, list[Any]]:
        """Return windows, with the first and the last token of the answer."""
        encoded = self._encode(batch)
        numbers, answers = encoded["overflow_to_sample_mapping"], batch[self.label_column]
        places = [
            answer_place(list(_spans(encoded, window)), answers[number]) for window, number in enumerate(numbers)
        ]
        held = {number for number, place in zip(numbers, places, strict=True) if place != (0, 0)}
        # Of the windows of a question, the first says it.
        lost = [
            bool(answers[number]["text"]) and number not in held and number not in numbers[max(0, window - 1) : window]
            for window, number in enumerate(numbers)
        ]
        inputs = {name: encoded[name] for name in self.tokenizer.model_input_names if name in encoded}
        return {
            **inputs,
            "start_positions": [first for first, _ in places],
            "end_positions": [last for _, last in places],
            "lost_answers": lost,
        }

    def collator(self, model: Any) -> DataCollatorWithPadding:
        """Pad windows on the right, so that places stay what they are."""
        return _PadRight(self.tokenizer)

    def reduce(self, outputs: Any, labels: Any) -> Any:
        """Return the scores of beginnings and ends."""
        return tuple(outputs[:2])

    @property
    def measured(self) -> Iterable[str]:
        """The names of the numbers in `measures`."""
        if not self.has_unanswerable:
            return ("exact_match", "f1")
        some = any(answers["text"] for answers in self.held_out[self.label_column])
        return [name for name in MEASURES["answers"] if some or not name.startswith("HasAns")]

    def measures(self, prediction: EvalPrediction) -> dict[str, Any]:
        """Compare answers as the official script does."""
        starts, ends = tuple(prediction.predictions)
        texts = self.held_out[self.columns[1]]
        found = best_answers(
            texts,
            self.windows,
            starts,
            ends,
            max_answer_length=self.max_answer_length,
            n_best=self.n_best,
            may_be_none=self.has_unanswerable,
        )
        right = self.held_out[self.label_column]
        measured = question_answering_metrics(
            [{"id": number, "prediction_text": text} for number, text in enumerate(found)],
            [{"id": number, "answers": answers} for number, answers in enumerate(right)],
        )
        return {name: value for name, value in measured.items() if not name.endswith("total")}

    def facts(self) -> dict[str, Any]:
        """Add the overlap."""
        return {**super().facts(), "tokens in two windows": self.stride}


class _PadRight(DataCollatorWithPadding):
    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        side, self.tokenizer.padding_side = self.tokenizer.padding_side, "right"
        try:
            return super().__call__(features)
        finally:
            self.tokenizer.padding_side = side


def answer_place(spans: Sequence[Span | None], answers: Mapping[str, Any]) -> Span:
    """Return the first and the last token of an answer in a window; twice 0 if the window does not hold all of it.

    Args:
        spans: where the tokens of the window stand in the text; None for tokens that do not.
        answers: `text` and `answer_start`, of which the first answer is learnt.
    """
    if not answers["text"]:
        return 0, 0
    text = answers["text"][0]
    # Some tokens hold the space before a word, and others do not.
    begin = answers["answer_start"][0] + len(text) - len(text.lstrip())
    end = begin + len(text.strip())
    inside = [(token, span) for token, span in enumerate(spans) if span is not None]
    if not inside or inside[0][1][0] > begin or inside[-1][1][1] < end:
        return 0, 0
    covering = [token for token, (first, last) in inside if last > begin and first < end]
    return (covering[0], covering[-1]) if covering else (0, 0)


def best_answers(
    texts: Sequence[str],
    windows: Sequence[tuple[int, Sequence[Span | None]]],
    starts: np.ndarray,
    ends: np.ndarray,
    *,
    max_answer_length: int = 30,
    n_best: int = 20,
    may_be_none: bool = False,
) -> list[str]:
    """Return the best answer of all windows of each text.

    Args:
        texts: the texts.
        windows: of each, the number of its text, and where its tokens stand in it; None for those that do not.
        starts: scores of tokens as the first of the answer. *Shape:* `(windows, length)`, floating point.
        ends: scores as the last. *Shape:* `(windows, length)`, floating point.
        max_answer_length: the most tokens of an answer.
        n_best: how many beginnings and ends of a window are tried with each other.
        may_be_none: whether "" is the answer where the first token scores higher in every window than the best answer.
    """
    best = [(-np.inf, "")] * len(texts)
    none = [np.inf] * len(texts)
    for (number, spans), start_scores, end_scores in zip(windows, starts, ends, strict=True):
        inside = {token: span for token, span in enumerate(spans) if span is not None}
        none[number] = min(none[number], start_scores[0] + end_scores[0])
        firsts, lasts = (
            sorted(inside, key=scores.__getitem__, reverse=True)[:n_best] for scores in (start_scores, end_scores)
        )
        for first, last in product(firsts, lasts):
            score = start_scores[first] + end_scores[last]
            if first <= last < first + max_answer_length and score > best[number][0]:
                best[number] = (score, texts[number][inside[first][0] : inside[last][1]])
    return [
        "" if may_be_none and null > score else text.strip() for (score, text), null in zip(best, none, strict=True)
    ]


def _spans(encoded: Any, window: int) -> Iterator[Span | None]:
    for sequence, (start, end) in zip(encoded.sequence_ids(window), encoded["offset_mapping"][window], strict=True):
        yield (start, end) if sequence == 1 and start < end else None


def _check_answers(answers: Any, text: str, where: str) -> None:
    if not isinstance(answers, dict) or not all(
        isinstance(answers.get(key), list) for key in ("text", "answer_start")
    ):
        raise ValueError(
            f"{where}: answers = {answers!r:.80} must be lists of `text` and `answer_start`, as in SQuAD."
        )
    if len(answers["text"]) != len(answers["answer_start"]):
        raise ValueError(f"{where}: {len(answers['text'])} answers begin at {len(answers['answer_start'])} places.")
    for answer, start in zip(answers["text"], answers["answer_start"], strict=True):
        stands = text[start : start + len(answer)] if isinstance(start, int) and start >= 0 else None
        if not answer or stands != answer:
            raise ValueError(
                f"{where}: the answer {answer!r:.60} is not at character {start} of the text, which has "
                f"{stands!r:.60} there; remove such rows, or count characters from 0."
            )
