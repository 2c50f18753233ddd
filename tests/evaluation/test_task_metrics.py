# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import collections
import math
import random
import sys

import pytest

from hf_tx.evaluation import (
    classification_metrics,
    load_metric,
    question_answering_metrics,
    seq2seq_metrics,
    token_classification_metrics,
)
from hf_tx.evaluation.task_metrics import SCHEMES

SEEDS = pytest.mark.parametrize("seed", [0, 1, 2])


def f1_of(right: int, found: int, wanted: int) -> tuple[float, float, float]:
    """Precision, recall and F1 from how many were right, found and wanted."""
    precision, recall = right / found if found else 0.0, right / wanted if wanted else 0.0
    return precision, recall, 2 * right / (found + wanted) if found + wanted else 0.0


@SEEDS
def test_classification(seed):
    pytest.importorskip("sklearn")
    draw = random.Random(seed)
    # Class 3 is never predicted, class 4 never right, class 5 neither.
    references = [draw.choice([0, 1, 2, 3]) for _ in range(80)]
    predictions = [right if draw.random() < 0.4 and right < 3 else draw.choice([0, 1, 2, 4]) for right in references]
    pairs = list(zip(predictions, references, strict=True))
    names = ["a", "b", "c", "d", "e", "f"]
    measures = classification_metrics(predictions, references, names)

    scores = {}
    for number in range(5):
        counts = pairs.count((number, number)), predictions.count(number), references.count(number)
        scores[names[number]] = (*f1_of(*counts), counts[2])
        found = measures["per_class"][names[number]]
        assert (found["precision"], found["recall"], found["f1"], found["support"]) == pytest.approx(
            scores[names[number]]
        )
    assert list(measures["per_class"]) == names[:5]
    correct = sum(found == right for found, right in pairs)
    assert measures["accuracy"] == measures["f1_micro"] == pytest.approx(correct / 80)
    assert measures["f1_macro"] == pytest.approx(sum(score[2] for score in scores.values()) / 5)
    # Gorodkin's R_K, of which Matthews' coefficient is the case of two classes.
    cross = correct * 80 - sum(predictions.count(n) * references.count(n) for n in range(5))
    spread = [80**2 - sum(side.count(n) ** 2 for n in range(5)) for side in (predictions, references)]
    assert measures["mcc"] == pytest.approx(cross / math.sqrt(spread[0] * spread[1]))
    assert classification_metrics(predictions, references)["per_class"].keys() == set("01234")


@SEEDS
def test_classification_where_several_classes_may_be_right(seed):
    pytest.importorskip("sklearn")
    draw = random.Random(seed)
    references, predictions = ([[draw.randint(0, 1) for _ in range(4)] for _ in range(30)] for _ in range(2))
    measures = classification_metrics(predictions, references, ["a", "b", "c", "d"])
    counts = []
    for at in range(4):
        found, right = [row[at] for row in predictions], [row[at] for row in references]
        counts.append((sum(f and r for f, r in zip(found, right, strict=True)), sum(found), sum(right)))
        assert measures["per_class"]["abcd"[at]]["f1"] == pytest.approx(f1_of(*counts[-1])[2])
    assert measures["f1_macro"] == pytest.approx(sum(f1_of(*count)[2] for count in counts) / 4)
    assert measures["f1_micro"] == pytest.approx(f1_of(*map(sum, zip(*counts, strict=True)))[2])
    exact = sum(found == right for found, right in zip(predictions, references, strict=True))
    assert measures["accuracy"] == pytest.approx(exact / 30)
    assert "mcc" not in measures


def test_classes_that_cannot_be_compared_are_refused():
    pytest.importorskip("sklearn")
    with pytest.raises(ValueError, match="1 predictions and 2 references"):
        classification_metrics([1], [1, 2])
    with pytest.raises(ValueError, match="0 predictions and 0 references"):
        classification_metrics([], [])
    with pytest.raises(ValueError, match="class 2 has no name: label_names has only 2"):
        classification_metrics([1, 0], [1, 2], ["no", "yes"])
    with pytest.raises(ValueError, match=r"shapes \(1,\) and \(1, 2\)"):
        classification_metrics([1], [[1, 0]])


