# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Rows of tasks: words and their tags, answers and windows, what the assistant says, classes and their numbers."""

import json
import logging
from typing import Any

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, Value
from tokenizers import processors
from transformers import BertTokenizer, ByT5Tokenizer, EvalPrediction, PreTrainedConfig, PreTrainedTokenizerBase

from hf_tx.evaluation import seq2seq_metrics
from hf_tx.tokenization import train_tokenizer
from hf_tx.training.tasks import Chat, QuestionAnswering, Seq2Seq, SequenceClassification, TokenClassification
from hf_tx.training.tasks.labels import Labels
from hf_tx.training.tasks.question_answering import answer_place, best_answers

TEXTS = ["The river runs past the old mill.", "Nobody said hello to the miller, and he said nothing.", "Oslo is cold."]
ALGORITHMS = {"encoder": "wordpiece", "decoder": "bpe", "encoder-decoder": "unigram"}


@pytest.fixture(scope="module", params=ALGORITHMS)
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerBase:
    """Tokenizers that mark words in three ways: ## within, a space in front, and one in front of all."""
    return tokenizer_of(request.param)


def tokenizer_of(family: str) -> PreTrainedTokenizerBase:
    return train_tokenizer(
        TEXTS * 2,
        algorithm=ALGORITHMS[family],
        family=family,
        vocab_size={"unigram": 60}.get(ALGORITHMS[family], 290),
        extra_ids=0,
        show_progress=False,
    )


def task_of(kind: Any, tokenizer: Any, rows: list[dict[str, Any]], **options: Any) -> Any:
    data = Dataset.from_list(rows)
    return kind(tokenizer, PreTrainedConfig(), data, data, **{"max_length": 64, **options})


# --------------------------------------------------------------------------------------------------------------- words
def test_the_first_token_of_a_word_has_its_tag(tokenizer: PreTrainedTokenizerBase) -> None:
    words = ["Nobody", "thrills", "Oslo", ",", "mill"]
    tags = ["B-PER", "O", "B-LOC", "O", "I-LOC"]
    task = task_of(TokenClassification, tokenizer, [{"tokens": words, "tags": tags}])
    (row,) = task.train_rows
    assert row["input_ids"] == tokenizer(" ".join(words))["input_ids"]
    begins = [at for at, label in enumerate(row["labels"]) if label != -100]
    assert [task.classes.names[row["labels"][at]] for at in begins] == tags
    # From one beginning to the next, tokens spell one word.
    special = set(tokenizer.all_special_ids)
    for word, start, end in zip(words, begins, [*begins[1:], len(row["input_ids"])], strict=True):
        ids = [token for token in row["input_ids"][start:end] if token not in special]
        assert tokenizer.decode(ids).replace(" ", "") == word
    assert len(begins) < sum(token not in special for token in row["input_ids"])  # some word has several tokens


def test_tags_that_are_no_entities_are_measured_one_by_one() -> None:
    rows = [{"tokens": ["The", "river", "runs"], "tags": ["DET", "NOUN", "VERB"]}] * 2
    task = task_of(TokenClassification, tokenizer_of("encoder"), rows)
    assert task.baseline()["accuracy"] == pytest.approx(1 / 3)
    assert (
        "overall_f1"
        in task_of(
            TokenClassification, tokenizer_of("encoder"), [{"tokens": ["Oslo", "is"], "tags": ["B-LOC", "O"]}]
        ).baseline()
    )


def names_of(measures: dict[str, Any]) -> set[str]:
    return {name for name, value in measures.items() if isinstance(value, float)}


def predicted(task: Any) -> dict[str, Any]:
    """Return what a model is measured as that is right wherever it was trained to be."""
    rows = task.held_out_rows["labels"]
    labels = np.array([row + [-100] * (max(map(len, rows)) - len(row)) for row in rows])
    return task.measures(EvalPrediction(predictions=np.where(labels == -100, 0, labels), label_ids=labels))


