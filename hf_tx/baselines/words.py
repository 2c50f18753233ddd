# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Classifies texts by their words, without their order."""

from collections.abc import Sequence


def classify_by_words(train: Sequence[str], labels: Sequence[int], texts: Sequence[str]) -> list[int]:
    """Classify texts by logistic regression on TF-IDF, counts of words that are weighted by how few texts have them
    (Manning, Raghavan and Schütze, Introduction to Information Retrieval, chapter 6;
    https://nlp.stanford.edu/IR-book/), with scikit-learn.

    Args:
        train: texts to learn from.
        labels: the class of each.
        texts: texts to classify.

    Returns:
        The class of each of `texts`.

    Raises:
        ImportError: if scikit-learn is not installed.
        ValueError: if there is only one class, or no text has a word.
    """
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer  # type: ignore[import-untyped]
        from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
        from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError('the tf-idf baseline needs scikit-learn: pip install "hf_tx[metrics]"') from error
    model = make_pipeline(TfidfVectorizer(sublinear_tf=True), LogisticRegression(C=10.0, max_iter=1000))
    return [int(label) for label in model.fit(list(train), list(labels)).predict(list(texts))]