Span = tuple[int, int, str]


def random_spans(draw: random.Random, length: int) -> list[Span]:
    """Entities that do not overlap, of which many touch."""
    spans, at = [], 0
    while at < length:
        stop = min(length, at + draw.randint(1, 3))
        if draw.random() < 0.6:
            spans.append((at, stop, draw.choice(["PER", "LOC"])))
        at = stop
    return spans


def tags_of(spans: list[Span], length: int, scheme: str) -> list[str]:
    """Write entities down in a scheme."""
    tags = ["O"] * length
    for start, stop, name in spans:
        touches_last = any((other[1], other[2]) == (start, name) for other in spans)
        first, end, single = {
            "IOB1": ("B" if touches_last else "I", "I", "B" if touches_last else "I"),
            "IOB2": ("B", "I", "B"),
            "IOE2": ("I", "E", "E"),
            "IOBES": ("B", "E", "S"),
            "BILOU": ("B", "L", "U"),
        }[scheme]
        prefixes = [single] if stop - start == 1 else [first, *"I" * (stop - start - 2), end]
        tags[start:stop] = [f"{prefix}-{name}" for prefix in prefixes]
    return tags


@SEEDS
@pytest.mark.parametrize(
    ("written", "scheme"),
    [(scheme, scheme) for scheme in SCHEMES]
    + [("IOBES", "BIOES")]
    + [(each, None) for each in ("IOB1", "IOB2", "IOBES")],
)
def test_entities(written, scheme, seed):
    pytest.importorskip("seqeval")
    draw = random.Random(seed)
    lengths = [draw.randint(1, 12) for _ in range(40)]
    right = [random_spans(draw, length) for length in lengths]
    # Half of the texts are found as they should be.
    found = [spans if draw.random() < 0.5 else random_spans(draw, n) for spans, n in zip(right, lengths, strict=True)]
    tags = [[tags_of(spans, n, written) for spans, n in zip(side, lengths, strict=True)] for side in (found, right)]
    measures = token_classification_metrics(*tags, scheme=scheme)

    def count(name: str) -> tuple[int, int, int, int]:
        sides = [[{span for span in spans if name in ("", span[2])} for spans in side] for side in (found, right)]
        hits = sum(len(f & r) for f, r in zip(*sides, strict=True))
        wanted = sum(map(len, sides[1]))
        return hits, sum(map(len, sides[0])), wanted, wanted

    *counts, _ = count("")
    overall = [measures[f"overall_{name}"] for name in ("precision", "recall", "f1")]
    assert overall == pytest.approx(f1_of(*counts))
    for name in ("PER", "LOC"):
        *counts, support = count(name)
        assert tuple(measures["per_class"][name].values()) == pytest.approx((*f1_of(*counts), support))
    flat = [(f, r) for pair in zip(*tags, strict=True) for f, r in zip(*pair, strict=True)]
    assert measures["overall_accuracy"] == pytest.approx(sum(f == r for f, r in flat) / len(flat))


def test_a_strict_scheme_and_conlleval_differ_on_broken_tags():
    pytest.importorskip("seqeval")
    right, broken = [["B-PER", "I-PER", "O", "B-LOC"]], [["I-PER", "I-PER", "O", "B-LOC"]]
    assert token_classification_metrics(broken, right)["overall_f1"] == 1.0
    # Without its beginning, the first is none: one of one is right, and one of two found.
    strict = token_classification_metrics(broken, right, scheme="IOB2")
    assert (strict["overall_precision"], strict["overall_recall"]) == (1.0, 0.5)


def test_no_entities(recwarn):
    pytest.importorskip("seqeval")
    for scheme in (None, "IOB2"):
        measures = token_classification_metrics([["O", "O"]], [["O", "O"]], scheme=scheme)
        assert (measures["overall_f1"], measures["overall_accuracy"], measures["per_class"]) == (0.0, 1.0, {})
    assert not recwarn.list


