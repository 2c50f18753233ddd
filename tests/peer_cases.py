# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Tiny models of all families, for transformers' own common tests. CASES is read by the runner of those tests."""

import hf_tx

DECODER_HEADS = dict(
    base=hf_tx.TxDecoderModel,
    causal_lm=hf_tx.TxDecoderForCausalLM,
    sequence_classification=hf_tx.TxDecoderForSequenceClassification,
    token_classification=hf_tx.TxDecoderForTokenClassification,
    question_answering=hf_tx.TxDecoderForQuestionAnswering,
)
ENCODER_HEADS = dict(
    base=hf_tx.TxEncoderModel,
    masked_lm=hf_tx.TxEncoderForMaskedLM,
    sequence_classification=hf_tx.TxEncoderForSequenceClassification,
    token_classification=hf_tx.TxEncoderForTokenClassification,
    question_answering=hf_tx.TxEncoderForQuestionAnswering,
    multiple_choice=hf_tx.TxEncoderForMultipleChoice,
)
ENCODER_DECODER_HEADS = dict(
    base=hf_tx.TxEncoderDecoderModel,
    seq2seq_lm=hf_tx.TxEncoderDecoderForConditionalGeneration,
    sequence_classification=hf_tx.TxEncoderDecoderForSequenceClassification,
    question_answering=hf_tx.TxEncoderDecoderForQuestionAnswering,
)
SIZES = dict(
    vocab_size=99,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=37,
    max_position_embeddings=512,
)
TOKENS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)

GPT2 = dict(
    position_type="learned",
    norm_type="layernorm",
    ffn_type="mlp",
    hidden_act="gelu_new",
    attention_bias=True,
    mlp_bias=True,
    hidden_dropout=0.1,
    attention_dropout=0.1,
)
LLAMA = dict(num_key_value_heads=2)
BERT = dict(
    position_type="learned",
    norm_position="post",
    ffn_type="mlp",
    attention_bias=True,
    mlp_bias=True,
    embedding_norm=True,
    type_vocab_size=16,
    hidden_dropout=0.1,
    attention_dropout=0.1,
    add_pooling_layer=True,
)
T5 = dict(position_type="relative", ffn_type="mlp", hidden_act="relu", attention_scale=1.0, hidden_dropout=0.1)


def decoder(**settings):
    return dict(
        kind="decoder",
        config=lambda: hf_tx.TxDecoderConfig(**SIZES, **TOKENS, **settings),
        heads=DECODER_HEADS,
        config_kwargs=dict(hidden_size=64, num_attention_heads=4),
    )


def stateful(case):
    """A case some of whose layers have no attention weights, and whose states cannot be taken back."""
    return dict(
        case,
        flags=dict(has_attentions=False),
        generation=dict(assisted=False),
        skip=dict(test_gen_outputs_have_the_right_shapes="wants attention weights of every layer"),
    )


def encoder(**settings):
    return dict(
        kind="encoder",
        config=lambda: hf_tx.TxEncoderConfig(**SIZES, **TOKENS, **settings),
        heads=ENCODER_HEADS,
        config_kwargs=dict(hidden_size=48),
    )


def encoder_decoder(encoder, decoder, **settings):
    return dict(
        kind="encoder_decoder",
        config=lambda: hf_tx.TxEncoderDecoderConfig(
            encoder={**SIZES, **encoder}, decoder={**SIZES, **decoder}, **TOKENS, decoder_start_token_id=0, **settings
        ),
        heads=ENCODER_DECODER_HEADS,
        config_kwargs=dict(use_cache=False),
    )


# The windows are longer than what the tests generate: some of them want the weights of all earlier keys.
CASES = {
    "gpt2_like": decoder(**GPT2),
    "llama_like": decoder(**LLAMA),
    "llama_like_sliding": decoder(**LLAMA, mixers="sliding,full", sliding_window=16),
    "alibi_parallel": decoder(position_type="alibi", parallel_residual=True, norm_type="layernorm", qk_norm=True),
    "gemma_like": decoder(
        **LLAMA,
        norm_position="sandwich",
        norm_unit_offset=True,
        final_logit_softcapping=10.0,
        embedding_scale=32**0.5,
        head_dim=16,
    ),
    "olmo2_like": decoder(**LLAMA, norm_position="residual_post", qk_norm=True, qk_norm_scope="all"),
    "opt_like": dict(
        decoder(
            **GPT2, norm_position="post", embedding_size=16, embedding_projection="tokens", output_projection=True
        ),
        skip=dict(test_training_overfit="gradients begin small behind two small projections: OPT fails it likewise"),
    ),
    "sparse_decoder": decoder(
        mixers="chunked,global_local", mixer_options={"chunked": {"chunk_size": 64}}, sliding_window=16
    ),
    "gated_delta_decoder": stateful(decoder(mixers="gated_delta")),
    "lstm_decoder": stateful(decoder(mixers="lstm", ffn_type="none")),
    "hybrid_decoder": stateful(decoder(mixers="gated_linear,full")),
    "bert_like": encoder(**BERT),
    "rope_encoder": encoder(mixers="sliding,full", sliding_window=3),
    "mpnet_like": encoder(**BERT | dict(position_type="learned_relative", type_vocab_size=0)),
    "modernbert_like": encoder(
        mixers="full,sliding",
        sliding_window=3,
        embedding_norm=True,
        per_layer_config={0: {"mixer_norm": False}},
        classifier_transform=True,
        transform_bias=False,
    ),
    "t5_like": encoder_decoder(T5, T5),
    "bart_like": encoder_decoder(
        dict(position_type="learned", norm_position="post", embedding_norm=True, hidden_dropout=0.1),
        dict(position_type="learned", norm_position="post", embedding_norm=True, hidden_dropout=0.1),
    ),
    "classic_seq2seq": stateful(
        encoder_decoder(
            dict(mixers="gru", ffn_type="none"),
            dict(mixers="lstm", ffn_type="none", cross_mixer="additive", initial_state="encoder"),
        )
    ),
    "rope_sliding_encoder_decoder": encoder_decoder(
        dict(mixers="sliding,full", sliding_window=3), dict(**LLAMA, mixers="sliding,full", sliding_window=16)
    ),
}

for _case in CASES.values():
    _case.setdefault("xfail", {})["test_model_weights_reload_no_missing_tied_weights"] = (
        "it loads a checkpoint in which no weight of the model is, for its report; here that is an error"
    )