def test_entities_beyond_the_cut_are_missed(tokenizer: PreTrainedTokenizerBase) -> None:
    words, tags = ["Oslo", "is", "cold", ","] * 4, ["B-LOC", "O", "O", "O"] * 4
    whole = task_of(TokenClassification, tokenizer, [{"tokens": words, "tags": tags}] * 2, max_length=256)
    assert predicted(whole)["overall_recall"] == 1.0
    assert whole.facts()["rows that were cut"] == "0 of 2 (training data), 0 of 2 (held-out data)"
    begins = [at for at, label in enumerate(whole.train_rows[0]["labels"]) if label != -100]
    half = begins[8] + tokenizer.num_special_tokens_to_add() - begins[0]  # eight words, with two of four entities
    rows = [{"tokens": words, "tags": tags}, {"tokens": words[:4], "tags": tags[:4]}]
    cut = task_of(TokenClassification, tokenizer, rows, max_length=half)
    found = predicted(cut)
    assert found["overall_recall"] == pytest.approx(3 / 5)
    assert (found["overall_precision"], found["per_class"]["LOC"]["support"]) == (1.0, 5)
    assert found["overall_accuracy"] == pytest.approx(18 / 20)
    assert cut.cut["held-out"] == {"cut_rows": 1, "unread_rows": 1}
    assert cut.facts()["rows that were cut"] == "1 of 2 (training data), 1 of 2 (held-out data)"
    # The baseline is measured on the same words.
    assert cut.baseline()["overall_accuracy"] == pytest.approx(15 / 20)


