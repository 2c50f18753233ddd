# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import math

import pytest
import torch
import transformers
from tiny_models import SIZES, TOKENS, enlarge
from tokenizers import Tokenizer
from tokenizers.models import BPE, WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

import hf_tx
from hf_tx.evaluation import evaluate_texts
from hf_tx.evaluation.language_models import score_rows
from hf_tx.tokenization import train_tokenizer

TEXTS = [
    "The river runs past the old mill, and the miller runs past the river. Nobody said hello to the miller.\n",
    "Hello.",
    "",
    "In 1984, 27 of 365 days were rainy; the rest, they say, was sunny!\nWeather and water, whether or not.",
    "<eos> and [MASK] are words here, and Motörhead 🙂 is a band.",
]
BATCH_SIZES = pytest.mark.parametrize("batch_size", [1, 3])
PAIRS = [(TEXTS[0], "Nobody said hello."), (TEXTS[3], "It was sunny, they say."), ("Hello.", "x"), ("A source.", "")]


def tokenizer_of(family: str, algorithm: str = "bpe", **options) -> PreTrainedTokenizerFast:
    return train_tokenizer(
        TEXTS[:4],
        algorithm=algorithm,
        family=family,
        vocab_size=400,
        model_max_length=40,
        show_progress=False,
        **options,
    )


DECODER, ENCODER, SEQ2SEQ = (tokenizer_of(family) for family in ("decoder", "encoder", "encoder-decoder"))


def tx(family: str, vocab_size: int, **settings):
    sizes = {**SIZES, "max_position_embeddings": 96, "vocab_size": vocab_size, **settings}
    tokens = {**TOKENS, "eos_token_id": 2}
    if family == "decoder":
        return enlarge(hf_tx.TxDecoderForCausalLM(hf_tx.TxDecoderConfig(**sizes, **tokens)))
    if family == "encoder":
        return enlarge(hf_tx.TxEncoderForMaskedLM(hf_tx.TxEncoderConfig(**sizes, **tokens)))
    config = hf_tx.TxEncoderDecoderConfig(encoder=sizes, decoder=sizes, decoder_start_token_id=0, **tokens)
    return enlarge(hf_tx.TxEncoderDecoderForConditionalGeneration(config))


def library(kind: str, vocab_size: int):
    """Models of transformers: of each kind those that keep another state, or count positions in another way."""
    torch.manual_seed(0)
    sizes = dict(
        vocab_size=vocab_size, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=20
    )
    bart = dict(encoder_layers=1, decoder_layers=1, d_model=16, encoder_ffn_dim=20, decoder_ffn_dim=20)
    bart |= dict(encoder_attention_heads=2, decoder_attention_heads=2, vocab_size=vocab_size, init_std=0.5)
    roberta = {**sizes, "max_position_embeddings": 98, "initializer_range": 0.5}
    build = {
        "gpt2": lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=vocab_size, initializer_range=0.5)
        ),
        "mistral": lambda: transformers.MistralForCausalLM(
            transformers.MistralConfig(**sizes, num_key_value_heads=1, sliding_window=5, initializer_range=0.5)
        ),
        "mamba": lambda: transformers.MambaForCausalLM(
            transformers.MambaConfig(vocab_size=vocab_size, hidden_size=16, num_hidden_layers=2, initializer_range=0.5)
        ),
        "roberta": lambda: transformers.RobertaForMaskedLM(transformers.RobertaConfig(**roberta)),
        "t5": lambda: transformers.T5ForConditionalGeneration(
            transformers.T5Config(
                vocab_size=vocab_size, d_model=16, d_kv=8, d_ff=20, num_layers=1, num_heads=2, decoder_start_token_id=0
            )
        ),
        "bart": lambda: transformers.BartForConditionalGeneration(transformers.BartConfig(**bart)),
    }
    return build[kind]().eval()


CAUSAL = ["full", "sliding,full", "gated_delta", "lstm", "gpt2", "mistral", "mamba"]


def causal_model(kind: str):
    if kind in ("gpt2", "mistral", "mamba"):
        return library(kind, len(DECODER))
    return tx("decoder", len(DECODER), mixers=kind, sliding_window=4 if "sliding" in kind else None).eval()


def ids_of(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]


def log_probability(logits: torch.Tensor, token: int) -> float:
    return logits.double().log_softmax(-1)[token].item()