@pytest.mark.parametrize(
    ("predictions", "references", "scheme", "message"),
    [
        ([["O"]], [["O", "O"]], None, "text 0 has 2 tags, but 1 predicted"),
        ([["O"], ["PER"]], [["O"], ["O"]], None, "text 1: 'PER' is not a tag: it must be O, or a prefix and a type"),
        ([["O"]], [["O"]], "BIO", "scheme = 'BIO': must be one of IOB1, IOB2"),
        ([["S-PER"]], [["B-PER"]], "IOB2", "S-PER"),
        ([], [], None, "0 predictions and 0 references"),
    ],
)
def test_tags_that_cannot_be_compared_are_refused(predictions, references, scheme, message):
    pytest.importorskip("seqeval")
    with pytest.raises(ValueError, match=message):
        token_classification_metrics(predictions, references, scheme=scheme)


ANSWERS = [
    # predicted, right answers, exact, F1
    ("The old  Mill!", ["old mill"], 1, 1),
    ("old mill", ["a mill", "an Old Mill."], 1, 1),
    ("the river mill", ["mill by the river"], 0, 4 / 5),
    ("mill mill", ["mill"], 0, 2 / 3),
    ("nothing", ["mill"], 0, 0),
    ("", ["mill"], 0, 0),
    # An article is no word: what is right is "", and nothing is as good.
    ("", ["the"], 1, 1),
    ("", [], 1, 1),
    ("mill", [], 0, 0),
]


def squad(answers) -> tuple[list, list]:
    predictions = [{"id": str(n), "prediction_text": answer[0]} for n, answer in enumerate(answers)]
    references = [{"id": str(n), "answers": {"text": answer[1]}} for n, answer in enumerate(answers)]
    return predictions[::-1], references  # what belongs together is told by the id


def test_answers():
    for answer in ANSWERS:
        measures = question_answering_metrics(*squad([answer]))
        assert (measures["exact_match"], measures["f1"]) == pytest.approx((100 * answer[2], 100 * answer[3])), answer
    measures = question_answering_metrics(*squad(ANSWERS))
    parts = {"": ANSWERS, "HasAns_": ANSWERS[:7], "NoAns_": ANSWERS[7:]}
    for prefix, some in parts.items():
        exact = measures["exact_match" if prefix == "" else f"{prefix}exact"]
        assert exact == pytest.approx(100 * sum(answer[2] for answer in some) / len(some))
        assert measures[f"{prefix}f1"] == pytest.approx(100 * sum(answer[3] for answer in some) / len(some))
        assert measures[f"{prefix}total"] == len(some)
    assert set(question_answering_metrics(*squad(ANSWERS[:7]))) == {"exact_match", "f1", "total"}


def test_an_answer_that_is_hardly_believed_is_none():
    predictions, references = squad([("mill", []), ("mill", ["mill"])])
    for row, probability in zip(predictions, (0.6, 0.7), strict=True):
        row["no_answer_probability"] = probability
    exact = [question_answering_metrics(predictions, references, at)["exact_match"] for at in (0.5, 0.6, 0.65, 0.7)]
    # Both are none; only what is *higher* than the threshold; both are answers.
    assert exact == [50.0, 100.0, 100.0, 50.0]


def test_answers_without_their_question_are_refused():
    predictions, references = squad(ANSWERS)
    with pytest.raises(ValueError, match="1 questions are missing in the predictions, such as '8'"):
        question_answering_metrics(predictions[1:], references)
    with pytest.raises(ValueError, match="1 questions are missing in the references, such as '8'"):
        question_answering_metrics(predictions, references[:-1])
    with pytest.raises(ValueError, match="the predictions have question '3' twice"):
        question_answering_metrics([*predictions, predictions[5]], references)
    with pytest.raises(ValueError, match="no references"):
        question_answering_metrics([], [])


def grams(items, n: int) -> collections.Counter:
    return collections.Counter(tuple(items[at : at + n]) for at in range(len(items) - n + 1))


def longest_common(first: list[str], second: list[str]) -> int:
    if not first or not second:
        return 0
    if first[-1] == second[-1]:
        return 1 + longest_common(first[:-1], second[:-1])
    return max(longest_common(first[:-1], second), longest_common(first, second[:-1]))


