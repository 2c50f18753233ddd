# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import json
import random
import subprocess
import sys
import unicodedata
import weakref

import pytest
from transformers import AutoTokenizer, DataCollatorForLanguageModeling

from hf_tx.tokenization import train_tokenizer

ALGORITHMS = ["bpe", "wordpiece", "unigram"]
FAMILIES = ["decoder", "encoder", "encoder-decoder"]
EVERY = [(algorithm, family) for algorithm in ALGORITHMS for family in FAMILIES]

NAMED = {
    "decoder": {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"},
    "encoder": {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    },
    "encoder-decoder": {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"},
}

# Strings that byte-level tokenizers have got wrong: spaces, line ends, control characters, what joins or combines,
# scripts and planes.
HARD = [
    "",
    " ",
    "hello",
    " leading and trailing  ",
    "two  spaces , before a comma .",
    "do not, don't, it 's",
    "\n\n\n",
    "one\r\ntwo\rthree\n",
    "tab\tand\x0bother\x0cblanks",
    "\x00",
    "a\x00b\x00",
    "\x7f\x1b[0m",
    "\u0301",
    "e\u0301 and \u00e9",
    "\u0915\u094d\u0937\u093f",
    "\u6f22\u5b57\u3001\u304b\u306a",
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0001f1e9\U0001f1ea\u2764\ufe0f",
    "\ufeff bom \u00a0\u2003\u3000",
    "\ufffd\ufffe\uffff\U0010ffff",
    "\u0120\u2581##",
    "[CLS <bos eos> [ MASK ]",
]


def random_text(generator: random.Random) -> str:
    planes = [(0x00, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF)]
    return "".join(chr(generator.randint(*generator.choice(planes))) for _ in range(generator.randint(1, 40)))


# What is saved, and what is loaded


@pytest.mark.parametrize(("algorithm", "family"), EVERY)
def test_everything_survives_the_folder(trained, tmp_path, algorithm, family):
    tokenizer, loaded, _ = trained(algorithm, family)
    named = {role: token for role, token in NAMED[family].items() if algorithm != "bpe" or role != "unk_token"}
    loaded.save_pretrained(tmp_path)
    for candidate in (tokenizer, loaded, AutoTokenizer.from_pretrained(tmp_path)):
        assert candidate.special_tokens_map == named
        assert candidate.convert_tokens_to_ids(list(named.values())) == list(range(len(named)))
        assert candidate.padding_side == ("left" if family == "decoder" else "right")
        assert candidate.model_max_length == 64
        assert candidate.clean_up_tokenization_spaces is False
        sentinels = [f"<extra_id_{i}>" for i in range(100)] if family == "encoder-decoder" else []
        assert candidate.extra_special_tokens == sentinels
        names = ["input_ids", "attention_mask"]
        assert candidate.model_input_names == (
            ["input_ids", "token_type_ids", "attention_mask"] if family == "encoder" else names
        )
        assert candidate.get_vocab() == tokenizer.get_vocab()
        for text in HARD:
            assert candidate(text, text) == tokenizer(text, text)


def test_without_a_limit(texts, tmp_path):
    train_tokenizer(texts, vocab_size=300, show_progress=False).save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert len(loaded("hello " * 5000, truncation=True, verbose=False)["input_ids"]) > 5000


@pytest.mark.parametrize("family", FAMILIES)
def test_loads_beside_a_model_that_transformers_does_not_know(trained, tmp_path, family):
    tokenizer, _, _ = trained("bpe", family)
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "known_to_nobody", "vocab_size": 500}))
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded("hello", "you") == tokenizer("hello", "you")
    assert loaded.padding_side == tokenizer.padding_side


