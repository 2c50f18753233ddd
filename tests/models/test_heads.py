# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Heads: which state of a text is scored, whichever side is padded, and what the decoder of a seq2seq model reads."""

import re
from typing import Any

import pytest
import torch
from tiny_models import assert_close, assert_differ, config_of, enlarge, padded, tokens
from torch.nn.functional import cross_entropy
from transformers.activations import ACT2FN
from transformers.loss.loss_utils import ForQuestionAnsweringLoss

import hf_tx

SIDES = ("left", "right")
TEXTS = [tokens(size, seed=size) for size in (9, 6, 2, 1)]
PREFIXES = {"decoder": "TxDecoder", "encoder": "TxEncoder", "encoder_decoder": "TxEncoderDecoder"}


def head(family: str, kind: str, num_labels: int = 3, **settings: Any) -> Any:
    """Build a head in eval mode; what every position scheme shares is tested with rope."""
    config = config_of(family, **settings)
    config.num_labels = num_labels
    return enlarge(getattr(hf_tx, PREFIXES[family] + kind)(config)).eval()


def alone(model: Any, **settings: Any) -> torch.Tensor:
    """Return the logits of every text in a row of its own, without a mask."""
    return torch.cat([model(input_ids=text[None], **settings).logits for text in TEXTS])


# Classifying a text.
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("decoder", {}),
        ("decoder", dict(position_type="learned")),
        ("decoder", dict(position_type="alibi", mixers="sliding,full")),
        ("encoder", dict(classifier_pooling="first")),
        ("encoder", dict(classifier_pooling="mean")),
        ("encoder", dict(add_pooling_layer=True)),
        ("encoder", dict(position_type="learned", norm_position="post", embedding_norm=True, add_pooling_layer=True)),
        ("encoder_decoder", {}),
        ("encoder_decoder", dict(position_type="learned")),
        ("encoder_decoder", dict(position_type="relative", relative_attention_per_layer=True)),
    ],
    ids=str,
)
def test_scores_of_a_text_do_not_depend_on_its_padding(family: str, settings: dict[str, Any], side: str) -> None:
    model = head(family, "ForSequenceClassification", **settings)
    batch, mask = padded(TEXTS, side, extra=2)
    expected = alone(model)
    assert expected.shape == (4, 3)
    assert_differ(expected[:-1], expected[1:])
    assert_close(model(input_ids=batch, attention_mask=mask).logits, expected)


@pytest.mark.parametrize("side", SIDES)
def test_a_decoder_scores_its_last_real_token(side: str) -> None:
    model = head("decoder", "ForSequenceClassification")
    batch, mask = padded(TEXTS, side)
    states = [model.model(input_ids=text[None]).last_hidden_state[0, -1] for text in TEXTS]
    assert_close(model(input_ids=batch, attention_mask=mask).logits, model.score(torch.stack(states)))
    # Without a mask, padding is what holds the padding token; nothing hides it from attention on the left.
    pads = batch.masked_fill(mask == 0, 0)
    if side == "right":
        assert_close(model(input_ids=pads).logits, alone(model))
    else:
        assert_close(model(input_ids=pads).logits, model.score(model.model(input_ids=pads).last_hidden_state[:, -1]))


def test_a_last_token_that_nothing_names_is_refused() -> None:
    model = head("decoder", "ForSequenceClassification")
    batch = tokens(2, 5)
    embeds = model.get_input_embeddings()(batch)
    with pytest.raises(ValueError, match="2 rows, but it is not known which tokens are padding"):
        model(inputs_embeds=embeds)
    expected = model(input_ids=batch).logits
    assert_close(model(inputs_embeds=embeds, attention_mask=torch.ones_like(batch)).logits, expected)
    assert_close(model(inputs_embeds=embeds[:1]).logits, expected[:1])
    model.config.pad_token_id = None
    with pytest.raises(ValueError, match="config.pad_token_id"):
        model(input_ids=batch)
    assert_close(model(input_ids=batch[:1]).logits, expected[:1])


@pytest.mark.parametrize("side", SIDES)
def test_a_decoder_scores_the_last_token_of_a_continued_text(side: str) -> None:
    model = head("decoder", "ForSequenceClassification")
    batch, mask = padded([tokens(9), tokens(7, seed=1)], side)
    expected = model(input_ids=batch, attention_mask=mask).logits
    first = model(input_ids=batch[:, :6], attention_mask=mask[:, :6], use_cache=True)
    second = model(input_ids=batch[:, 6:], attention_mask=mask, cache=first.cache)
    assert_close(second.logits, expected)


