# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Trains a tokenizer from texts.

The family of the model defines its template and special tokens:

| family            | a text          | a pair                  | special tokens, in the order of their ids | padding |
|-------------------|-----------------|-------------------------|-------------------------------------------|---------|
| `decoder`         | `<bos> A`       | `<bos> A B`             | `<pad> <bos> <eos> <unk>`                 | left    |
| `encoder`         | `[CLS] A [SEP]` | `[CLS] A [SEP] B [SEP]` | `[PAD] [UNK] [CLS] [SEP] [MASK]`          | right   |
| `encoder-decoder` | `A </s>`        | `A </s> B </s>`         | `<pad> </s> <unk> <extra_id_0> ...`       | right   |

The template of a decoder does not end with `<eos>`, because the model continues the prompt. To prepare documents for
training, append `tokenizer.eos_token_id`. Byte-level BPE has a token for every byte, and therefore no unknown token.

transformers 5 does not save the flags `add_bos_token` and `add_eos_token`. The template in `tokenizer.json` defines
which tokens are added, and the flags of a loaded tokenizer are False; passing them to `from_pretrained` replaces the
template.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from ..common.pieces import cut_text

Algorithm = Literal["bpe", "wordpiece", "unigram"]
Family = Literal["decoder", "encoder", "encoder-decoder"]


@dataclass(frozen=True)
class _Layout:
    """The template and the special tokens of a model family."""

    named: dict[str, str]
    single: str
    pair: str
    padding_side: str
    model_input_names: tuple[str, ...]
    extra_ids: int = 0


_LAYOUTS: dict[str, _Layout] = {
    "decoder": _Layout(
        named={"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"},
        single="<bos> $A",
        pair="<bos> $A $B:1",
        padding_side="left",
        model_input_names=("input_ids", "attention_mask"),
    ),
    "encoder": _Layout(
        named={
            "pad_token": "[PAD]",
            "unk_token": "[UNK]",
            "cls_token": "[CLS]",
            "sep_token": "[SEP]",
            "mask_token": "[MASK]",
        },
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        padding_side="right",
        model_input_names=("input_ids", "token_type_ids", "attention_mask"),
    ),
    "encoder-decoder": _Layout(
        named={"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"},
        single="$A </s>",
        pair="$A </s> $B:1 </s>:1",
        padding_side="right",
        model_input_names=("input_ids", "attention_mask"),
        extra_ids=100,
    ),
}


def train_tokenizer(
    texts: Iterable[str] | Iterable[list[str]],
    *,
    algorithm: Algorithm = "bpe",
    vocab_size: int = 8192,
    family: Family = "decoder",
    model_max_length: int | None = None,
    min_frequency: int | None = None,
    lowercase: bool = False,
    additional_special_tokens: Iterable[str] = (),
    extra_ids: int | None = None,
    show_progress: bool = True,
    length: int | None = None,
) -> PreTrainedTokenizerFast:
    """Train a tokenizer from texts. The texts are read once and not stored.

    Save the result with `save_pretrained` (or `save_tokenizer`), and load it with `AutoTokenizer.from_pretrained`,
    with or without hf_tx.

    Byte-level BPE decodes every text exactly: `decode(encode(text), skip_special_tokens=True) == text`, unless the
    text contains a special token (`split_special_tokens=True` reads it as plain text) or `lowercase` is set. Training
    on the same texts gives the same ids. WordPiece drops white space and control characters. Unigram adds a space
    before a text without one; if this space is a token, the token has the offsets of the first character. Both convert
    characters that were not in the texts to the unknown token, and their trainers break ties in random order, so that
    a few tokens can differ between two runs.

    Args:
        texts: strings, or lists of strings.
        algorithm: `"bpe"` (byte-level: Sennrich et al. 2016, Radford et al. 2019), `"wordpiece"` (Schuster and
            Nakajima 2012, as in Devlin et al. 2019) or `"unigram"` (Kudo 2018).
        vocab_size: maximum number of tokens, including special tokens. Few texts result in fewer tokens.
        family: the family of the model. It defines the special tokens, the template, the padding side and the names
            of the inputs.
        model_max_length: maximum length of the input of the model, in tokens; None for no limit.
        min_frequency: how often a pair must occur to be merged. Default: 2. Unigram has no merges.
        lowercase: whether to convert texts to lower case. WordPiece then drops accents too, as BERT does.
        additional_special_tokens: more special tokens, which are never split. They follow those of the family.
        extra_ids: the number of sentinels `<extra_id_0>`, `<extra_id_1>` ... for span corruption. Default: 100
            for encoder-decoders and 0 for others.
        show_progress: whether to show progress bars (on a terminal).
        length: the number of texts, if known, for the progress bar.

    Returns:
        The tokenizer.

    Raises:
        ValueError: if the algorithm or family is unknown, a number is out of range, a special token is blank or given
            twice, `vocab_size` is smaller than the special tokens and the alphabet, or `texts` has no text or an item
            that is not a string.
    """
    if family not in _LAYOUTS:
        raise ValueError(f"family={family!r} is unknown: choose one of {_listed(_LAYOUTS)}")
    if algorithm not in get_args(Algorithm):
        raise ValueError(f"algorithm={algorithm!r} is unknown: choose one of {_listed(get_args(Algorithm))}")
    if isinstance(texts, str | bytes):
        raise ValueError(f"texts is one {type(texts).__name__}, not an iterable of strings: pass [text]")
    if vocab_size < 1:
        raise ValueError(f"vocab_size={vocab_size} must be at least 1")
    if model_max_length is not None and model_max_length < 1:
        raise ValueError(f"model_max_length={model_max_length} must be at least 1, or None for no limit")
    if min_frequency is not None and algorithm == "unigram":
        raise ValueError(f"min_frequency={min_frequency} has no meaning for algorithm='unigram': leave it out")
    if min_frequency is not None and min_frequency < 1:
        raise ValueError(f"min_frequency={min_frequency} must be at least 1")
    if isinstance(additional_special_tokens, str):
        raise ValueError(f"additional_special_tokens is one string: pass [{additional_special_tokens!r}]")
    if extra_ids is not None and extra_ids < 0:
        raise ValueError(f"extra_ids={extra_ids} must be at least 0")

    layout = _LAYOUTS[family]
    # If every text has tokens, an unknown token would be a row of the embeddings that is never trained.
    named = {role: token for role, token in layout.named.items() if algorithm != "bpe" or role != "unk_token"}
    more = [f"<extra_id_{i}>" for i in range(layout.extra_ids if extra_ids is None else extra_ids)]
    more += additional_special_tokens
    specials = _special_tokens([*named.values(), *more], algorithm)

    tokenizer = _untrained(algorithm, named.get("unk_token"), lowercase)
    trainer = _trainer(algorithm, vocab_size, min_frequency or 2, specials, named.get("unk_token"), show_progress)
    _fit(tokenizer, trainer, texts, length, vocab_size, algorithm, len(specials))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=layout.single,
        pair=layout.pair,
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in named.values()],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        padding_side=layout.padding_side,
        model_max_length=model_max_length,
        model_input_names=list(layout.model_input_names),
        clean_up_tokenization_spaces=False,
        extra_special_tokens=more,
        **named,
    )