@pytest.mark.parametrize("nothing", ["\u200b", "\u00ad"])
def test_words_that_the_tokenizer_makes_nothing_of_are_measured(nothing: str) -> None:
    tokenizer = BertTokenizer(vocab={"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "[PAD]": 3, "[MASK]": 4, "Oslo": 5, "is": 6})
    words = ["Oslo", nothing, "is"]
    task = task_of(TokenClassification, tokenizer, [{"tokens": words, "tags": ["B-LOC", "B-LOC", "O"]}])
    assert len(task.train_rows[0]["input_ids"]) == 4
    assert predicted(task)["overall_recall"] == 0.5
    # Without a tag for what is none, it is wrong, and no class gets it.
    task = task_of(TokenClassification, tokenizer, [{"tokens": words, "tags": ["NOUN", "NOUN", "VERB"]}])
    found = predicted(task)
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["per_class"]["NOUN"] == {"precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3), "support": 2}
    assert set(found["per_class"]) == {"NOUN", "VERB"}
    # A row of nothing else cannot be run, but is measured.
    rows = [{"tokens": [nothing], "tags": ["B-LOC"]}, {"tokens": words, "tags": ["B-LOC", "O", "O"]}]
    task = task_of(TokenClassification, tokenizer, rows)
    assert len(task.held_out_rows) == 1
    assert predicted(task)["overall_recall"] == 0.5
    assert names_of(predicted(task)) == set(task.measured)
    with pytest.raises(ValueError, match="no word begins within 64 tokens"):
        task_of(TokenClassification, tokenizer, [{"tokens": [nothing] * 2, "tags": ["B-LOC", "O"]}])


# ------------------------------------------------------------------------------------------------------------- answers
CONTEXT = " ".join([TEXTS[0], TEXTS[1], TEXTS[2], TEXTS[0]])


def question(answer: str) -> dict[str, Any]:
    starts = [CONTEXT.index(answer)] if answer else []
    answers = {"text": [answer] if answer else [], "answer_start": starts}
    return {"question": "Who said nothing?", "context": CONTEXT, "answers": answers}


def test_windows_hold_the_whole_answer_or_none(tokenizer: PreTrainedTokenizerBase) -> None:
    asked = len(tokenizer("Who said nothing?")["input_ids"])
    room = len(tokenizer(CONTEXT)["input_ids"]) // 3
    rows = [question("Oslo"), question("")]
    task = task_of(QuestionAnswering, tokenizer, rows, max_length=asked + room, doc_stride=room // 4)
    places = [(row["start_positions"], row["end_positions"]) for row in task.train_rows]
    found = 0
    for (number, spans), (first, last) in zip(task.windows, places, strict=True):
        inside = [span for span in spans if span is not None]
        begin = CONTEXT.index("Oslo")
        if number == 0 and inside[0][0] <= begin and inside[-1][1] >= begin + 4:
            assert CONTEXT[spans[first][0] : spans[last][1]].strip() == "Oslo"
            found += 1
        else:
            assert (first, last) == (0, 0)
    assert found >= 1
    assert len(places) > 2 + found  # windows without it
    assert task.cut["training"] == {"lost_answers": 0}
    covered = {at for number, spans in task.windows if number == 0 for span in spans if span for at in range(*span)}
    assert all(at in covered or CONTEXT[at] == " " for at in range(len(CONTEXT)))


def measured_of_nothing(task: Any) -> dict[str, Any]:
    scores = np.zeros((len(task.windows), max(len(spans) for _, spans in task.windows)))
    return task.measures(EvalPrediction(predictions=(scores, scores), label_ids=None))


def test_answers_that_no_window_holds_are_counted(tokenizer: PreTrainedTokenizerBase) -> None:
    asked = len(tokenizer("Who said nothing?")["input_ids"])
    room = len(tokenizer(CONTEXT)["input_ids"]) // 3
    rows = [question(CONTEXT[1:-1]), question("Oslo"), question("")]
    task = task_of(QuestionAnswering, tokenizer, rows, max_length=asked + room, doc_stride=room // 4)
    assert len(task.windows) > len(rows)
    assert set(measured_of_nothing(task)) == set(task.measured)
    without = task_of(QuestionAnswering, tokenizer, rows[:2], max_length=asked + room, doc_stride=room // 4)
    assert set(measured_of_nothing(without)) == set(without.measured) == {"exact_match", "f1"}
    assert task.facts()["answers that no window holds"] == "1 of 3 (training data), 1 of 3 (held-out data)"


@pytest.mark.parametrize("trim", [False, True])
def test_an_answer_is_its_words_whoever_holds_the_spaces(trim: bool) -> None:
    tokenizer = tokenizer_of("decoder")
    tokenizer.backend_tokenizer.post_processor = processors.ByteLevel(trim_offsets=trim)
    for answer in ("old mill", " old mill", "the old ", "the"):
        task = task_of(QuestionAnswering, tokenizer, [question(answer)], max_length=512)
        (row,) = task.train_rows
        ids = row["input_ids"][row["start_positions"] : row["end_positions"] + 1]
        assert tokenizer.decode(ids).strip() == answer.strip()


def test_an_answer_that_is_cut_by_the_window_is_none() -> None:
    spans = [None, (10, 14), (15, 20), None]
    assert answer_place(spans, {"text": ["x" * 4], "answer_start": [10]}) == (1, 1)
    assert answer_place(spans, {"text": ["x" * 10], "answer_start": [10]}) == (1, 2)
    assert answer_place(spans, {"text": ["x" * 4], "answer_start": [9]}) == (0, 0)
    assert answer_place(spans, {"text": ["x" * 4], "answer_start": [17]}) == (0, 0)
    # A space that begins or ends an answer is in no token, where tokens are words.
    assert answer_place(spans, {"text": [" xxxx "], "answer_start": [9]}) == (1, 1)


def test_the_best_answer_of_all_windows_wins() -> None:
    text = "one two three"
    windows = [(0, [None, (0, 3), (4, 7)]), (0, [None, (4, 7), (8, 13)]), (1, [None, (0, 3), (4, 7)])]
    starts, ends = np.zeros((3, 3)), np.zeros((3, 3))
    starts[1, 1], ends[1, 2] = 5, 4  # "two three", in the second window
    starts[0, 1], ends[0, 1] = 4, 4
    starts[2, 2], ends[2, 1] = 9, 9  # ends before it begins: not an answer
    starts[2, 0] = 20
    for options, expected in (
        ({}, ["two three", "two"]),
        ({"max_answer_length": 1}, ["one", "two"]),
        ({"may_be_none": True}, ["two three", ""]),
    ):
        found = best_answers([text, text], windows, starts, ends, **options)
        assert found == expected, options
    starts[0, 0] = 50  # that the first window holds no answer says nothing of the second
    assert best_answers([text, text], windows, starts, ends, may_be_none=True)[0] == "two three"


# --------------------------------------------------------------------------------------------------------------- chats
TURNS = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "Who runs past the mill?"},
    {"role": "assistant", "content": "The river."},
    {"role": "user", "content": "Where is it cold?"},
    {"role": "assistant", "content": "Oslo"},
]
CHATML = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + eos_token + '\\n' }}{% endfor %}"
    "{{ '<|assistant|>' if add_generation_prompt else '' }}"
)


@pytest.mark.parametrize("template", [None, CHATML])
@pytest.mark.parametrize("family", ["decoder", "encoder-decoder"])
def test_only_answers_are_learnt_with_their_ends(family: str, template: str | None) -> None:
    tokenizer = tokenizer_of(family)
    tokenizer.chat_template = template
    task = task_of(Chat, tokenizer, [{"messages": TURNS}], max_length=512)
    (row,) = task.train_rows
    text = tokenizer.apply_chat_template(TURNS, tokenize=False)
    assert row["input_ids"] == tokenizer(text, add_special_tokens=False)["input_ids"]
    assert row["input_ids"] == tokenizer.apply_chat_template(TURNS, return_dict=False)
    runs, previous = [], False
    for token, label in zip(row["input_ids"], row["labels"], strict=True):
        assert label in (-100, token)
        if label != -100:
            runs = [*runs[:-1], [*runs[-1], token]] if previous else [*runs, [token]]
        previous = label != -100
    assert [tokenizer.decode(run[:-1]).strip() for run in runs] == ["The river.", "Oslo"]
    assert [run[-1] for run in runs] == [tokenizer.eos_token_id] * 2
    # What comes before an answer is what generate() is given.
    prompt = tokenizer.apply_chat_template(TURNS[:2], add_generation_prompt=True, return_dict=False)
    assert row["input_ids"][: len(prompt)] == prompt
    assert row["labels"][len(prompt)] != -100


def test_a_prompt_and_a_response_are_two_turns() -> None:
    tokenizer = tokenizer_of("decoder")
    task = task_of(Chat, tokenizer, [{"prompt": "Where is it cold?", "response": "Oslo"}])
    turns = [{"role": "user", "content": "Where is it cold?"}, {"role": "assistant", "content": "Oslo"}]
    (row,) = task.train_rows
    assert row["input_ids"] == tokenizer.apply_chat_template(turns, return_dict=False)
    assert row["input_ids"][0] == tokenizer.bos_token_id
    assert tokenizer.bos_token_id not in row["input_ids"][1:]


def test_answers_that_are_cut_off_are_left_out() -> None:
    rows = [{"prompt": "a" * size, "response": "Oslo"} for size in (1, 100)]
    task = task_of(Chat, tokenizer_of("decoder"), rows)
    assert len(task.train_rows) == 1
    assert task.facts()["rows left out"] == "1 of 2 (training data), 1 of 2 (held-out data)"
    assert task.facts()["rows that were cut"] == task.facts()["rows left out"]
    with pytest.raises(ValueError, match="no answer begins within 64 tokens"):
        task_of(Chat, tokenizer_of("decoder"), rows[1:])


def test_perplexity_and_accuracy_are_those_of_answer_tokens() -> None:
    task = task_of(Chat, tokenizer_of("decoder"), [{"prompt": "a", "response": "b"}])
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 6, 11, generator=generator)
    labels = torch.randint(0, 11, (3, 6), generator=generator)
    labels[0, :4] = labels[1, 3:] = -100
    labels[2, 3] = logits[2, 2].argmax()
    losses, right = [], []
    for row in range(3):
        for at in range(1, 6):
            if labels[row, at] != -100:
                losses.append(-logits[row, at - 1].log_softmax(-1)[labels[row, at]].item())
                right.append(bool(logits[row, at - 1].argmax() == labels[row, at]))

    class Prediction:
        predictions = task.reduce((logits, None), labels).numpy()

    assert task.unknown is None  # bytes know all
    found = task.measures(Prediction)
    assert set(found) == set(task.measured)
    assert found["answer_perplexity"] == pytest.approx(np.exp(np.mean(losses)))
    assert found["answer_token_accuracy"] == pytest.approx(np.mean(right))
    assert 0 < np.mean(right) < 1


