# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""transformers' decoders, and the variants that their code tells apart."""

import transformers as hf
from peers.tables import HEADS, INNER, LAYERS, LENGTH, SIZES, STANDARD, TOKENS, VOCABULARY, WIDTH, converted

ROPE = dict(rope_theta=100.0)  # small, so that all frequencies turn within a short text
ROPES = {
    "linear": dict(ROPE, rope_type="linear", factor=4.0),
    "dynamic": dict(ROPE, rope_type="dynamic", factor=3.0),
    "yarn": dict(ROPE, rope_type="yarn", factor=4.0, original_max_position_embeddings=8),
    "longrope": dict(
        ROPE,
        rope_type="longrope",
        factor=4.0,
        original_max_position_embeddings=8,
        short_factor=[1.0, 1.1, 1.3, 1.7],
        long_factor=[1.0, 2.0, 4.0, 7.0],
    ),
    "llama3": dict(
        ROPE,
        rope_type="llama3",
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=16,
    ),
    "proportional": dict(ROPE, rope_type="proportional", partial_rotary_factor=0.5),
}
LAYER_KINDS = ["sliding_attention", "full_attention", "sliding_attention"]

GPT2 = dict(
    vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_inner=INNER, **TOKENS
)
OPT = {name: value for name, value in SIZES.items() if name != "intermediate_size"}
OPT |= dict(ffn_dim=INNER, word_embed_proj_dim=WIDTH, **TOKENS)
BLOOM = dict(vocab_size=VOCABULARY, hidden_size=WIDTH, n_layer=LAYERS, n_head=HEADS, **TOKENS)
GQA = dict(num_key_value_heads=2)
WINDOWS = dict(use_sliding_window=True, sliding_window=4)
PARTIAL = dict(ROPE, rope_type="default", partial_rotary_factor=0.25)
NESTED = {
    "full_attention": dict(rope_type="linear", factor=4.0, rope_theta=500.0),
    "sliding_attention": dict(rope_type="default", rope_theta=50.0),
}

llama = converted(hf.LlamaForCausalLM, STANDARD)
mistral = converted(hf.MistralForCausalLM, STANDARD, GQA)
qwen2 = converted(hf.Qwen2ForCausalLM, STANDARD, GQA)
qwen3 = converted(hf.Qwen3ForCausalLM, STANDARD, GQA)
gpt2 = converted(hf.GPT2LMHeadModel, GPT2)
gpt2_unscaled = converted(hf.GPT2LMHeadModel, GPT2, dict(scale_attn_weights=False), backends=("eager",))
gptj = converted(hf.GPTJForCausalLM, GPT2)
gpt_neox = converted(hf.GPTNeoXForCausalLM, STANDARD)
opt = converted(hf.OPTForCausalLM, OPT, positions="own")
bloom = converted(hf.BloomForCausalLM, BLOOM, positions="own", backends=("eager",))
gemma = converted(hf.GemmaForCausalLM, STANDARD, dict(num_key_value_heads=1, head_dim=12))
gemma2 = converted(
    hf.Gemma2ForCausalLM,
    STANDARD,
    GQA,
    dict(head_dim=12, query_pre_attn_scalar=20, sliding_window=4, layer_types=LAYER_KINDS),
    backends=("eager",),  # sdpa has no softcap
)
gemma3 = converted(
    hf.Gemma3ForCausalLM,
    STANDARD,
    GQA,
    dict(head_dim=12, query_pre_attn_scalar=20, sliding_window=4, layer_types=LAYER_KINDS),
)
granite = converted(hf.GraniteForCausalLM, STANDARD, GQA)
cohere = converted(hf.CohereForCausalLM, STANDARD, GQA, dict(rope_parameters=ROPE))
stablelm = converted(hf.StableLmForCausalLM, STANDARD, GQA, dict(rope_parameters=PARTIAL))
starcoder2 = converted(hf.Starcoder2ForCausalLM, STANDARD, GQA)
phi = converted(hf.PhiForCausalLM, STANDARD, GQA)
phi3 = converted(hf.Phi3ForCausalLM, STANDARD, GQA)
olmo = converted(hf.OlmoForCausalLM, STANDARD, GQA)
olmo2 = converted(hf.Olmo2ForCausalLM, STANDARD, GQA)
olmo3 = converted(hf.Olmo3ForCausalLM, STANDARD, GQA, dict(sliding_window=4, layer_types=LAYER_KINDS))
smollm3 = converted(hf.SmolLM3ForCausalLM, STANDARD, GQA)

