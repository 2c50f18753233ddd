# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""transformers' encoder-decoders, and the variants that their code tells apart."""

from typing import Any

import transformers as hf
from peers.tables import HEADS, INNER, LAYERS, LENGTH, STANDARD, TOKENS, VOCABULARY, WIDTH, converted
from torch import nn

T5 = dict(
    vocab_size=VOCABULARY,
    d_model=WIDTH,
    d_kv=12,
    d_ff=INNER,
    num_layers=LAYERS,
    num_heads=HEADS,
    relative_attention_num_buckets=8,
    relative_attention_max_distance=10,
    decoder_start_token_id=0,
    **TOKENS,
)
BART = dict(
    vocab_size=VOCABULARY,
    d_model=WIDTH,
    encoder_layers=LAYERS,
    decoder_layers=LAYERS,
    encoder_attention_heads=HEADS,
    decoder_attention_heads=HEADS,
    encoder_ffn_dim=INNER,
    decoder_ffn_dim=INNER,
    max_position_embeddings=LENGTH,
    decoder_start_token_id=2,
    forced_eos_token_id=None,
    **TOKENS,
)
T5GEMMA_STACK = dict(**STANDARD, num_key_value_heads=2, head_dim=12, sliding_window=4, query_pre_attn_scalar=9)


def _untie(model: Any) -> None:
    """transformers ties T5 v1.1 as well, whose checkpoints have a head of their own."""
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.clone())


t5 = converted(hf.T5ForConditionalGeneration, T5, positions="own")
t5_untied = converted(hf.T5ForConditionalGeneration, T5, positions="own", adapt=_untie)
mt5 = converted(hf.MT5ForConditionalGeneration, T5, positions="own")
bart = converted(hf.BartForConditionalGeneration, BART, positions="rows")
mbart = converted(hf.MBartForConditionalGeneration, BART, positions="rows", same_shift=False)
plbart = converted(hf.PLBartForConditionalGeneration, BART, positions="rows", same_shift=False)
# Without a norm of the embeddings, random models write what they read: texts must not begin with the end of a text.
PEGASUS = BART | dict(decoder_start_token_id=0, eos_token_id=5)
pegasus = converted(hf.PegasusForConditionalGeneration, PEGASUS, positions="rows")
marian = converted(hf.MarianMTModel, BART, positions="rows")
m2m_100 = converted(hf.M2M100ForConditionalGeneration, BART, dict(decoder_start_token_id=3), positions="own")
blenderbot = converted(hf.BlenderbotForConditionalGeneration, BART, positions="rows")
t5gemma = converted(hf.T5GemmaForConditionalGeneration, backends=("eager",))
umt5 = converted(hf.UMT5ForConditionalGeneration, T5, positions="own")
umt5_untied = converted(hf.UMT5ForConditionalGeneration, T5, positions="own", adapt=_untie)

SEQ2SEQ = {
    "t5": t5(feed_forward_proj="relu"),
    "t5_v1_1": t5_untied(feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "t5_gated_tied": t5(feed_forward_proj="gated-silu"),
    "mt5": mt5(),
    "bart": bart(),
    "umt5": umt5(),
    "umt5_plain_untied": umt5_untied(feed_forward_proj="relu", tie_word_embeddings=False),
    "bart_scaled_untied": bart(
        scale_embedding=True,
        tie_word_embeddings=False,
        activation_function="relu",
        encoder_layerdrop=0.1,
        decoder_layerdrop=0.2,
    ),
    "mbart": mbart(scale_embedding=True),
    "mbart_unscaled": mbart(decoder_ffn_dim=INNER + 4),
    "plbart": plbart(),
    "pegasus": pegasus(),
    "pegasus_scaled_untied": pegasus(scale_embedding=True, tie_word_embeddings=False),
    "marian": marian(scale_embedding=True),
    "marian_untied": marian(tie_word_embeddings=False),
    "marian_two_vocabularies": marian(
        share_encoder_decoder_embeddings=False, vocab_size=VOCABULARY + 8, decoder_vocab_size=VOCABULARY
    ),
    "marian_nothing_shared": marian(
        share_encoder_decoder_embeddings=False, tie_word_embeddings=False, activation_function="swish"
    ),
    "m2m_100": m2m_100(),
    "m2m_100_unscaled_untied": m2m_100(
        scale_embedding=False, tie_word_embeddings=False, pad_token_id=1, bos_token_id=0
    ),
    "blenderbot": blenderbot(scale_embedding=True),
}
SEQ2SEQ |= {
    "t5gemma": t5gemma(encoder=T5GEMMA_STACK, decoder=T5GEMMA_STACK),
    "t5gemma_untied": t5gemma(
        encoder=T5GEMMA_STACK
        | dict(hidden_size=24, num_attention_heads=2, attention_bias=True, layer_types=["sliding_attention"] * 3),
        decoder=T5GEMMA_STACK | dict(attn_logit_softcapping=1.5, final_logit_softcapping=None),
        tie_word_embeddings=False,
    ),
}
RIGHT = dict(sides=("right",))  # transformers' decoder sees the padding that it reads again
SEQ2SEQ_HEADS = {
    "t5_classifier": converted(hf.T5ForSequenceClassification, T5, positions="own", **RIGHT)(num_labels=3),
    "t5_token_classifier": converted(hf.T5ForTokenClassification, T5, positions="own")(num_labels=3),
    "t5_question_answering": converted(hf.T5ForQuestionAnswering, T5, positions="own", **RIGHT)(),
    "umt5_classifier": converted(hf.UMT5ForSequenceClassification, T5, positions="own", **RIGHT)(num_labels=3),
    "umt5_token_classifier": converted(hf.UMT5ForTokenClassification, T5, positions="own")(num_labels=3),
    "bart_classifier": converted(hf.BartForSequenceClassification, BART, positions="rows", **RIGHT)(num_labels=3),
    "bart_question_answering": converted(hf.BartForQuestionAnswering, BART, positions="rows", **RIGHT)(),
}