def test_a_chunk_after_the_end_of_a_text_is_refused() -> None:
    model = head("decoder", "ForSequenceClassification")
    batch, mask = padded([tokens(9), tokens(5, seed=1)], "right")
    first = model(input_ids=batch[:, :5], attention_mask=mask[:, :5], use_cache=True)
    with pytest.raises(ValueError, match=r"rows \[1\] only have padding in this call"):
        model(input_ids=batch[:, 5:], attention_mask=mask, cache=first.cache)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_poolings_read_real_positions_only(pooling: str, side: str) -> None:
    model = head("encoder", "ForSequenceClassification", classifier_pooling=pooling)
    batch, mask = padded(TEXTS, side)
    states = [model.model(input_ids=text[None]).last_hidden_state[0] for text in TEXTS]
    pooled = torch.stack([state[0] if pooling == "first" else state.mean(0) for state in states])
    assert_close(model(input_ids=batch, attention_mask=mask).logits, model.score(pooled))
    assert_close(model(input_ids=TEXTS[0][None]).logits, model.score(pooled[:1]))


def test_a_pooling_layer_goes_before_the_pooling() -> None:
    model = head("encoder", "ForSequenceClassification", add_pooling_layer=True, classifier_pooling="mean")
    outputs = model.model(input_ids=TEXTS[0][None])
    pooler = model.model.pooler.dense
    expected = torch.tanh(pooler(outputs.last_hidden_state[:, 0]))
    assert_close(outputs.pooler_output, expected)
    assert_close(model(input_ids=TEXTS[0][None]).logits, model.score(expected))
    relu = head("encoder", "ForSequenceClassification", add_pooling_layer=True, pooler_act="relu")
    assert relu.model(input_ids=TEXTS[0][None]).pooler_output.min() == 0
    # Heads that read every position leave it out.
    assert head("encoder", "ForTokenClassification", add_pooling_layer=True).model.pooler is None


@pytest.mark.parametrize("projected", [False, True])
def test_a_masked_language_model_without_a_transform_reads_the_states(projected: bool) -> None:
    config = config_of(
        "encoder",
        embedding_size=10,
        output_projection=projected,
        mlm_head_transform=False,
        tie_word_embeddings=projected,
    )
    model = enlarge(hf_tx.TxEncoderForMaskedLM(config)).eval()
    states = model.model(input_ids=TEXTS[0][None]).last_hidden_state
    assert states.shape[-1] == (10 if projected else config.hidden_size)
    assert_close(model(input_ids=TEXTS[0][None]).logits, model.lm_head(states))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("pooling", ["first", "mean", "late"])
def test_what_a_pooling_layer_projects(pooling: str, side: str) -> None:
    model = head("encoder", "ForSequenceClassification", add_pooling_layer=True, pooler_pooling=pooling)
    batch, mask = padded(TEXTS, side)
    dense = model.model.pooler.dense
    expected = []
    for text in TEXTS:
        state = model.model(input_ids=text[None]).last_hidden_state[0]
        if pooling == "late":
            expected.append(torch.tanh(dense(state)).mean(0))
        else:
            expected.append(torch.tanh(dense(state[0] if pooling == "first" else state.mean(0))))
    assert_close(model.model(input_ids=batch, attention_mask=mask).pooler_output, torch.stack(expected))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("kind", "output", "pools"),
    [
        ("ForSequenceClassification", "score", True),
        ("ForMultipleChoice", "score", True),
        ("ForTokenClassification", "score", False),
        ("ForQuestionAnswering", "qa_outputs", False),
    ],
)
def test_classifiers_may_have_the_transform_of_a_language_model(
    kind: str, output: str, pools: bool, bias: bool
) -> None:
    model = head("encoder", kind, classifier_transform=True, transform_bias=bias)
    ids = TEXTS[0][None]
    states = model.model(input_ids=ids).last_hidden_state
    dense, norm = model.transform.dense, model.transform.norm
    assert (dense.bias is not None) == bias
    transformed = norm(torch.nn.functional.gelu(dense(states[:, 0] if pools else states)))
    outputs = model(input_ids=ids[None] if kind == "ForMultipleChoice" else ids)
    logits = [outputs[name] for name in ("start_logits", "end_logits") if name in outputs]
    found = torch.stack(logits, dim=-1) if logits else outputs.logits
    assert_close(found, getattr(model, output)(transformed))


