# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Scores texts with language models of any kind."""

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from accelerate import PartialState
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import tqdm  # type: ignore[import-untyped]
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..common.pieces import cut_text, plain_encoder
from ..models.losses import IGNORE
from .language_models import causal_windows, continuation_windows, evaluating, masked_windows, score_rows
from .loading import longest_input
from .processes import shared
from .results import TEXT_TASKS, TextResult, TextTask
from .scores import Score

# Default limit of the length of a window: many models allow more than fits into memory.
_LONGEST_WINDOW = 1024
# Tokens before a piece of a text, with which it is decoded.
_CONTEXT = 16
_DIGESTED = 1 << 16
Row = tuple[dict[str, list[int]], list[int]]


def evaluate_texts(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str] | Sequence[tuple[str, str]],
    *,
    task: TextTask,
    context_length: int | None = None,
    stride: int | None = None,
    batch_size: int = 8,
    name: str | None = None,
    description: str | None = None,
    state: PartialState | None = None,
) -> TextResult:
    """Score every token of texts exactly once, with any language model of transformers. Every text is a separate
    document. Special tokens are never scored; a text that contains one is read as plain text.

    - `causal-lm`: the next token, in windows (see `causal_windows`), each of which begins with the bos token of the
      tokenizer, or its eos token if it has no bos token.
    - `masked-lm`: one masked token at a time (see `masked_windows`), in windows with the special tokens of the
      tokenizer.
    - `continuation`: the next half of a context, given the half before it (see `continuation_windows`), by an
      encoder-decoder.
    - `seq2seq-lm`: the tokens of the target, given the source and the target before them.

    Args:
        model: the model.
        tokenizer: its tokenizer.
        texts: the texts; for `seq2seq-lm`, pairs of source and target.
        task: the task.
        context_length: tokens per window, including special tokens. Default: as many as model and tokenizer allow, at
            most 1024. For `seq2seq-lm`, the maximum length of a source or a target; default: as many as they allow.
        stride: number of tokens between two windows of a causal model. Default: half a window.
        batch_size: number of windows per batch.
        name: name of the model in the result. Default: where it was loaded from, or its class.
        description: label of a progress bar; None for no bar.
        state: several processes that share the work. All of them call this function, and get the whole result.

    Returns:
        The result.

    Raises:
        ValueError: if the model or a setting does not fit the task; if there is no text; if the tokenizer does not
            have the special tokens of the task, or has tokens that the model does not have; if a source or target is
            too long; if the model returns NaN.
    """
    if task not in TEXT_TASKS:
        raise ValueError(f"task = {task!r}: must be one of {', '.join(TEXT_TASKS)}")
    if batch_size < 1:
        raise ValueError(f"batch_size = {batch_size}: must be at least 1")
    if model.config.is_encoder_decoder != TEXT_TASKS[task].encoder_decoder:
        kind = "is an encoder-decoder" if model.config.is_encoder_decoder else "is not an encoder-decoder"
        raise ValueError(f"task = {task!r}: {type(model).__name__} {kind}")
    settings = _settings(model, tokenizer, task, context_length, stride)
    encoded, digest = [], hashlib.sha256()
    for number, text in enumerate(_checked(texts, pairs=TEXT_TASKS[task].pairs)):
        encoded.append(_encode(tokenizer, text, number, settings["context_length"]))
        for part in [text] if isinstance(text, str) else text:
            _digest(digest, part)
    if not any(text.token_ids for text in encoded):
        raise ValueError(f"there is nothing to score: none of the {len(encoded)} texts has a token")
    _check_vocabulary(model, encoded)
    if task == "causal-lm":
        _check_causal(model, settings["prefix_token_id"], min(8, settings["context_length"]))

    # The longest first: rows of a batch are of about one length, and what is too large fails at once.
    order = sorted(range(len(encoded)), key=lambda number: -len(encoded[number].token_ids))
    make_rows = _ROWS[task]
    rows = ((number, row) for number in order for row in make_rows(model, tokenizer, encoded[number], settings))
    scores = [Score(0.0, 0, 0)] * len(encoded)
    unknown = tokenizer.unk_token_id
    for number, score in _score(model, rows, batch_size, sum(map(len, encoded)), unknown, description, state):
        scores[number] += score
    return TextResult(
        name=name or model.config.name_or_path or type(model).__name__,
        task=task,
        scores=tuple(scores),
        num_bytes=sum(text.num_bytes for text in encoded),
        num_unknown=sum(text.num_unknown for text in encoded),
        unknown_bytes=sum(text.unknown_bytes for text in encoded),
        lossless=all(text.lossless for text in encoded),
        texts_digest=digest.hexdigest()[:16],
        tokens_digest=_digest_tokens(tokenizer, encoded),
        settings=settings,
        num_unread=sum(len(text.unread) for text in encoded),
        unread_bytes=sum(len(piece.encode("utf-8")) for text in encoded for piece in text.unread),
    )


