# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Metrics of classification, token classification, question answering and seq2seq. They use scikit-learn, seqeval,
rouge_score and sacrebleu, which `pip install "hf_tx[metrics]"` installs."""

import importlib
import re
import string
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

#: What the metrics need, by name of the metric: modules and the distributions that hold them.
NEEDS = {
    "classification": {"sklearn.metrics": "scikit-learn"},
    "token_classification": {"seqeval.metrics": "seqeval", "seqeval.scheme": "seqeval"},
    "seq2seq": {"rouge_score.rouge_scorer": "rouge_score", "sacrebleu.metrics": "sacrebleu"},
}
#: Schemes of tags that can be asked for strictly. seqeval has IOE1 too, but does not find all of its entities.
SCHEMES = ("IOB1", "IOB2", "IOE2", "IOBES", "BILOU")

_TAG = re.compile("O|[A-Z]-.+")
_PUNCTUATION = re.compile(f"[{re.escape(string.punctuation)}]")
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def libraries(metric: str) -> list[Any]:
    """Import what a metric needs.

    Raises:
        ImportError: it is not installed.
    """
    found = []
    for module, distribution in NEEDS.get(metric, {}).items():
        try:
            found.append(importlib.import_module(module))
        except ImportError as error:
            raise ImportError(f'the metric {metric!r} needs {distribution}: pip install "hf_tx[metrics]"') from error
    return found


def classification_metrics(
    predictions: Sequence[Any],
    references: Sequence[Any],
    label_names: Sequence[str] | None = None,
    *,
    none: int | None = None,
) -> dict[str, Any]:
    """Compare predicted classes with the right ones, with scikit-learn.

    Args:
        predictions: the number of a class for each example; or, where several may be right, 0 or 1 for each class.
        references: the right ones.
        label_names: names of the classes. Default: their numbers.
        none: a number that is predicted where no class is, which is never right. Default: there is none.

    Returns:
        `accuracy` (all classes of an example are right), `f1_macro`, `f1_micro`, `mcc` (not where several may be
        right), and `per_class`: `precision`, `recall`, `f1`, `support` by name. A class that is neither predicted nor
        right is left out, and a ratio of nothing is 0.

    Raises:
        ValueError: no examples, or not as many predictions; a class without a name.
        ImportError: scikit-learn is not installed.
    """
    (sklearn,) = libraries("classification")
    _check_pairs(predictions, references)
    found, right = np.asarray(predictions), np.asarray(references)
    if found.shape != right.shape or right.ndim > 2:
        raise ValueError(
            f"predictions and references have the shapes {found.shape} and {right.shape}: both must be (examples) or "
            "(examples, classes)"
        )
    several = right.ndim == 2
    classes = range(right.shape[1]) if several else np.unique(np.concatenate([found, right])).tolist()
    classes = [number for number in classes if number != none]
    names = {number: str(number) for number in classes}
    if label_names is not None:
        beyond = [number for number in classes if not 0 <= number < len(label_names)]
        if beyond:
            raise ValueError(f"class {beyond[0]} has no name: label_names has only {len(label_names)} names")
        names = {number: label_names[number] for number in classes}
    options = {"labels": classes, "zero_division": 0}
    measures = {
        "accuracy": float(sklearn.accuracy_score(right, found)),
        "f1_macro": float(sklearn.f1_score(right, found, average="macro", **options)),
        "f1_micro": float(sklearn.f1_score(right, found, average="micro", **options)),
    }
    if not several:
        # Of a single class it is 0, with a warning.
        measures["mcc"] = float(sklearn.matthews_corrcoef(right, found)) if len(names) > 1 else 0.0
    columns = sklearn.precision_recall_fscore_support(right, found, **options)
    per_class = {
        names[number]: {"precision": float(p), "recall": float(r), "f1": float(f), "support": int(support)}
        for number, p, r, f, support in zip(classes, *columns, strict=True)
    }
    return {**measures, "per_class": per_class}


def regression_metrics(predictions: Sequence[float], references: Sequence[float]) -> dict[str, float]:
    """Compare predicted numbers with the right ones, with scikit-learn.

    Args:
        predictions: a number for each example.
        references: the right ones.

    Returns:
        `mse`, `mae`, and `r2`, the share of the variance that is explained: 1 for all, 0 for what the mean explains.

    Raises:
        ValueError: fewer than two examples, or not as many predictions.
        ImportError: scikit-learn is not installed.
    """
    (sklearn,) = libraries("classification")
    _check_pairs(predictions, references)
    if len(references) < 2:
        raise ValueError("the metrics of regression need at least two examples, because one has no variance")
    return {
        "mse": float(sklearn.mean_squared_error(references, predictions)),
        "mae": float(sklearn.mean_absolute_error(references, predictions)),
        "r2": float(sklearn.r2_score(references, predictions)),
    }


def is_tag(tag: str) -> bool:
    """Return whether a tag is one of entities: `O`, or a prefix and a type, such as `B-PER`."""
    return _TAG.fullmatch(tag) is not None


def token_classification_metrics(
    predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]], scheme: str | None = None
) -> dict[str, Any]:
    """Compare entities, whole and with their type, with seqeval.

    Args:
        predictions: the tags of each text, such as `O`, `B-PER`, `I-PER`.
        references: the right tags.
        scheme: the scheme that tags must keep for an entity to count (seqeval's strict mode): `IOB1`, `IOB2`, `IOE2`,
            `IOBES` (also called `BIOES`) or `BILOU`. Default: as conlleval, which takes what it gets.

    Returns:
        `overall_precision`, `overall_recall` and `overall_f1` of all entities, `overall_accuracy` of tags, and
        `per_class`: `precision`, `recall`, `f1`, `support` by type.

    Raises:
        ValueError: no texts, or not as many predictions or tags; a tag that is none, or not of the scheme; an unknown
            scheme.
        ImportError: seqeval is not installed.
    """
    seqeval, schemes = libraries("token_classification")
    _check_pairs(predictions, references)
    for number, (tags, right) in enumerate(zip(predictions, references, strict=True)):
        if len(tags) != len(right):
            raise ValueError(f"text {number} has {len(right)} tags, but {len(tags)} predicted tags")
        for tag in (*tags, *right):
            if not is_tag(tag):
                raise ValueError(
                    f"text {number}: {tag!r} is not a tag: it must be O, or a prefix and a type, such as B-PER"
                )
    options: dict[str, Any] = {"zero_division": 0}
    if scheme is not None:
        wanted = "IOBES" if scheme == "BIOES" else scheme
        if wanted not in SCHEMES:
            raise ValueError(f"scheme = {scheme!r}: must be one of {', '.join(SCHEMES)}, or None")
        options.update(mode="strict", scheme=getattr(schemes, wanted))
    with warnings.catch_warnings():
        # Where there are no entities: a mean over types that is not used here.
        warnings.simplefilter("ignore", RuntimeWarning)
        report = seqeval.classification_report(references, predictions, output_dict=True, **options)
    overall = report.pop("micro avg")
    per_class = {
        name: {key: row[f"{key}-score" if key == "f1" else key] for key in ("precision", "recall", "f1", "support")}
        for name, row in report.items()
        if name not in ("macro avg", "weighted avg")
    }
    return {
        "overall_precision": float(overall["precision"]),
        "overall_recall": float(overall["recall"]),
        "overall_f1": float(overall["f1-score"]),
        "overall_accuracy": float(seqeval.accuracy_score(references, predictions)),
        "per_class": {
            name: {key: int(value) if key == "support" else float(value) for key, value in row.items()}
            for name, row in per_class.items()
        },
    }


def question_answering_metrics(
    predictions: Iterable[Mapping[str, Any]],
    references: Iterable[Mapping[str, Any]],
    no_answer_threshold: float = 1.0,
) -> dict[str, float]:
    """Compare answers, as the official script of SQuAD 2.0 does (https://huggingface.co/papers/1806.03822): without
    case, punctuation and articles, with the best of several right answers.

    Args:
        predictions: `id`, `prediction_text` ("" for no answer), and, if known, `no_answer_probability`.
        references: `id`, and `answers` with a list of `text`, which is empty where there is no answer.
        no_answer_threshold: a prediction of which the `no_answer_probability` is higher is no answer.

    Returns:
        `exact_match` and `f1` in percent, and `total`, the number of questions. Where some questions have no answer,
        also `HasAns_exact`, `HasAns_f1`, `HasAns_total`, `NoAns_exact`, `NoAns_f1`, `NoAns_total`.

    Raises:
        ValueError: no questions, an id that is missing or there twice.
    """
    answers, given = _by_id(references, "references"), _by_id(predictions, "predictions")
    if not answers:
        raise ValueError("there are no references to compare with")
    for missing, where in (
        (answers.keys() - given.keys(), "predictions"),
        (given.keys() - answers.keys(), "references"),
    ):
        if missing:
            raise ValueError(
                f"{len(missing)} questions are missing in the {where}, such as {sorted(missing, key=str)[0]!r}"
            )
    scores: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for identifier, reference in answers.items():
        prediction = given[identifier]
        no_answer = prediction.get("no_answer_probability", 0.0) > no_answer_threshold
        text = "" if no_answer else prediction["prediction_text"]
        texts = reference["answers"]["text"]
        right = [answer for answer in texts if normalize_answer(answer)] or [""]
        scores[bool(texts)].append((max(_exact(text, a) for a in right), max(_overlap(text, a) for a in right)))

    def means(some: list[tuple[float, float]]) -> tuple[float, float]:
        exact, f1 = np.mean(some, axis=0) * 100
        return float(exact), float(f1)

    exact, f1 = means(scores[True] + scores[False])
    measures = {"exact_match": exact, "f1": f1, "total": len(answers)}
    if scores[False]:
        for name, some in (("HasAns", scores[True]), ("NoAns", scores[False])):
            if some:
                measures[f"{name}_exact"], measures[f"{name}_f1"] = means(some)
                measures[f"{name}_total"] = len(some)
    return measures


def normalize_answer(text: str) -> str:
    """Return an answer without case, punctuation, articles and superfluous space.

    Example:

    ```python
    >>> normalize_answer("The  Mill, an old one!")
    'mill old one'

    ```
    """
    return " ".join(_ARTICLES.sub(" ", _PUNCTUATION.sub("", text.lower())).split())


def seq2seq_metrics(
    predictions: Sequence[str], references: Sequence[str] | Sequence[Sequence[str]], use_stemmer: bool = False
) -> dict[str, Any]:
    """Compare texts that were written with what should have been written, with rouge_score and sacrebleu.

    Args:
        predictions: the texts.
        references: the right text for each, or several.
        use_stemmer: whether ROUGE takes English words of one stem as equal.

    Returns:
        `rouge1`, `rouge2`, `rougeL` and `rougeLsum`: the mean F-measure, from 0 to 1, of the best reference of each
        text; `bleu` and `chrf` of the corpus, from 0 to 100; and `bleu_signature` and `chrf_signature`, by which
        others can compute the same.

    Raises:
        ValueError: no texts, or not as many predictions; a text without a reference.
        ImportError: rouge_score or sacrebleu is not installed.
    """
    rouge, sacrebleu = libraries("seq2seq")
    _check_pairs(predictions, references)
    right = [[reference] if isinstance(reference, str) else list(reference) for reference in references]
    if not all(right):
        raise ValueError(f"text {right.index([])} has no reference")
    names = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    scorer = rouge.RougeScorer(names, use_stemmer=use_stemmer)
    scores = [scorer.score_multi(some, text) for some, text in zip(right, predictions, strict=True)]
    measures: dict[str, Any] = {name: float(np.mean([score[name].fmeasure for score in scores])) for name in names}
    # One list for the first references, one for the second ...; None where a text has fewer.
    columns = [[some[at] if at < len(some) else None for some in right] for at in range(max(map(len, right)))]
    for name, metric in {"bleu": sacrebleu.BLEU(), "chrf": sacrebleu.CHRF()}.items():
        measures[name] = float(metric.corpus_score(list(predictions), columns).score)
        measures[f"{name}_signature"] = str(metric.get_signature())
    return measures


def _check_pairs(predictions: Sequence[Any], references: Sequence[Any]) -> None:
    if len(predictions) != len(references) or not len(references):
        raise ValueError(
            f"there are {len(predictions)} predictions and {len(references)} references: there must be as many, and "
            "at "
            "least one"
        )


def _by_id(rows: Iterable[Mapping[str, Any]], what: str) -> dict[Any, Mapping[str, Any]]:
    found: dict[Any, Mapping[str, Any]] = {}
    for row in rows:
        if row["id"] in found:
            raise ValueError(f"the {what} have question {row['id']!r} twice")
        found[row["id"]] = row
    return found


def _exact(text: str, answer: str) -> float:
    return float(normalize_answer(text) == normalize_answer(answer))


def _overlap(text: str, answer: str) -> float:
    """Return the F1 of the words; where one side has none, whether both have none."""
    words, right = normalize_answer(text).split(), normalize_answer(answer).split()
    if not words or not right:
        return float(words == right)
    common = sum((Counter(words) & Counter(right)).values())
    return 2 * common / (len(words) + len(right))