@pytest.mark.parametrize("kind", CAUSAL)
def test_causal_models_one_token_at_a_time(kind):
    """The reference reads what may be read of the text, alone and without a cache, for each token anew."""
    model, context_length, stride = causal_model(kind), 12, 4
    expected = []
    with torch.no_grad():
        for text in TEXTS:
            tokens, total = ids_of(DECODER, text), 0.0
            for position, token in enumerate(tokens):
                # The first window ends after 11 tokens, and each of the others 4 later, but not behind the text.
                last = 11 + 4 * max(0, math.ceil((position + 1 - 11) / 4))
                first = max(0, min(last, len(tokens)) - 11)
                row = torch.tensor([[DECODER.bos_token_id, *tokens[first:position]]])
                total -= log_probability(model(row, use_cache=False).logits[0, -1], token)
            expected.append(total)
    options = dict(task="causal-lm", context_length=context_length, stride=stride)
    for batch_size in (1, 3):
        result = evaluate_texts(model, DECODER, TEXTS, batch_size=batch_size, **options)
        assert [score.nats for score in result.scores] == pytest.approx(expected, rel=1e-4)
        assert [score.num_tokens for score in result.scores] == [len(ids_of(DECODER, text)) for text in TEXTS]


@BATCH_SIZES
def test_masked_models_one_token_at_a_time(batch_size):
    for model in (tx("encoder", len(ENCODER)).eval(), library("roberta", len(ENCODER))):
        expected = []
        with torch.no_grad():
            for text in TEXTS:
                tokens, total = ids_of(ENCODER, text), 0.0
                for position, token in enumerate(tokens):
                    masked = [*tokens[:position], ENCODER.mask_token_id, *tokens[position + 1 :]]
                    row = torch.tensor([[ENCODER.cls_token_id, *masked, ENCODER.sep_token_id]])
                    total -= log_probability(model(row).logits[0, position + 1], token)
                expected.append(total)
        result = evaluate_texts(model, ENCODER, TEXTS, task="masked-lm", context_length=96, batch_size=batch_size)
        assert [score.nats for score in result.scores] == pytest.approx(expected, rel=1e-4)


@BATCH_SIZES
def test_encoder_decoders_one_target_at_a_time(batch_size):
    for model in (
        tx("encoder-decoder", len(SEQ2SEQ)).eval(),
        *(library(kind, len(SEQ2SEQ)) for kind in ("t5", "bart")),
    ):
        expected = []
        with torch.no_grad():
            for source, target in PAIRS:
                labels = SEQ2SEQ(text_target=target)["input_ids"]
                logits = model(
                    input_ids=torch.tensor([SEQ2SEQ(source)["input_ids"]]), labels=torch.tensor([labels])
                ).logits[0]
                real = [at for at, token in enumerate(labels) if token not in SEQ2SEQ.all_special_ids]
                expected.append(-sum(log_probability(logits[at], labels[at]) for at in real))
        result = evaluate_texts(model, SEQ2SEQ, PAIRS, task="seq2seq-lm", batch_size=batch_size, context_length=96)
        assert [score.nats for score in result.scores] == pytest.approx(expected, rel=1e-4)
        assert result.num_bytes == sum(len(target) for _, target in PAIRS)


class Recorder(torch.nn.Module):
    """Stands for a model that finds all tokens equally likely, and keeps what it is asked."""

    def __init__(self, vocab_size: int, **config) -> None:
        super().__init__()
        self.config = transformers.PreTrainedConfig(**config)
        self.embedding = torch.nn.Embedding(vocab_size, 1)
        self.device, self.rows = torch.device("cpu"), []
        self.prepare_decoder_input_ids_from_labels = lambda labels: labels

    def get_input_embeddings(self):
        return self.embedding

    def forward(self, input_ids, attention_mask):
        lengths = attention_mask.sum(-1).tolist()
        assert torch.equal(
            attention_mask, torch.tensor([[int(at < n) for at in range(input_ids.shape[1])] for n in lengths])
        )
        self.rows += [row[:length] for row, length in zip(input_ids.tolist(), lengths, strict=True)]
        return transformers.modeling_outputs.MaskedLMOutput(
            logits=torch.zeros(*input_ids.shape, self.embedding.num_embeddings)
        )