# Templates (C36, C42)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_decoder_template(trained, algorithm):
    _, tokenizer, _ = trained(algorithm, "decoder")
    encoded = tokenizer("hello")
    plain = tokenizer("hello", add_special_tokens=False)["input_ids"]
    other = tokenizer("you", add_special_tokens=False)["input_ids"]
    assert set(encoded) == {"input_ids", "attention_mask"}
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1, 2)
    assert plain
    assert not {0, 1, 2} & {*plain, *other}
    assert encoded["input_ids"] == [1, *plain]
    assert tokenizer("hello", "you")["input_ids"] == [1, *plain, *other]
    assert tokenizer("")["input_ids"] == [1]
    assert tokenizer.num_special_tokens_to_add() == 1


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_encoder_template(trained, algorithm):
    _, tokenizer, _ = trained(algorithm, "encoder")
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    plain = tokenizer("hello", add_special_tokens=False)["input_ids"]
    other = tokenizer("you", add_special_tokens=False)["input_ids"]
    assert tokenizer("hello")["input_ids"] == [cls, *plain, sep]
    pair = tokenizer("hello", "you")
    assert pair["input_ids"] == [cls, *plain, sep, *other, sep]
    assert pair["token_type_ids"] == [0] * (len(plain) + 2) + [1] * (len(other) + 1)
    assert tokenizer.num_special_tokens_to_add(pair=True) == 3


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_encoder_decoder_template(trained, algorithm):
    _, tokenizer, _ = trained(algorithm, "encoder-decoder")
    eos = tokenizer.eos_token_id
    plain = tokenizer("hello", add_special_tokens=False)["input_ids"]
    other = tokenizer("you", add_special_tokens=False)["input_ids"]
    assert (tokenizer.pad_token_id, eos) == (0, 1)
    assert tokenizer("hello")["input_ids"] == [*plain, 1]
    assert tokenizer(text_target="hello")["input_ids"] == [*plain, 1]
    assert tokenizer("hello", "you")["input_ids"] == [*plain, 1, *other, 1]
    assert "token_type_ids" not in tokenizer("hello")


def test_bos_stands_once_at_the_front(trained):
    _, tokenizer, _ = trained("bpe", "decoder")
    tokenizer.chat_template = (
        "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{{ eos_token }}{% endfor %}"
    )
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "goodbye"}]
    context = tokenizer("hello there")["input_ids"]
    encodings = [
        context,
        tokenizer("hello " * 100, truncation=True, max_length=8)["input_ids"],
        tokenizer("hello", "you")["input_ids"],
        tokenizer.apply_chat_template(messages, return_dict=False),
        # As evaluation harnesses do it: a context with special tokens, a continuation without.
        context + tokenizer(" brother", add_special_tokens=False)["input_ids"],
    ]
    for ids in [*encodings, *tokenizer(["hello", "a longer text"])["input_ids"]]:
        assert ids[0] == tokenizer.bos_token_id
        assert ids.count(tokenizer.bos_token_id) == 1
    assert tokenizer.apply_chat_template(messages, return_dict=False).count(tokenizer.eos_token_id) == 2


def test_flags_that_are_given_agree_with_what_is_added(trained):
    _, _, folder = trained("bpe", "decoder")
    plain = AutoTokenizer.from_pretrained(folder)("hello", add_special_tokens=False)["input_ids"]
    for flag, front in ((True, [1]), (False, [])):
        tokenizer = AutoTokenizer.from_pretrained(folder, add_bos_token=flag)
        assert tokenizer.add_bos_token is flag
        assert tokenizer("hello")["input_ids"] == front + plain


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_side(trained, family):
    _, tokenizer, _ = trained("bpe", family)
    batch = tokenizer(["hello", "hello to the other brother"], padding=True)
    mask = batch["attention_mask"][0]
    assert len(mask) == len(batch["input_ids"][1])
    assert mask == sorted(mask, reverse=family != "decoder")
    assert 0 < sum(mask) < len(mask)
    padding = [token for token, real in zip(batch["input_ids"][0], mask, strict=True) if not real]
    assert set(padding) == {tokenizer.pad_token_id}