def test_a_transform_has_the_activation_of_the_model_whatever_its_layers_have() -> None:
    config = config_of("encoder", hidden_act="gelu", per_layer_config={0: {"hidden_act": "relu"}})
    model = hf_tx.TxEncoderForMaskedLM(config)
    assert type(model.transform.act_fn) is type(ACT2FN["gelu"])
    assert type(model.model.layers[0].mlp.act_fn) is type(ACT2FN["relu"])


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_pooling_needs_a_mask_that_says_what_is_real(pooling: str) -> None:
    model = head("encoder", "ForSequenceClassification", classifier_pooling=pooling)
    every = torch.ones(1, 1, 9, 9, dtype=torch.bool)
    with pytest.raises(ValueError, match="needs a 2-D attention_mask"):
        model(input_ids=TEXTS[0][None], attention_mask=every)


@pytest.mark.parametrize("side", SIDES)
def test_an_encoder_decoder_classifies_what_its_decoder_reads(side: str) -> None:
    model = head("encoder_decoder", "ForSequenceClassification")
    batch, mask = padded(TEXTS, side)
    expected = alone(model)
    for text, logits in zip(TEXTS, expected, strict=True):
        start = torch.tensor([model.config.decoder_start_token_id])
        reads = torch.cat((start, text[:-1]))[None]
        states = model.model(input_ids=text[None], decoder_input_ids=reads).last_hidden_state
        assert_close(model.score(states[:, -1])[0], logits)
        assert_close(model(input_ids=text[None], decoder_input_ids=reads).logits[0], logits)
    # A decoder input of one's own may be padded on another side than the source.
    reads = [torch.cat((torch.zeros(1, dtype=torch.long), text[:-1])) for text in TEXTS]
    for other in SIDES:
        own, own_mask = padded(reads, other)
        outputs = model(input_ids=batch, attention_mask=mask, decoder_input_ids=own, decoder_attention_mask=own_mask)
        assert_close(outputs.logits, expected)
    # States of the encoder serve as the source, and embeddings as what is read.
    encoded = model.model.encoder(input_ids=batch, attention_mask=mask)
    outputs = model(
        encoder_outputs=encoded,
        attention_mask=mask,
        decoder_inputs_embeds=model.get_input_embeddings()(own),
        decoder_attention_mask=own_mask,
    )
    assert_close(outputs.logits, expected)


def test_a_transform_goes_before_the_scores_of_an_encoder_decoder() -> None:
    config = config_of("encoder_decoder")
    config.num_labels, config.classifier_transform = 3, True
    model = enlarge(hf_tx.TxEncoderDecoderForSequenceClassification(config)).eval()
    reads = tokens(1, 5)
    states = model.model(input_ids=TEXTS[0][None], decoder_input_ids=reads).last_hidden_state
    mask = torch.ones_like(reads)
    outputs = model(input_ids=TEXTS[0][None], decoder_input_ids=reads, decoder_attention_mask=mask)
    assert_close(outputs.logits, model.score(torch.tanh(model.transform(states[:, -1]))))


@pytest.mark.parametrize("kind", ["ForSequenceClassification", "ForQuestionAnswering"])
def test_an_encoder_decoder_without_anything_to_read_is_refused(kind: str) -> None:
    model = head("encoder_decoder", kind)
    embeds = model.get_input_embeddings()(tokens(2, 5))
    with pytest.raises(ValueError, match="decoder_input_ids or decoder_inputs_embeds"):
        model(inputs_embeds=embeds)


# Choosing between texts.
@pytest.mark.parametrize("side", SIDES)
def test_multiple_choice_scores_every_choice_on_its_own(side: str) -> None:
    model = head("encoder", "ForMultipleChoice", type_vocab_size=2)
    batch, mask = padded(TEXTS + [tokens(size, seed=50 + size) for size in (3, 7)], side)
    types = torch.arange(batch.shape[1]).ge(4).long().expand_as(batch).contiguous()
    scores = [
        model(input_ids=ids[None, None, real], token_type_ids=kinds[None, None, real]).logits[0, 0]
        for ids, kinds, real in zip(batch, types, mask.bool(), strict=True)
    ]
    expected = torch.stack(scores).view(2, 3)
    several = {
        key: value.view(2, 3, -1)
        for key, value in dict(input_ids=batch, attention_mask=mask, token_type_ids=types).items()
    }
    labels = torch.tensor([2, 0])
    outputs = model(**several, labels=labels)
    assert outputs.logits.shape == (2, 3)
    assert_close(outputs.logits, expected)
    assert_close(outputs.loss, cross_entropy(expected, labels), 1e-5)

    embeds = model.get_input_embeddings()(several.pop("input_ids"))
    position_ids = (mask.cumsum(-1) - 1).clamp(min=0).view(2, 3, -1)
    assert_close(model(**several, inputs_embeds=embeds, position_ids=position_ids).logits, expected)
    with pytest.raises(ValueError, match="exactly one of input_ids or inputs_embeds"):
        model(**several)