@pytest.mark.parametrize(("context_length", "stride"), [(2, 1), (8, 3), (8, 7), (40, None), (None, None)])
def test_every_token_is_scored_once_and_bos_never(context_length, stride):
    model = Recorder(len(DECODER))
    result = evaluate_texts(
        model, DECODER, TEXTS, task="causal-lm", context_length=context_length, stride=stride, batch_size=5
    )
    num_tokens = sum(len(ids_of(DECODER, text)) for text in TEXTS)
    assert result.score.num_tokens == num_tokens
    assert result.perplexity == pytest.approx(len(DECODER))
    assert result.bits_per_byte == pytest.approx(num_tokens * math.log2(len(DECODER)) / len("".join(TEXTS).encode()))
    # The first two rows only ask whether the model is causal.
    rows = model.rows[2:]
    assert all(row[0] == DECODER.bos_token_id and DECODER.bos_token_id not in row[1:] for row in rows)
    # The last token of a window is only predicted.
    assert max(map(len, rows)) == (context_length or 40) - 1
    # The tokenizer allows 40.
    used = context_length or 40
    expected = {"context_length": used, "stride": stride or used // 2, "prefix_token_id": DECODER.bos_token_id}
    assert result.settings == expected


@pytest.mark.parametrize("context_length", [3, 10, 96])
def test_every_token_is_masked_once_in_the_middle_of_its_window(context_length):
    model, room = Recorder(len(ENCODER)), context_length - 2
    result = evaluate_texts(model, ENCODER, TEXTS[:2], task="masked-lm", context_length=context_length, batch_size=7)
    expected = []
    for text in TEXTS[:2]:
        tokens = ids_of(ENCODER, text)
        for position in range(len(tokens)):
            masked = [*tokens[:position], ENCODER.mask_token_id, *tokens[position + 1 :]]
            first = min(max(0, position - room // 2), max(0, len(tokens) - room))
            expected.append([ENCODER.cls_token_id, *masked[first : first + room], ENCODER.sep_token_id])
    assert model.rows == expected
    assert all(row.count(ENCODER.mask_token_id) == 1 for row in model.rows)
    assert result.score.num_tokens == len(expected)


def test_without_a_bos_token_windows_begin_with_eos_and_without_both_there_is_none():
    tokenizer = tokenizer_of("decoder")
    tokenizer.bos_token = None
    model = Recorder(len(tokenizer))
    evaluate_texts(model, tokenizer, TEXTS[:2], task="causal-lm")
    assert all(row[0] == tokenizer.eos_token_id for row in model.rows[2:])
    tokenizer.eos_token = None
    with pytest.raises(ValueError, match="neither a bos nor an eos token.*set tokenizer.bos_token"):
        evaluate_texts(model, tokenizer, TEXTS[:2], task="causal-lm")


def test_bytes_are_those_of_the_text_and_what_is_unknown_is_spelt_out():
    """WordPiece: capitals and accents vanish before the tokens are cut, and an emoji is unknown."""
    tokenizer = tokenizer_of("encoder", "wordpiece", lowercase=True)
    texts = ["The Mill 🙂🙂 ran.", "a river ß"]
    model = Recorder(len(tokenizer))
    result = evaluate_texts(model, tokenizer, texts, task="masked-lm")
    num_tokens = sum(len(ids_of(tokenizer, text)) for text in texts)
    assert (result.num_bytes, result.lossless) == (
        len("The Mill 🙂🙂 ran.".encode()) + len("a river ß".encode()),
        False,
    )
    # Two words: eight bytes, and two.
    assert (result.num_unknown, result.unknown_bytes) == (2, 10)
    bits = num_tokens * math.log2(len(tokenizer)) + (10 + 2) * math.log2(257)
    assert result.bits_per_byte == pytest.approx(bits / result.num_bytes)
    assert result.score.num_tokens == num_tokens
    plain = evaluate_texts(Recorder(len(ENCODER)), ENCODER, texts, task="masked-lm")
    assert (plain.num_unknown, plain.unknown_bytes, plain.lossless) == (0, 0, True)
    found = result.as_dict()
    assert found["pseudo_bits_per_byte"] == result.bits_per_byte
    assert (found["unknown_tokens"], found["unknown_bytes"], found["bytes"]) == (2, 10, result.num_bytes)
    assert "perplexity" not in found


def test_what_no_token_stands_for_is_spelt_out():
    """A tokenizer that knows nothing and drops it predicts everything at no cost."""
    pieces = Tokenizer(BPE(vocab={"<s>": 0, "a": 1, "b": 2}, merges=[]))
    pieces.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=pieces, bos_token="<s>")
    text = "ab 🙂x ba \u200b b"
    result = evaluate_texts(Recorder(len(tokenizer)), tokenizer, [text], task="causal-lm")
    assert result.score.num_tokens == 5
    assert (result.num_unknown, result.num_unread, result.unread_bytes) == (0, 2, 8)
    bits = 5 * math.log2(len(tokenizer)) + (8 + 2) * math.log2(257)
    assert result.bits_per_byte == pytest.approx(bits / len(text.encode()))
    whole = evaluate_texts(Recorder(len(DECODER)), DECODER, [text, " ".join(TEXTS)], task="causal-lm")
    assert (whole.num_unread, whole.unread_bytes) == (0, 0)


def test_an_unknown_token_is_never_predicted_right():
    words = WordLevel(vocab={"[UNK]": 0, "[MASK]": 1, "a": 2}, unk_token="[UNK]")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), unk_token="[UNK]", mask_token="[MASK]")
    assert evaluate_texts(Recorder(3), tokenizer, ["b"], task="masked-lm").score.accuracy == 0  # which it predicts
    ids = torch.tensor([[0, 2]])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    assert [score_rows(Recorder(3), inputs, ids, unknown)[0].num_correct for unknown in (None, 0)] == [1, 0]