def _listed(names: Iterable[object]) -> str:
    return ", ".join(repr(name) for name in names)


def _special_tokens(tokens: list[str], algorithm: str) -> list[AddedToken]:
    for token in tokens:
        if not isinstance(token, str) or not token.strip() or tokens.count(token) > 1:
            raise ValueError(
                f"special token {token!r} is blank, given twice or not a string; the special tokens are "
                f"{_listed(tokens)}"
            )
    # BPE and Unigram keep a space with the word after it. A mask replaces both, so it includes the space.
    takes_space = () if algorithm == "wordpiece" else ("[MASK]",)
    return [AddedToken(token, special=True, normalized=False, lstrip=token in takes_space) for token in tokens]


def _fit(
    tokenizer: Tokenizer,
    trainer: trainers.Trainer,
    texts: Iterable[str] | Iterable[list[str]],
    length: int | None,
    vocab_size: int,
    algorithm: str,
    num_special_tokens: int,
) -> None:
    """Train `tokenizer`, and raise an error if the vocabulary is too small for the special tokens and the alphabet.

    The trainers of BPE and WordPiece would exceed `vocab_size` instead.
    """
    too_small = f"vocab_size={vocab_size} is too small for {num_special_tokens} special tokens and "
    alphabet = len(pre_tokenizers.ByteLevel.alphabet()) if algorithm == "bpe" else 1
    if vocab_size < num_special_tokens + alphabet:
        raise ValueError(f"{too_small}an alphabet of {alphabet}: it must be at least {num_special_tokens + alphabet}")
    advice = "increase vocab_size, or use algorithm='bpe', which needs only 256 bytes for any text"
    try:
        tokenizer.train_from_iterator(_only_texts(texts), trainer=trainer, length=length)
    except Exception as error:
        # tokenizers has no exception class for this.
        if "not large enough to contain all chars" in str(error):
            raise ValueError(f"{too_small}the characters of the texts: {advice}") from error
        raise
    size = tokenizer.get_vocab_size()
    if size > vocab_size:
        found = f"{size - num_special_tokens} characters (at the start of a word and within)"
        raise ValueError(f"{too_small}{found}: {advice}")


def _only_texts(texts: Iterable[str] | Iterable[list[str]]) -> Iterator[str]:
    blank = True
    for number, item in enumerate(texts):
        for text in item if isinstance(item, list | tuple) else [item]:
            if not isinstance(text, str):
                raise ValueError(f"texts: item {number} is or contains {type(text).__name__}, not a string")
            blank = blank and not text.strip()
            yield from cut_text(text)
    if blank:
        raise ValueError("texts has no text to train on")


def _untrained(algorithm: str, unknown: str | None, lowercase: bool) -> Tokenizer:
    if algorithm == "bpe":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    elif algorithm == "wordpiece":
        tokenizer = Tokenizer(models.WordPiece(unk_token=unknown))
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        # The decoder's cleanup would rewrite words ("do not" to "don't"), not only spaces.
        tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=False)
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=lowercase)
        return tokenizer
    else:
        tokenizer = Tokenizer(models.Unigram())
        # Lines are split first: a word must not cross the end of a line.
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(r"[\r\n]+"), behavior="isolated"),
                pre_tokenizers.Metaspace(prepend_scheme="first"),
            ]
        )
        tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    if lowercase:
        tokenizer.normalizer = normalizers.Lowercase()
    return tokenizer


def _trainer(
    algorithm: str,
    vocab_size: int,
    min_frequency: int,
    special_tokens: list[AddedToken],
    unknown: str | None,
    show_progress: bool,
) -> trainers.Trainer:
    common: dict[str, Any] = {
        "vocab_size": vocab_size,
        "special_tokens": special_tokens,
        "show_progress": show_progress,
    }
    if algorithm == "bpe":
        # All bytes: otherwise bytes that are not in the texts would be dropped silently.
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        return trainers.BpeTrainer(min_frequency=min_frequency, initial_alphabet=alphabet, **common)
    if algorithm == "wordpiece":
        return trainers.WordPieceTrainer(min_frequency=min_frequency, **common)
    return trainers.UnigramTrainer(unk_token=unknown, **common)