def test_an_unknown_token_is_no_right_answer() -> None:
    tokenizer = tokenizer_of("encoder-decoder")
    task = task_of(Chat, tokenizer, [{"prompt": "Oslo", "response": "1961"}, {"prompt": "Oslo", "response": "Oslo"}])
    assert task.cut["held-out"]["unknown_answers"] == 1
    labels = torch.tensor([[-100, task.unknown, tokenizer.eos_token_id]])
    logits = torch.nn.functional.one_hot(labels.roll(-1, 1).clamp(min=0), len(tokenizer)).float()
    assert task.reduce((logits,), labels)[0, 1:].tolist() == [1, 2]


SPACED = (  # ends with a space, which byte-level BPE puts into the first token of what follows
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + eos_token + '\n' }}{% endfor %}"
    "{{ 'assistant: ' if add_generation_prompt else '' }}"
)


@pytest.mark.parametrize("trim", [False, True])
@pytest.mark.parametrize("family", list(ALGORITHMS))
def test_a_token_that_begins_before_the_answer_is_learnt(family: str, trim: bool) -> None:
    tokenizer = tokenizer_of(family)
    if family == "decoder":
        backend = tokenizer.backend_tokenizer
        backend.post_processor = processors.ByteLevel(trim_offsets=trim)
    tokenizer.eos_token = tokenizer.eos_token or tokenizer.sep_token
    tokenizer.chat_template = SPACED
    rows = [{"messages": [{"role": "user", "content": "Where is it?"}, {"role": "assistant", "content": "the mill"}]}]
    (row,) = task_of(Chat, tokenizer, rows, max_length=512).train_rows
    text = tokenizer.apply_chat_template(rows[0]["messages"], tokenize=False)
    begin, end = text.rindex("the mill"), len(text.rstrip())
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    learnt = [span for span, label in zip(offsets, row["labels"], strict=True) if label != -100]
    read = [span for span, label in zip(offsets, row["labels"], strict=True) if label == -100]
    assert {at for span in learnt for at in range(*span) if begin <= at < end} >= {
        at for at in range(begin, end) if text[at] != " "
    }
    assert not any(start < end and stop > begin for start, stop in read if start < stop)
    if family == "decoder" and not trim:
        assert text[slice(*learnt[0])].startswith(" ")


TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"town": {"type": "string"}}}}]
CALLED = [
    {"role": "user", "content": "Is it cold in Oslo?"},
    {
        "role": "assistant",
        "content": "I shall look.",
        "tool_calls": [{"type": "function", "function": {"name": "weather", "arguments": {"town": "Oslo"}}}],
    },
    {"role": "tool", "name": "weather", "content": "cold"},
    {"role": "assistant", "content": "It is."},
]
PLAIN = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]


@pytest.mark.parametrize("as_json", [False, True])
def test_tools_and_their_calls_are_read_and_learnt(as_json: bool) -> None:
    tokenizer = tokenizer_of("decoder")
    tools = json.dumps(TOOLS) if as_json else TOOLS
    rows = [{"messages": CALLED, "tools": tools}, {"messages": PLAIN, "tools": None}]
    called, plain = task_of(Chat, tokenizer, rows, max_length=2048).train_rows
    text = tokenizer.decode(called["input_ids"])
    learnt = tokenizer.decode([label for label in called["labels"] if label != -100])
    assert '"town": {"type": "string"}' in text
    assert "### Tool weather:\ncold" in text
    assert '"arguments": {"town": "Oslo"}' in learnt
    assert "I shall look." in learnt
    assert "cold" not in learnt
    assert "null" not in text  # what a table adds to rows that lack a key
    assert tokenizer.decode(plain["input_ids"], skip_special_tokens=True) == "### User:\na\n\n### Assistant:\nb\n\n"