CAUSAL = {
    "llama_mha_tied": llama(tie_word_embeddings=True, rope_parameters=dict(ROPE, rope_type="default")),
    "llama_gqa_biases": llama(num_key_value_heads=2, attention_bias=True, mlp_bias=True),
    "llama_mqa_head_dim": llama(num_key_value_heads=1, head_dim=12),
    # The text is longer than `max_position_embeddings`, which is where dynamic scaling begins.
    **{
        f"llama_{kind}": llama(
            num_key_value_heads=2,
            rope_parameters=parameters,
            max_position_embeddings=8 if kind == "dynamic" else LENGTH,
        )
        for kind, parameters in ROPES.items()
    },
    "mistral": mistral(sliding_window=4),
    "mistral_full_tied": mistral(sliding_window=None, tie_word_embeddings=True),
    "mistral_head_dim": mistral(sliding_window=4, head_dim=12),
    "qwen2": qwen2(),
    "qwen2_windows_tied": qwen2(**WINDOWS, max_window_layers=1, tie_word_embeddings=True),
    "qwen3": qwen3(head_dim=12),
    "qwen3_windows_biases_tied": qwen3(**WINDOWS, max_window_layers=2, attention_bias=True, tie_word_embeddings=True),
    "gpt2": gpt2(),
    "gpt2_unscaled": gpt2_unscaled(),
    "gpt2_inverse_layers": gpt2(scale_attn_by_inverse_layer_idx=True),
    "gpt2_unscaled_inverse_layers": gpt2_unscaled(scale_attn_by_inverse_layer_idx=True),
    "gpt2_untied": gpt2(n_inner=None, tie_word_embeddings=False, activation_function="relu"),
    "gpt_neox_parallel": gpt_neox(rope_parameters=PARTIAL),
    "gpt_neox_sequential_tied": gpt_neox(use_parallel_residual=False, tie_word_embeddings=True),
    "gpt_neox_unbiased": gpt_neox(attention_bias=False, rope_parameters=PARTIAL),
    "gemma": gemma(),
    "gemma_untied_biases": gemma(tie_word_embeddings=False, attention_bias=True),
    "gemma2": gemma2(attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
    "gemma2_uncapped": gemma2(attn_logit_softcapping=None, final_logit_softcapping=None),
    "gemma3": gemma3(rope_parameters=NESTED),
    "gemma3_capped": gemma3(final_logit_softcapping=3.0, attn_logit_softcapping=2.0, rope_parameters=NESTED),
    "olmo": olmo(),
    "olmo_mha_biases_tied": olmo(num_key_value_heads=None, attention_bias=True, tie_word_embeddings=True),
    "olmo2": olmo2(),
    "olmo2_mha_biases_tied": olmo2(
        num_key_value_heads=None, attention_bias=True, tie_word_embeddings=True, rope_parameters=ROPES["yarn"]
    ),
    "olmo3": olmo3(),
    "olmo3_ropes": olmo3(rope_parameters=NESTED, attention_bias=True),
    "olmo3_yarn": olmo3(
        rope_parameters=dict.fromkeys(("full_attention", "sliding_attention"), dict(ROPES["yarn"], truncate=False))
    ),
    "olmo3_full": olmo3(layer_types=["full_attention"] * LAYERS),
    "smollm3": smollm3(no_rope_layers=[1, 0, 1]),
    "smollm3_windows_untied": smollm3(**WINDOWS, no_rope_layers=[1, 0, 1], tie_word_embeddings=False),
    "granite": granite(
        embedding_multiplier=3.0,
        residual_multiplier=0.4,
        attention_multiplier=0.2,
        logits_scaling=5.0,
        tie_word_embeddings=True,
    ),
    "granite_biases": granite(attention_multiplier=0.3, attention_bias=True, mlp_bias=True),
    "starcoder2": starcoder2(),
    "starcoder2_windows_unbiased": starcoder2(sliding_window=4, use_bias=False, tie_word_embeddings=False),
    "opt": opt(),
    "opt_post_unbiased": opt(do_layer_norm_before=False, enable_bias=False),
    "opt_projected": opt(word_embed_proj_dim=16),
    "opt_projected_post_untied": opt(word_embed_proj_dim=40, do_layer_norm_before=False, tie_word_embeddings=False),
    "opt_norms_without_weights": opt(layer_norm_elementwise_affine=False),
    "opt_no_final_norm_untied": opt(_remove_final_layer_norm=True, tie_word_embeddings=False),
    "phi": phi(),
    "phi_qk_norm": phi(qk_layernorm=True, rope_parameters=dict(rope_theta=100.0, partial_rotary_factor=1.0)),
    "phi3": phi3(),
    "phi3_partial_windows_tied": phi3(
        sliding_window=4, tie_word_embeddings=True, rope_parameters=dict(ROPE, partial_rotary_factor=0.5)
    ),
    "phi3_longrope": phi3(original_max_position_embeddings=8, rope_parameters=ROPES["longrope"]),
    "gptj": gptj(rotary_dim=4),
    "gptj_whole": gptj(rotary_dim=8, n_inner=None),
    "cohere": cohere(logit_scale=0.25),
    "cohere_biases_untied": cohere(attention_bias=True, tie_word_embeddings=False),
    "cohere_qk_norm": cohere(use_qk_norm=True),
    "stablelm": stablelm(use_qkv_bias=True),
    "stablelm_parallel": stablelm(use_parallel_residual=True, tie_word_embeddings=True),
    "stablelm_qk_norm": stablelm(qk_layernorm=True),
    "bloom": bloom(),
}

DECODER_HEADS = {
    "opt_projected_classifier": converted(hf.OPTForSequenceClassification, OPT, positions="own")(
        word_embed_proj_dim=16, num_labels=3
    ),
    "llama_classifier": converted(hf.LlamaForSequenceClassification, STANDARD)(num_labels=3),
    "llama_token_classifier": converted(hf.LlamaForTokenClassification, STANDARD)(num_labels=3),
    "llama_question_answering": converted(hf.LlamaForQuestionAnswering, STANDARD)(),
    "mistral_question_answering": converted(hf.MistralForQuestionAnswering, STANDARD, GQA)(),
    "gpt2_classifier": converted(hf.GPT2ForSequenceClassification, GPT2)(num_labels=3),
    "gpt2_token_classifier": converted(hf.GPT2ForTokenClassification, GPT2)(num_labels=3),
    "gpt2_question_answering": converted(hf.GPT2ForQuestionAnswering, GPT2)(),
    "gpt_neox_token_classifier": converted(hf.GPTNeoXForTokenClassification, STANDARD)(num_labels=3),
    "gemma_classifier": converted(hf.GemmaForSequenceClassification, STANDARD, GQA)(head_dim=12, num_labels=3),
}