@pytest.mark.parametrize(("algorithm", "family"), EVERY)
def test_special_tokens_are_never_split(trained, algorithm, family):
    _, tokenizer, _ = trained(algorithm, family)
    for token in tokenizer.all_special_tokens[:8]:
        ids = tokenizer(f"hello{token}hello {token}", add_special_tokens=False)["input_ids"]
        assert ids.count(tokenizer.convert_tokens_to_ids(token)) == 2
        assert tokenizer.decode(ids, skip_special_tokens=True).replace(" ", "") == "hellohello"


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_a_mask_takes_the_space_before_it(trained, algorithm):
    _, tokenizer, _ = trained(algorithm, "encoder")
    whole = tokenizer("said hello to the", add_special_tokens=False)["input_ids"]
    start, end = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("said", " to the"))
    if algorithm == "unigram":  # A text that starts with a space is the same as one that does not.
        end = tokenizer("x to the", add_special_tokens=False)["input_ids"][-len(end) :]
    assert whole[: len(start)] == start
    masked = tokenizer("said [MASK] to the", add_special_tokens=False)["input_ids"]
    assert masked == [*start, tokenizer.mask_token_id, *end]


def test_sentinels_and_own_special_tokens(texts):
    tokenizer = train_tokenizer(
        texts, vocab_size=300, extra_ids=2, additional_special_tokens=["<sep>", "<tool>"], show_progress=False
    )
    assert tokenizer.extra_special_tokens == ["<extra_id_0>", "<extra_id_1>", "<sep>", "<tool>"]
    assert tokenizer.convert_tokens_to_ids(tokenizer.extra_special_tokens) == [3, 4, 5, 6]
    assert tokenizer("<tool><extra_id_1>")["input_ids"] == [1, 6, 4]


def test_padding_is_not_eos_so_that_labels_keep_eos(trained):
    """C35: the collator of transformers ignores every label that equals the padding token."""
    _, tokenizer, _ = trained("bpe", "decoder")
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    rows = [
        {"input_ids": tokenizer(text)["input_ids"] + [tokenizer.eos_token_id]}
        for text in ("hello", "hello to the other brother")
    ]
    batch = DataCollatorForLanguageModeling(tokenizer, mlm=False)(rows)
    assert (batch["labels"] == tokenizer.eos_token_id).sum().item() == 2
    assert batch["labels"][0].tolist()[-len(rows[0]["input_ids"]) :] == rows[0]["input_ids"]
    num_padding = len(rows[1]["input_ids"]) - len(rows[0]["input_ids"])
    assert batch["labels"][0].tolist()[:num_padding] == [-100] * num_padding


# What texts become (C40, C41, C81)


@pytest.mark.parametrize("family", FAMILIES)
def test_byte_level_round_trip_is_exact(trained, family):
    _, tokenizer, _ = trained("bpe", family)
    generator = random.Random(0)
    cases = [*HARD, *(random_text(generator) for _ in range(300)), "".join(map(chr, range(0x300)))]
    for text in cases:
        assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text
    assert tokenizer.batch_decode(tokenizer(cases)["input_ids"], skip_special_tokens=True) == cases


def test_byte_level_reads_the_name_of_a_special_token_as_text_when_asked(trained):
    _, tokenizer, _ = trained("bpe", "decoder")
    text = "a<eos>b <pad>"
    assert tokenizer.eos_token_id in tokenizer(text)["input_ids"]
    ids = tokenizer(text, split_special_tokens=True)["input_ids"]
    assert tokenizer.eos_token_id not in ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("algorithm", ["wordpiece", "unigram"])
@pytest.mark.parametrize("new", ["\u03a9", "\U0001f600", "\u6f22"])
def test_unknown_characters_are_visible(trained, algorithm, family, new):
    _, tokenizer, _ = trained(algorithm, family)
    ids = tokenizer(f"hello {new} you", add_special_tokens=False)["input_ids"]
    assert ids.count(tokenizer.unk_token_id) == 1
    assert tokenizer.decode(ids).split() == ["hello", tokenizer.unk_token, "you"]


def test_byte_level_has_no_unknown_token(trained):
    _, tokenizer, _ = trained("bpe", "encoder")
    assert tokenizer.unk_token is None
    assert "[UNK]" not in tokenizer.get_vocab()