@pytest.mark.parametrize(
    ("row", "template", "message"),
    [
        ({"messages": CALLED}, CHATML, "does not show 'tool_calls' of turn 1"),
        ({"messages": PLAIN, "tools": TOOLS}, CHATML, "does not show the column 'tools'"),
        ({"messages": PLAIN, "documents": [{"text": "c"}]}, None, "does not show the column 'documents'"),
        ({"prompt": "a", "response": "b", "tools": TOOLS}, CHATML, "does not show the column 'tools'"),
        ({"messages": [PLAIN[0], {**PLAIN[1], "reasoning_content": "c"}]}, None, "show 'reasoning_content' of turn 1"),
        ({"messages": [PLAIN[0], {**PLAIN[1], "thinking": "c"}]}, None, "does not show 'thinking' of turn 1"),
        ({"messages": PLAIN, "tools": "weather"}, None, "tools = 'weather' is not a list of objects, nor JSON of one"),
        ({"messages": [PLAIN[0], {"role": "assistant", "content": None}]}, None, "may leave out, beside `tool_calls`"),
    ],
)
def test_what_a_template_does_not_show_is_refused(row: dict[str, Any], template: str | None, message: str) -> None:
    tokenizer = tokenizer_of("decoder")
    tokenizer.chat_template = template
    with pytest.raises(ValueError, match=message):
        task_of(Chat, tokenizer, [row], max_length=512)


def test_columns_that_are_not_read_are_told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    task_of(Seq2Seq, tokenizer_of("decoder"), [{"source": "a", "target": "b", "weight": 3, "summary": "c"}])
    assert (
        "the columns weight, summary of the data are not used; the columns that are used are source, target"
        in caplog.text
    )


def test_a_template_that_changes_earlier_turns_is_refused() -> None:
    tokenizer = tokenizer_of("decoder")
    tokenizer.chat_template = "{{ messages | length }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
    with pytest.raises(ValueError, match="does not add turn 2 to the turns before it"):
        task_of(Chat, tokenizer, [{"messages": TURNS}])


# ------------------------------------------------------------------------------------------------------------- targets
def test_targets_end_with_eos() -> None:
    for family in ("encoder-decoder", "decoder"):
        tokenizer = tokenizer_of(family)
        task = task_of(Seq2Seq, tokenizer, [{"source": TEXTS[0], "target": TEXTS[2]}])
        (row,) = task.train_rows
        assert row["labels"][-1] == tokenizer.eos_token_id
        assert row["labels"].count(tokenizer.eos_token_id) == 1
        assert tokenizer.decode(row["labels"], skip_special_tokens=True).strip() == TEXTS[2]
        cut = task_of(Seq2Seq, tokenizer, [{"source": TEXTS[0], "target": TEXTS[2]}], max_target_length=2)
        assert cut.train_rows[0]["labels"] == row["labels"][:2]


def test_what_is_written_is_compared_with_the_text_of_the_target() -> None:
    """Not with what the tokenizer can write of it, or with its first tokens."""
    pytest.importorskip("sacrebleu")
    tokenizer = tokenizer_of("encoder-decoder")
    targets = ["The river runs past the mill since 1961.", TEXTS[1]]  # no text of the tokenizer has a digit
    rows = [{"source": text, "target": target} for text, target in zip(TEXTS, targets, strict=False)]
    for options, counts in (({}, 0), ({"max_target_length": 5}, 2)):
        task = task_of(Seq2Seq, tokenizer, rows, **options)
        ids = task.held_out_rows["labels"]
        written = [text.strip() for text in tokenizer.batch_decode(list(ids), skip_special_tokens=True)]
        assert "1961" not in written[0]
        found = predicted(task)
        assert found["bleu"] < 95
        assert found == seq2seq_metrics(written, targets)
        assert names_of(found) == set(task.measured)
        assert task.baseline() == seq2seq_metrics(TEXTS[:2], targets)
        assert task.cut["training"] == {"cut_rows": 0, "cut_targets": counts, "unknown_targets": 1}
    told = task.facts()
    assert told["targets that were cut"] == "2 of 2 (training data), 2 of 2 (held-out data)"