# Marking tokens and spans.
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("family", ["encoder", "decoder"])
def test_token_classification_scores_every_real_token(family: str, side: str) -> None:
    model = head(family, "ForTokenClassification")
    batch, mask = padded(TEXTS, side)
    expected = torch.cat([model(input_ids=text[None]).logits[0] for text in TEXTS])
    labels = (batch % 3).masked_fill(mask == 0, -100)
    labels[0, 4] = -100
    outputs = model(input_ids=batch, attention_mask=mask, labels=labels)
    assert outputs.logits.shape == (*batch.shape, 3)
    assert_close(outputs.logits[mask.bool()], expected)
    kept = labels[mask.bool()] != -100
    assert kept.sum() == mask.sum() - 1
    assert_close(outputs.loss, cross_entropy(expected[kept], labels[mask.bool()][kept]), 1e-5)


@pytest.mark.parametrize("side", SIDES)
def test_an_encoder_decoder_marks_what_its_decoder_reads(side: str) -> None:
    model = head("encoder_decoder", "ForQuestionAnswering")
    batch, mask = padded(TEXTS, side, extra=2)
    outputs = model(input_ids=batch, attention_mask=mask)
    start = torch.tensor([model.config.decoder_start_token_id])
    for row, (text, real) in enumerate(zip(TEXTS, mask.bool(), strict=True)):
        reads = torch.cat((start, text[:-1]))[None]
        states = model.model(input_ids=text[None], decoder_input_ids=reads).last_hidden_state
        scores = model.qa_outputs(states)[0]
        assert_close(outputs.start_logits[row][real], scores[:, 0])
        assert_close(outputs.end_logits[row][real], scores[:, 1])


@pytest.mark.parametrize("family", ["encoder", "decoder", "encoder_decoder"])
def test_question_answering_ignores_positions_outside_the_text(family: str) -> None:
    model = head(family, "ForQuestionAnswering")
    batch = tokens(4, 8)
    start, end = torch.tensor([0, 3, 8, -1]), torch.tensor([2, 7, 99, 5])
    outputs = model(input_ids=batch, start_positions=start, end_positions=end)
    assert outputs.start_logits.shape == outputs.end_logits.shape == (4, 8)
    assert_differ(outputs.start_logits, outputs.end_logits)
    inside = [0, 1], [0, 1, 3]
    expected = [
        cross_entropy(scores[rows], positions[rows])
        for scores, positions, rows in zip(
            (outputs.start_logits, outputs.end_logits), (start, end), inside, strict=True
        )
    ]
    assert_close(outputs.loss, sum(expected) / 2, 1e-5)
    # As Trainer gives them on several devices, and over a larger batch.
    column = model(input_ids=batch, start_positions=start[:, None], end_positions=end[:, None])
    assert_close(column.loss, outputs.loss, 1e-6)
    of_ten = model(input_ids=batch, start_positions=start, end_positions=end, num_items_in_batch=10)
    assert_close(of_ten.loss, (2 * expected[0] + 3 * expected[1]) / 20, 1e-5)
    half = model(input_ids=batch, start_positions=start)
    assert half.loss is None


def test_question_answering_equals_the_library_inside_the_text() -> None:
    model = head("encoder", "ForQuestionAnswering")
    batch, mask = padded(TEXTS, "right")
    start, end = torch.tensor([0, 3, 8, 1]), torch.tensor([2, 7, 20, 5])
    outputs = model(input_ids=batch, attention_mask=mask, start_positions=start, end_positions=end)
    expected = ForQuestionAnsweringLoss(outputs.start_logits, outputs.end_logits, start, end)
    assert_close(outputs.loss, expected, 1e-5)


# Writing a text for a text.
def seq2seq(**settings: Any) -> Any:
    config = config_of("encoder_decoder")
    for key, value in settings.items():
        setattr(config, key, value)
    return enlarge(hf_tx.TxEncoderDecoderForConditionalGeneration(config)).eval()


LABELS = torch.tensor([[5, 9, 7, 2], [8, 2, -100, -100]])