def test_unigram_keeps_spaces_and_lines_of_known_characters(trained):
    _, tokenizer, _ = trained("unigram", "decoder")
    text = "the  river\n\nruns past,   the mill\nhello"
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_wordpiece_does_not_rewrite_words(trained):
    _, tokenizer, _ = trained("wordpiece", "encoder")
    ids = tokenizer("they do not say the old mill , and")["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "they do not say the old mill , and"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_offsets_cover_the_text(trained, algorithm):
    _, tokenizer, _ = trained(algorithm, "encoder")
    generator = random.Random(1)
    mixed = "hello \U0001f600e\u0301 \u6f22\u5b57\u200d you"
    for text in [*HARD, mixed, *(random_text(generator) for _ in range(100))]:
        encoded = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
        offsets = encoded["offset_mapping"]
        if algorithm == "unigram" and encoded.tokens()[:1] == ["\u2581"] and not text.startswith(" "):
            # The space that Unigram puts before a text stands where the text begins.
            assert offsets[0] == (0, 1)
            offsets = offsets[1:]
        assert offsets == sorted(offsets)
        assert all(0 <= start < end <= len(text) for start, end in offsets)
        labelled = [0] * len(text)
        for start, end in dict.fromkeys(offsets):
            for position in range(start, end):
                labelled[position] += 1
        for position, count in enumerate(labelled):
            if algorithm == "wordpiece" and count == 0:
                # BERT's normalizer drops white space and what is not printable.
                assert unicodedata.category(text[position])[0] in "ZC" or text[position] in "\ufffd"
            else:
                assert count == 1, (text, position)


def test_offsets_count_characters_and_repeat_for_the_bytes_of_one(trained):
    _, tokenizer, _ = trained("bpe", "decoder")
    encoded = tokenizer("\U0001f600x\u00e9", return_offsets_mapping=True)
    assert encoded["offset_mapping"] == [(0, 0), (0, 1), (0, 1), (0, 1), (0, 1), (1, 2), (2, 3), (2, 3)]


def test_lowercase(texts):
    for algorithm in ALGORITHMS:
        tokenizer = train_tokenizer(texts, algorithm=algorithm, vocab_size=400, lowercase=True, show_progress=False)
        assert tokenizer("The RIVER")["input_ids"] == tokenizer("the river")["input_ids"]
        assert tokenizer("the<eos>")["input_ids"][-1] == tokenizer.eos_token_id


def test_lowercase_leaves_special_tokens_alone(texts):
    tokenizer = train_tokenizer(texts, family="encoder", vocab_size=400, lowercase=True, show_progress=False)
    assert tokenizer("said [MASK]")["input_ids"].count(tokenizer.mask_token_id) == 1
    assert tokenizer("said [mask]")["input_ids"].count(tokenizer.mask_token_id) == 0


# Training


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_ids_are_dense_and_at_most_vocab_size(texts, algorithm):
    for vocab_size in (270, 320):
        tokenizer = train_tokenizer(texts, algorithm=algorithm, vocab_size=vocab_size, show_progress=False)
        assert len(tokenizer) <= vocab_size
        assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer)))
    assert len(tokenizer) > 270 or algorithm != "bpe"


def test_byte_level_training_is_deterministic(texts):
    first, second = (train_tokenizer(texts, vocab_size=400, show_progress=False) for _ in range(2))
    assert first.backend_tokenizer.to_str() == second.backend_tokenizer.to_str()


def test_lists_of_strings_are_the_same_texts(texts):
    flat = train_tokenizer(texts, vocab_size=400, show_progress=False)
    batched = train_tokenizer([texts[:7], texts[7:]], vocab_size=400, show_progress=False, length=len(texts))
    assert flat.get_vocab() == batched.get_vocab()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_training_again_leaves_nothing_of_before(tmp_path, texts, algorithm):
    before = ["quixotic zebras quiz jazzy quixotic wizards " * 3] * 10
    options = {"algorithm": algorithm, "vocab_size": 400, "show_progress": False}
    old = train_tokenizer(before, additional_special_tokens=["<old>"], **options)
    old.save_pretrained(tmp_path)
    new = train_tokenizer(texts, **options)
    new.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.get_vocab() == new.get_vocab()
    assert "<old>" not in loaded.get_vocab()
    assert [token for token in old.get_vocab() if "qui" in token]
    assert not [token for token in loaded.get_vocab() if "qui" in token]
    assert loaded("hello")["input_ids"] == new("hello")["input_ids"]
    assert loaded("hello")["input_ids"][0] == loaded.bos_token_id
    assert loaded.decode(loaded("hello")["input_ids"], skip_special_tokens=True) == "hello"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_training_again_with_transformers_keeps_the_template(trained, algorithm):
    _, tokenizer, _ = trained(algorithm, "encoder")
    new = tokenizer.train_new_from_iterator(["quixotic zebras quiz jazzy wizards"] * 20, 400, show_progress=False)
    ids = new("quixotic", "zebras")["input_ids"]
    assert ids[0] == new.cls_token_id
    assert [position for position, token in enumerate(ids) if token == new.sep_token_id][-1] == len(ids) - 1
    assert ids.count(new.sep_token_id) == 2
    assert max(ids) < len(new)