@SEEDS
def test_written_texts(seed):
    pytest.importorskip("rouge_score")
    pytest.importorskip("sacrebleu")
    draw = random.Random(seed)
    texts = [[[draw.choice("abc") * 2 for _ in range(draw.randint(5, 8))] for _ in range(12)] for _ in range(3)]
    found, first, second = texts
    measures = seq2seq_metrics(*([" ".join(words) for words in side] for side in (found, first)))
    for n in (1, 2):
        scores = []
        for words, right in zip(found, first, strict=True):
            common = sum((grams(words, n) & grams(right, n)).values())
            scores.append(f1_of(common, len(words) - n + 1, len(right) - n + 1)[2])
        assert measures[f"rouge{n}"] == pytest.approx(sum(scores) / len(scores))
    scores = [
        f1_of(longest_common(words, right), len(words), len(right))[2]
        for words, right in zip(found, first, strict=True)
    ]
    assert measures["rougeL"] == measures["rougeLsum"] == pytest.approx(sum(scores) / len(scores))

    # BLEU with two references: a word counts as often as in one of them, and the nearer length decides.
    both = [[" ".join(words) for words in pair] for pair in zip(first, second, strict=True)]
    measures = seq2seq_metrics([" ".join(words) for words in found], both)
    logs = 0.0
    for n in range(1, 5):
        right = sum(
            sum((grams(words, n) & (grams(a, n) | grams(b, n))).values())
            for words, a, b in zip(found, first, second, strict=True)
        )
        logs += math.log(right / sum(len(words) - n + 1 for words in found)) / 4
    length = sum(map(len, found))
    nearest = sum(
        min((abs(len(right) - len(words)), len(right)) for right in (a, b))[1]
        for words, a, b in zip(found, first, second, strict=True)
    )
    assert measures["bleu"] == pytest.approx(100 * math.exp(logs + min(0, 1 - nearest / length)))
    assert measures["bleu_signature"].startswith("nrefs:2|")


@SEEDS
def test_chrf(seed):
    pytest.importorskip("rouge_score")
    pytest.importorskip("sacrebleu")
    draw = random.Random(seed)
    found, right = (["".join(draw.choice("ab ") for _ in range(20)).strip() + "a" for _ in range(6)] for _ in range(2))
    averages = [0.0, 0.0]
    for n in range(1, 7):
        sides = [[grams(text.replace(" ", ""), n) for text in side] for side in (found, right)]
        common = sum(sum((f & r).values()) for f, r in zip(*sides, strict=True))
        for at, side in enumerate(sides):
            averages[at] += common / sum(sum(counts.values()) for counts in side) / 6
    precision, recall = averages
    # Recall counts twice as much (beta = 2).
    expected = 100 * 5 * precision * recall / (4 * precision + recall)
    assert seq2seq_metrics(found, right)["chrf"] == pytest.approx(expected)


def test_texts_that_cannot_be_compared_are_refused():
    pytest.importorskip("rouge_score")
    pytest.importorskip("sacrebleu")
    with pytest.raises(ValueError, match="2 predictions and 1 references"):
        seq2seq_metrics(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="text 1 has no reference"):
        seq2seq_metrics(["a", "b"], [["a"], []])
    # One has more references than the other.
    assert seq2seq_metrics(["a b c d e", "f g h i"], [["a b c d e"], ["x", "f g h i"]])["bleu"] == pytest.approx(100)


@pytest.mark.parametrize(
    ("name", "module", "distribution"),
    [
        ("classification", "sklearn.metrics", "scikit-learn"),
        ("token_classification", "seqeval.metrics", "seqeval"),
        ("seq2seq", "sacrebleu.metrics", "(sacrebleu|rouge_score)"),
    ],
)
def test_a_missing_library_is_named_with_its_extra_before_anything_is_compared(
    monkeypatch, name, module, distribution
):
    # None in sys.modules makes the import fail.
    monkeypatch.setitem(sys.modules, module, None)
    message = rf"the metric '{name}' needs {distribution}: pip install \"hf_tx\[metrics\]\""
    with pytest.raises(ImportError, match=message):
        load_metric(name)