def test_the_decoder_reads_the_labels_shifted_right() -> None:
    model = seq2seq(decoder_start_token_id=3, pad_token_id=4)
    source = tokens(2, 6)
    reads = torch.tensor([[3, 5, 9, 7], [3, 8, 2, 4]])
    assert torch.equal(model.prepare_decoder_input_ids_from_labels(LABELS), reads)
    outputs = model(input_ids=source, labels=LABELS)
    expected = model(input_ids=source, decoder_input_ids=reads)
    assert expected.loss is None
    assert torch.equal(outputs.logits, expected.logits)
    # Targets are the labels themselves: reading is what is shifted.
    assert_close(outputs.loss, cross_entropy(expected.logits.flatten(0, 1), LABELS.flatten()), 1e-5)
    # What the caller gives to read is left alone.
    other = tokens(2, 4, seed=9)
    given = model(input_ids=source, labels=LABELS, decoder_input_ids=other)
    assert torch.equal(given.logits, model(input_ids=source, decoder_input_ids=other).logits)
    embeds = model.get_input_embeddings()(other)
    assert_close(model(input_ids=source, labels=LABELS, decoder_inputs_embeds=embeds).logits, given.logits, 1e-6)


@pytest.mark.parametrize("missing", ["decoder_start_token_id", "pad_token_id"])
def test_labels_without_a_start_or_padding_token_are_refused(missing: str) -> None:
    model = seq2seq(**{missing: None})
    with pytest.raises(ValueError, match=f"{missing} = None.*decoder_input_ids"):
        model(input_ids=tokens(2, 6), labels=LABELS)


@pytest.mark.parametrize("side", SIDES)
def test_the_loss_of_a_seq2seq_model_does_not_depend_on_the_padding_of_its_source(side: str) -> None:
    model = seq2seq()
    batch, mask = padded(TEXTS[:2], side, extra=1)
    expected = sum(
        model(input_ids=text[None], labels=labels[None], num_items_in_batch=6).loss
        for text, labels in zip(TEXTS, LABELS, strict=False)
    )
    assert_close(model(input_ids=batch, attention_mask=mask, labels=LABELS).loss, expected, 1e-5)


@pytest.mark.parametrize("transformed", [False, True])
@pytest.mark.parametrize("name", [name for name in hf_tx.__all__ if "For" in name])
def test_every_head_reads_what_a_projected_stack_returns(name: str, transformed: bool) -> None:
    """A stack whose output has another size than its layers."""
    kind = getattr(hf_tx, name)
    config = config_of(kind.config_class.model_type.removeprefix("hf_tx_"), embedding_size=16, output_projection=True)
    if transformed:
        if not hasattr(config, "classifier_transform"):
            pytest.skip("a decoder's heads have no transform")
        config.classifier_transform = True
    model = enlarge(kind(config)).eval()
    read = []
    model.model.register_forward_hook(lambda module, args, outputs: read.append(outputs.last_hidden_state))
    with torch.no_grad():
        inputs = {"decoder_input_ids": tokens(2, 4)} if config.is_encoder_decoder else {}
        outputs = model(tokens(2, 3, 5) if "MultipleChoice" in name else tokens(2, 5), **inputs)
    assert read[0].shape[-1] == 16
    assert (outputs["start_logits"] if "QuestionAnswering" in name else outputs.logits).abs().max() > 0


# Every head.
@pytest.mark.parametrize(
    ("family", "kind"),
    [
        (family, name.removeprefix(prefix))
        for family, prefix in PREFIXES.items()
        for name in dir(hf_tx)
        if re.fullmatch(prefix + r"(Model|For[A-Za-z]+)", name)
    ],
)
def test_a_config_may_ask_for_tuples(family: str, kind: str) -> None:
    model = head(family, kind)
    texts = tokens(2, 2, 5) if kind == "ForMultipleChoice" else tokens(2, 5)
    inputs = dict(input_ids=texts)
    if family == "encoder_decoder":
        inputs |= dict(decoder_input_ids=texts)
    expected = model(**inputs)[0]
    model.config.return_dict = False
    for stack in model.config.sub_configs:
        getattr(model.config, stack).return_dict = False
    actual = model(**inputs)
    assert isinstance(actual, tuple)
    assert torch.equal(actual[0], expected)
    assert torch.equal(model(**inputs, return_dict=True)[0], expected)
    if model.can_generate():
        assert model.generate(texts, max_new_tokens=2, eos_token_id=None).shape[0] == 2