def test_a_text_in_halves_of_a_context():
    """Each target is read anew, with the half before it as its source."""
    model, half, expected = tx("encoder-decoder", len(SEQ2SEQ)).eval(), 5, []
    for text in TEXTS:
        tokens, total = ids_of(SEQ2SEQ, text), 0.0
        for start in range(0, len(tokens), half):
            source = [*tokens[max(0, start - half + 1) : start], SEQ2SEQ.eos_token_id]
            target = tokens[start : start + half]
            with torch.no_grad():
                read = dict(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[0, *target[:-1]]]))
                logits = model(**read).logits[0]
            total -= sum(log_probability(*each) for each in zip(logits, target, strict=True))
        expected.append(total)
    options = dict(task="continuation", context_length=2 * half, batch_size=3)
    result = evaluate_texts(model, SEQ2SEQ, TEXTS, **options)
    assert [score.nats for score in result.scores] == pytest.approx(expected, rel=1e-4)
    assert result.score.num_tokens == sum(len(ids_of(SEQ2SEQ, text)) for text in TEXTS)
    with pytest.raises(ValueError, match="context_length = 3: must be at least 4"):
        evaluate_texts(model, SEQ2SEQ, TEXTS, task="continuation", context_length=3)


def refused(message: str, model=None, tokenizer=DECODER, texts=TEXTS, **options):
    model = model or Recorder(len(tokenizer))
    with pytest.raises(ValueError, match=message):
        evaluate_texts(model, tokenizer, texts, **{"task": "causal-lm", **options})
    assert not getattr(model, "rows", [])[2:], "refused after the first step"


def test_what_does_not_fit_is_refused_before_the_first_step():
    refused("task = 'lm': must be one of causal-lm, masked-lm, continuation, seq2seq-lm", task="lm")
    refused("batch_size = 0: must be at least 1", batch_size=0)
    refused("context_length = 1: must be at least 2", context_length=1)
    refused("stride = 8: must be at least 1 and at most context_length - 1 = 7", context_length=8, stride=8)
    refused("stride = 4 has no effect for masked-lm", task="masked-lm", stride=4)
    refused("no mask token", task="masked-lm")
    refused("context_length = 2: must be at least 3, for 2", tokenizer=ENCODER, task="masked-lm", context_length=2)
    refused("nothing to score: none of the 2 texts has a token", texts=["", ""])
    refused("nothing to score: none of the 0 texts", texts=[])
    refused("texts is one string", texts="Hello.")
    refused("text 1 is 7: texts must be strings", texts=["a", 7])
    refused(r"text 0 is \('a', 'b'\): texts must be strings", texts=[("a", "b")])
    refused("returns token .*has a vocabulary of 20: use the tokenizer of the model", model=Recorder(20))
    refused("Recorder is not an encoder-decoder", texts=PAIRS, task="seq2seq-lm")
    both = Recorder(len(SEQ2SEQ), is_encoder_decoder=True)
    refused("Recorder is an encoder-decoder", model=both)
    options = dict(model=both, tokenizer=SEQ2SEQ, task="seq2seq-lm")
    refused("text 0 is 'a': texts must be pairs of source and target", texts=["a"], **options)
    refused("text 1: the target has .* tokens, more than context_length = 9", texts=[("a", "b"), ("a", TEXTS[0])],
            context_length=9, **options)  # fmt: skip
    refused("text 0: the source has .* tokens, more than context_length = 40", texts=[(TEXTS[3], "a")], **options)


def test_a_model_that_sees_what_it_predicts_is_refused():
    config = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=20)
    for is_decoder in (True, False):
        settings = transformers.BertConfig(vocab_size=len(DECODER), is_decoder=is_decoder, **config)
        model = transformers.BertLMHeadModel(settings).eval()
        if is_decoder:
            evaluate_texts(model, DECODER, TEXTS[:2], task="causal-lm")
        else:
            refused("BertLMHeadModel is not causal, because .*evaluate it with task = 'masked-lm'", model=model)


def test_a_broken_model_is_reported():
    model = tx("decoder", len(DECODER))
    model.lm_head.weight.data[3, 3] = math.nan
    with pytest.raises(ValueError, match="TxDecoderForCausalLM returns NaN"):
        evaluate_texts(model, DECODER, TEXTS, task="causal-lm")


def test_no_cache_is_kept_and_the_model_is_left_as_it_was():
    model = tx("decoder", len(DECODER), mixers="gated_delta,full").train()
    seen = []
    model.register_forward_hook(lambda module, args, kwargs, output: seen.append(output.cache), with_kwargs=True)
    evaluate_texts(model, DECODER, TEXTS[:2], task="causal-lm")
    assert seen[1:]
    assert not any(seen[1:])
    assert model.training