def test_texts_are_streamed(texts):
    class Text(str):
        """A string that can be watched."""

        __slots__ = ("__weakref__",)

    alive: weakref.WeakSet = weakref.WeakSet()
    most = 0

    def stream():
        nonlocal most
        for number in range(5000):
            text = Text(f"{texts[number % len(texts)]} {number}")
            alive.add(text)
            most = max(most, len(alive))
            yield text

    train_tokenizer(stream(), vocab_size=300, show_progress=False)
    assert 0 < most < 1000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "word"}, "algorithm='word' is unknown: choose one of 'bpe', 'wordpiece', 'unigram'"),
        ({"family": "gpt"}, "family='gpt' is unknown: choose one of 'decoder', 'encoder', 'encoder-decoder'"),
        ({"vocab_size": 258}, "vocab_size=258 is too small for 3 special tokens .* at least 259"),
        ({"vocab_size": 358, "family": "encoder-decoder"}, "too small for 102 special tokens .* at least 358"),
        (
            {"vocab_size": 40, "algorithm": "wordpiece"},
            "vocab_size=40 is too small for 4 special tokens and .* increase",
        ),
        (
            {"vocab_size": 40, "algorithm": "unigram"},
            "vocab_size=40 is too small for 4 special tokens and .* increase",
        ),
        ({"vocab_size": 4, "algorithm": "unigram"}, "vocab_size=4 is too small for 4 special tokens"),
        ({"vocab_size": -3}, "vocab_size=-3 must be at least 1"),
        ({"model_max_length": 0}, "model_max_length=0 must be at least 1"),
        ({"min_frequency": 0}, "min_frequency=0 must be at least 1"),
        ({"min_frequency": 2, "algorithm": "unigram"}, "min_frequency=2 has no meaning for algorithm='unigram'"),
        ({"extra_ids": -1}, "extra_ids=-1 must be at least 0"),
        ({"additional_special_tokens": "<sep>"}, r"pass \['<sep>'\]"),
        ({"additional_special_tokens": ["<eos>"]}, "special token '<eos>' is blank, given twice"),
        ({"additional_special_tokens": [" "]}, "special token ' ' is blank"),
        ({"additional_special_tokens": [3]}, "special token 3 is .* not a string"),
    ],
)
def test_options_that_do_not_serve(texts, options, message):
    if options.get("vocab_size") == 358:
        train_tokenizer(texts, **options, show_progress=False)
        options = {**options, "vocab_size": 357}
    with pytest.raises(ValueError, match=message):
        train_tokenizer(texts, **options, show_progress=False)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([], "texts has no text"),
        (["", " \n\t"], "texts has no text"),
        (iter(()), "texts has no text"),
        ("hello", "texts is one str"),
        (b"hello", "texts is one bytes"),
        (["hello", None], "item 1 is or contains NoneType, not a string"),
        (["hello", ["you", b"there"]], "item 1 is or contains bytes, not a string"),
    ],
)
def test_texts_that_do_not_serve(algorithm, bad, message):
    with pytest.raises(ValueError, match=message):
        train_tokenizer(bad, algorithm=algorithm, vocab_size=300, show_progress=False)


def test_an_error_of_the_texts_is_passed_on():
    def texts():
        yield "hello"
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        train_tokenizer(texts(), vocab_size=300, show_progress=False)


def test_the_import_is_light():
    code = "import sys, hf_tx.tokenization; print(sorted({'datasets', 'evaluate', 'peft'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