def test_what_is_cut_is_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = tokenizer_of("encoder")
    rows = [{"text": text, "label": number % 2} for number, text in enumerate(TEXTS)]
    lengths = sorted(len(tokenizer(text)["input_ids"]) for text in TEXTS)
    for length, count in ((lengths[2], 0), (lengths[2] - 1, 1), (lengths[0] - 1, 3)):
        task = task_of(SequenceClassification, tokenizer, rows, max_length=length)
        assert task.cut == {"training": {"cut_rows": count}, "held-out": {"cut_rows": count}}
        caplog.clear()
        task.tell_cuts()
        said = f"rows that were cut: {count} of 3 (training data), {count} of 3 (held-out data), with --max-length"
        assert (said in caplog.text) == bool(count)
    pairs = [{"first": TEXTS[0], "second": text, "label": number} for number, text in enumerate(TEXTS[:2])]
    task = task_of(SequenceClassification, tokenizer, pairs, columns=["first", "second"], max_length=lengths[2])
    assert task.cut["training"] == {"cut_rows": 2}
    slow = task_of(SequenceClassification, ByT5Tokenizer(), rows, max_length=len(TEXTS[0]))
    assert slow.cut["training"] == {"cut_rows": 2}  # with the end, one byte more


# ------------------------------------------------------------------------------------------------------------- classes
@pytest.mark.parametrize(
    ("feature", "found", "names"),
    [
        (Value("string"), ["b", "a", "b"], ["a", "b"]),
        (Value("int64"), [2, 0, 1], ["0", "1", "2"]),
        (Value("int64"), [3, 1, 2], ["1", "2", "3"]),
        (Value("bool"), [True, False], ["False", "True"]),
        (ClassLabel(names=["no", "yes"]), [1], ["no", "yes"]),
    ],
)
def test_classes_have_the_names_of_the_data(feature: Any, found: list[Any], names: list[str]) -> None:
    labels = Labels(feature, found)
    assert labels.names == names
    assert labels.config_fields()["label2id"] == {name: number for number, name in enumerate(names)}
    numbers = [labels.number(label, "") for label in found]
    assert [names[number] for number in numbers] == (["yes"] if hasattr(feature, "names") else list(map(str, found)))


def test_a_model_that_knows_the_classes_keeps_their_numbers() -> None:
    assert Labels(Value("string"), ["a", "b"], {"b": 0, "a": 1}).names == ["b", "a"]
    assert Labels(Value("string"), ["a", "b"], {"LABEL_0": 0, "LABEL_1": 1}).names == ["a", "b"]