def _score(
    model: PreTrainedModel,
    rows: Iterator[tuple[int, Row]],
    batch_size: int,
    num_tokens: int,
    unknown: int | None,
    description: str | None,
    state: PartialState | None,
) -> list[tuple[int, Score]]:
    """Return the number of the text and the score of each row, in the order of the rows."""
    hidden = description is None or not (state is None or state.is_main_process)
    bar = tqdm(total=num_tokens, desc=description, unit=" tokens", disable=hidden, leave=False)

    def score(batch: list[tuple[int, Row]]) -> list[tuple[int, Score]]:
        inputs, targets = _collate([row for _, row in batch])
        try:
            scores = score_rows(model, inputs, targets, unknown)
        except IndexError as error:
            raise ValueError(
                f"{type(model).__name__} has no positions for {targets.shape[1]} tokens ({error}): use a smaller "
                "context_length"
            ) from error
        return [(number, score) for (number, _), score in zip(batch, scores, strict=True)]

    def done(batch: list[tuple[int, Row]]) -> None:
        bar.update(sum(target != IGNORE for _, (_, targets) in batch for target in targets))

    with evaluating(model), bar:
        return shared(rows, batch_size, score, done, state)


def _collate(rows: Sequence[Row]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Pad rows on the right, where no token is predicted from padding; the mask says what is none."""

    def padded(sequences: Iterable[list[int]], value: int) -> torch.Tensor:
        return pad_sequence([torch.tensor(sequence) for sequence in sequences], batch_first=True, padding_value=value)

    inputs = {key: padded((inputs[key] for inputs, _ in rows), 0) for key in rows[0][0]}
    inputs["attention_mask"] = padded(([1] * len(inputs["input_ids"]) for inputs, _ in rows), 0)
    return inputs, padded((targets for _, targets in rows), IGNORE)


@dataclass(frozen=True)
class _Encoded:
    """A text, or a source and its target, as tokens. What is counted is the target."""

    token_ids: "array[int]"
    begin: list[int]
    end: list[int]
    source: list[int]
    num_bytes: int
    num_unknown: int
    unknown_bytes: int
    unread: list[str]
    lossless: bool

    def __len__(self) -> int:
        return len(self.token_ids)


def _encode(
    tokenizer: PreTrainedTokenizerBase, text: str | tuple[str, str], number: int, longest: int | None
) -> _Encoded:
    options: dict[str, Any] = {"split_special_tokens": True, "verbose": False}
    source: list[int] = []
    what = "text"
    if not isinstance(text, str):
        first, text = text
        source, what = tokenizer(first, **options)["input_ids"], "text_target"
    options |= {"return_special_tokens_mask": True, "return_offsets_mapping": tokenizer.is_fast}
    token_ids = array("i")
    begin: list[int] = []
    end: list[int] = []
    unread: list[str] = []
    num_bytes = num_unknown = unknown_bytes = 0
    lossless = True
    for piece in cut_text(text, plain_encoder(tokenizer)):
        num_bytes += len(piece.encode("utf-8"))
        found = tokenizer(**{what: piece}, **options)
        ids, special = found["input_ids"], found["special_tokens_mask"]
        if tokenizer.is_fast:
            unread += _unread(piece, found["offset_mapping"])
        kept = [position for position, mark in enumerate(special) if not mark]
        if not kept:
            lossless = lossless and not piece
            continue
        if not token_ids:
            begin = ids[: kept[0]]
        end = ids[kept[-1] + 1 :]
        new = [ids[position] for position in kept]
        lossless = lossless and _gives_back(tokenizer, token_ids[-_CONTEXT:].tolist(), new, piece)
        token_ids.extend(new)
        unknown = [position for position in kept if ids[position] == tokenizer.unk_token_id]
        if unknown and not tokenizer.is_fast:
            raise ValueError(
                f"text {number} has {len(unknown)} unknown tokens, but the tokenizer does not return the characters "
                "that "
                "they replace: load its fast version"
            )
        spans = [found["offset_mapping"][position] for position in unknown]
        num_unknown += len(unknown)
        unknown_bytes += sum(len(piece[start:stop].encode("utf-8")) for start, stop in spans)
    if what == "text_target":
        for name, length in {"source": len(source), "target": len(begin) + len(token_ids) + len(end)}.items():
            if longest is not None and length > longest:
                raise ValueError(
                    f"text {number}: the {name} has {length:,} tokens, more than context_length = {longest:,}: "
                    "shorten it, or increase context_length"
                )
    return _Encoded(
        token_ids=token_ids,
        begin=begin,
        end=end,
        source=source,
        num_bytes=num_bytes,
        num_unknown=num_unknown,
        unknown_bytes=unknown_bytes,
        unread=unread,
        lossless=lossless,
    )


def _gives_back(tokenizer: PreTrainedTokenizerBase, before: list[int], new: list[int], text: str) -> bool:
    """Return whether tokens that follow others are decoded to their text."""

    def decoded(ids: list[int]) -> Any:
        return tokenizer.decode(ids, clean_up_tokenization_spaces=False) if ids else ""

    return decoded([*before, *new]) == decoded(before) + text


def _unread(text: str, spans: Iterable[tuple[int, int]]) -> Iterator[str]:
    """Yield the pieces of a text without a token, apart from spaces."""
    end = 0
    for start, stop in [*sorted(spans), (len(text), len(text))]:
        if start > end and (piece := "".join(text[end:start].split())):
            yield piece
        end = max(end, stop)


def _causal_rows(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: _Encoded, settings: dict[str, Any]
) -> Iterator[Row]:
    for input_ids, targets in causal_windows(
        text.token_ids,
        context_length=settings["context_length"],
        stride=settings["stride"],
        bos_token_id=settings["prefix_token_id"],
    ):
        yield {"input_ids": input_ids}, targets


def _masked_rows(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: _Encoded, settings: dict[str, Any]
) -> Iterator[Row]:
    for input_ids, targets in masked_windows(
        text.token_ids,
        context_length=settings["context_length"],
        mask_token_id=tokenizer.mask_token_id,
        begin=text.begin,
        end=text.end,
    ):
        yield {"input_ids": input_ids}, targets


def _seq2seq_rows(
    model: Any, tokenizer: PreTrainedTokenizerBase, text: _Encoded, settings: dict[str, Any]
) -> Iterator[Row]:
    if text.token_ids:
        labels = torch.tensor([[*text.begin, *text.token_ids, *text.end]])
        decoder_input_ids = model.prepare_decoder_input_ids_from_labels(labels=labels)[0].tolist()
        targets = [*[IGNORE] * len(text.begin), *text.token_ids, *[IGNORE] * len(text.end)]
        yield {"input_ids": text.source, "decoder_input_ids": decoder_input_ids}, targets


def _continuation_rows(
    model: Any, tokenizer: PreTrainedTokenizerBase, text: _Encoded, settings: dict[str, Any]
) -> Iterator[Row]:
    half = settings["context_length"] // 2
    for source, target in continuation_windows(
        text.token_ids, source_length=half, target_length=half, eos_token_id=tokenizer.eos_token_id
    ):
        shifted = model.prepare_decoder_input_ids_from_labels(labels=torch.tensor([target]))[0].tolist()
        yield {"input_ids": source, "decoder_input_ids": shifted}, target


_ROWS: dict[str, Callable[..., Iterator[Row]]] = {
    "causal-lm": _causal_rows,
    "masked-lm": _masked_rows,
    "continuation": _continuation_rows,
    "seq2seq-lm": _seq2seq_rows,
}


def _settings(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    task: TextTask,
    context_length: int | None,
    stride: int | None,
) -> dict[str, Any]:
    """Return what the numbers depend on, with the defaults filled in."""
    if stride is not None and not TEXT_TASKS[task].moves_on:
        raise ValueError(
            f"stride = {stride} has no effect for {task}, because its windows do not overlap: leave it out"
        )
    if task == "masked-lm" and tokenizer.mask_token_id is None:
        raise ValueError(
            "the tokenizer has no mask token, which the task masked-lm needs: use the tokenizer of the model"
        )
    if task == "continuation" and tokenizer.eos_token_id is None:
        raise ValueError(
            "the tokenizer has no eos token, which the task continuation needs at the end of a source: set "
            "tokenizer.eos_token"
        )
    if context_length is None:
        context_length = longest_input(model.config, tokenizer)
        if task != "seq2seq-lm":
            context_length = min(context_length or _LONGEST_WINDOW, _LONGEST_WINDOW)
    least = 4 if task == "continuation" else 2  # halves of a source and its end, and of a target
    if context_length is not None and context_length < least:
        raise ValueError(f"context_length = {context_length}: must be at least {least}")
    if task != "causal-lm":
        return {"context_length": context_length}
    assert context_length is not None  # a window always has a length
    stride = context_length // 2 if stride is None else stride
    return {"context_length": context_length, "stride": stride, "prefix_token_id": _prefix_token_id(tokenizer)}


def _prefix_token_id(tokenizer: PreTrainedTokenizerBase) -> int:
    for token in (tokenizer.bos_token_id, tokenizer.eos_token_id):
        if token is not None:
            return token
    raise ValueError(
        "the tokenizer has neither a bos nor an eos token, but every window of the task causal-lm begins with one: "
        "set "
        "tokenizer.bos_token"
    )


def _checked(texts: Any, pairs: bool) -> Iterator[Any]:
    wanted = "pairs of source and target" if pairs else "strings"
    if isinstance(texts, str):
        raise ValueError(f"texts is one string, not a list of {wanted}")
    for number, text in enumerate(texts):
        parts = list(text) if pairs and isinstance(text, list | tuple) else [text]
        if len(parts) != 1 + pairs or not all(isinstance(part, str) for part in parts):
            raise ValueError(f"text {number} is {text!r:.60}: texts must be {wanted}")
        yield text


def _check_causal(model: PreTrainedModel, prefix_token_id: int, length: int) -> None:
    """Raise an error if the model sees the tokens that it predicts: its perplexity would mean nothing."""
    other = 0 if prefix_token_id else 1
    rows = torch.full((2, length), prefix_token_id, device=model.device)
    rows[1, -1] = other
    with evaluating(model):
        logits = model(input_ids=rows, attention_mask=torch.ones_like(rows)).logits
    *before, last = (logits[0] - logits[1]).float().abs().amax(-1)
    # Rounding may differ between rows; a model that sees the last token differs by more.
    if max(before) > max(1e-4, 8 * torch.finfo(logits.dtype).eps) * last:
        raise ValueError(
            f"{type(model).__name__} is not causal, because its predictions depend on later tokens: evaluate it with "
            "task = 'masked-lm', or set is_decoder = True in its config"
        )


def _check_vocabulary(model: Any, texts: Iterable[_Encoded]) -> None:
    size = model.get_input_embeddings().weight.shape[0]
    largest = max(max(chain(text.token_ids, text.begin, text.end, text.source), default=0) for text in texts)
    if largest >= size:
        raise ValueError(
            f"the tokenizer returns token {largest}, but {type(model).__name__} has a vocabulary of {size}: use the "
            "tokenizer of the model"
        )


def _digest_tokens(tokenizer: PreTrainedTokenizerBase, texts: Iterable[_Encoded]) -> str:
    """Return the digest of the tokens of each text with spaces between them, without ever holding all of them."""
    spelt = [
        f" {token}".encode()
        for token in tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))  # type: ignore[union-attr]
    ]
    digest = hashlib.sha256()
    for text in texts:
        size = sum(len(spelt[token]) for token in text.token_ids)
        digest.update(max(0, size - 1).to_bytes(8, "little"))
        for start in range(0, len(text.token_ids), _DIGESTED):
            part = b"".join(spelt[token] for token in text.token_ids[start : start + _DIGESTED])
            digest.update(part if start else part[1:])
    return digest.hexdigest()[:16]


def _digest(digest: Any, text: str) -> None:
    """Add a text to a fingerprint, without a second one in memory."""
    starts = range(0, len(text), _DIGESTED)
    size = sum(len(text[start : start + _DIGESTED].encode("utf-8")) for start in starts)
    digest.update(size.to_bytes(8, "little"))
    for start in starts:
        digest.update(text[start : start + _DIGESTED].encode("utf-8"))