@pytest.mark.parametrize(
    ("feature", "found", "label", "message"),
    [
        (Value("int64"), [0, 1, 7], 0, "7 is out of range, as 3 classes have the numbers 0 to 2"),
        (Value("int64"), [-1, 0, 1], 0, "-1 is out of range"),
        (Value("int64"), [0, 1], 2, "row 5: label 2 is not one of the 2 classes"),
        (ClassLabel(names=["no", "yes"]), [0, 1], -1, "row 5: label -1 is not one of the 2 classes"),
        (ClassLabel(names=["no", "yes"]), [0, 1], 2, "row 5: label 2 is not one of the 2 classes"),
        (Value("string"), ["a", "b"], "c", "row 5: label 'c' is not one of the 2 classes of the training data: a, b"),
        (Value("string"), ["a", "b", None], None, "row 5: label None is neither the name nor the number of a class"),
        (Value("string"), ["a", "b", ""], "", "row 5: label '' is neither the name"),
        ({"a": Value("int64")}, ["a", "b", {"a": 1}], {"a": 1}, r"row 5: label \{'a': 1\} is neither the name"),
        (Value("float64"), [0.5, 1.5], 0.5, "no label is a name, or the number of a class"),
        (Value("string"), ["a", "a"], "a", "all labels are a: there is nothing to learn"),
    ],
)
def test_labels_that_are_no_classes_are_refused(feature: Any, found: list[Any], label: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Labels(feature, found).number(label, "row 5")


@pytest.mark.parametrize(
    ("labels", "problem", "targets", "baseline"),
    [
        (["a", "b", "b"], "single_label_classification", [0, 1, 1], {"accuracy": 2 / 3}),
        ([["a"], ["a", "b"], []], "multi_label_classification", [[1, 0], [1, 1], [0, 0]], {"accuracy": 1 / 3}),
        ([0.5, 1.0, 3.0], "regression", [0.5, 1.0, 3.0], {"mse": np.var([0.5, 1.0, 3.0]), "r2": 0.0}),
    ],
)
def test_labels_say_what_the_problem_is(labels: list[Any], problem: str, targets: list[Any], baseline: Any) -> None:
    rows = [{"text": text, "label": label} for text, label in zip(TEXTS, labels, strict=True)]
    task = task_of(SequenceClassification, tokenizer_of("encoder"), rows)
    assert task.config_fields()["problem_type"] == problem
    assert list(task.train_rows["labels"]) == targets
    found = task.baseline()
    assert names_of(found) == set(task.measured)
    assert {name: found[name] for name in baseline} == pytest.approx(baseline)


def test_pairs_of_texts_are_read_as_pairs() -> None:
    tokenizer = tokenizer_of("encoder")
    rows = [{"first": TEXTS[0], "second": TEXTS[number], "label": number} for number in range(2)]
    task = task_of(SequenceClassification, tokenizer, rows, columns=["first", "second"])
    assert list(task.train_rows["input_ids"]) == [tokenizer(TEXTS[0], TEXTS[at])["input_ids"] for at in range(2)]


@pytest.mark.parametrize(
    ("feature", "labels"),
    [
        (None, ["spam", "ham", "spam"]),
        (None, [1, 0, 1]),  # numbers of the model
        (ClassLabel(names=["spam", "ham"]), [0, 1, 0]),  # numbers of the dataset, which counts in another order
    ],
)
def test_what_is_only_measured_has_the_classes_of_the_model(feature: Any, labels: list[Any]) -> None:
    # `eggs` is not in the data, and the order is not that of the alphabet.
    config = PreTrainedConfig(id2label={0: "ham", 1: "spam", 2: "eggs"}, label2id={"ham": 0, "spam": 1, "eggs": 2})
    rows = Dataset.from_list([{"text": text, "label": label} for text, label in zip(TEXTS, labels, strict=True)])
    rows = rows if feature is None else rows.cast_column("label", feature)
    task = SequenceClassification(tokenizer_of("encoder"), config, None, rows, max_length=64)
    assert task.train_rows is None
    assert list(task.held_out_rows["labels"]) == [1, 0, 1]
    found = task.measures(EvalPrediction(predictions=np.eye(3)[[1, 0, 2]], label_ids=np.array([1, 0, 1])))
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert set(found["per_class"]) == {"ham", "spam", "eggs"}


def test_an_empty_cell_makes_a_column_of_integers_one_of_floats() -> None:
    assert Labels(Value("float64"), [1.0, 0.0, None]).names == ["0", "1"]
    labels = Labels.of_model(Value("float64"), PreTrainedConfig(id2label={0: "ham", 1: "spam"}))
    assert [labels.number(label, "row 0") for label in (1.0, 0.0)] == [1, 0]
    for label in (None, 0.5, float("nan")):
        with pytest.raises(ValueError, match=f"row 1: label {label} is neither the name nor the number of a class"):
            labels.number(label, "row 1")


def test_classes_that_the_model_does_not_have_are_refused() -> None:
    names = {0: "ham", 1: "spam"}
    labels = Labels.of_model(Value("string"), PreTrainedConfig(id2label=names))
    for label in ("eggs", 2, -1):
        with pytest.raises(ValueError, match="row 1: label .* is not one of the 2 classes of the model: ham, spam"):
            labels.number(label, "row 1")
    with pytest.raises(ValueError, match="the model has the classes ham, ham: there must be two, and no name twice"):
        Labels.of_model(Value("string"), PreTrainedConfig(id2label={0: "ham", 1: "ham"}))
