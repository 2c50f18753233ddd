# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The library's decoders as settings of hf_tx."""

from typing import Any

import transformers as hf
from peers.tables import (
    HEADS,
    INNER,
    LAYERS,
    LENGTH,
    STANDARD,
    TOKENS,
    VOCABULARY,
    WIDTH,
    Names,
    Peer,
    block,
    conv,
    qkv,
    third,
    third_of_head,
)

import hf_tx

GATED = dict(mlp__gate_proj="mlp.gate_proj", mlp__up_proj="mlp.up_proj", mlp__down_proj="mlp.down_proj")
LLAMA_ATTENTION = {f"mixer__{part}_proj": f"self_attn.{part}_proj" for part in "qkvo"}
LLAMA_LAYER = dict(**LLAMA_ATTENTION, **GATED, mixer_norm="input_layernorm", mlp_norm="post_attention_layernorm")
QK_NORMS = dict(mixer__q_norm="self_attn.q_norm", mixer__k_norm="self_attn.k_norm")
SANDWICH = dict(
    **LLAMA_ATTENTION,
    **GATED,
    mixer_norm="input_layernorm",
    mixer_post_norm="post_attention_layernorm",
    mlp_norm="pre_feedforward_layernorm",
    mlp_post_norm="post_feedforward_layernorm",
)


def causal(layer: dict[str, str], embed: str, layers: str, norm: str) -> Names:
    return {
        "model.embed_tokens": embed,
        **block("model.layers", layers, **layer),
        "model.norm": norm,
        "lm_head": "lm_head",
    }


def llama_names(layer: dict[str, str]) -> Names:
    return causal(layer, "model.embed_tokens", "model.layers", "model.norm")


def llama(settings: dict[str, Any] | None = None, **config: Any) -> Peer:
    """A Llama; both configs have the same names for what varies here."""
    common = dict(STANDARD, tie_word_embeddings=False) | config
    return Peer(
        theirs=hf.LlamaForCausalLM,
        config=lambda: hf.LlamaConfig(**common, rms_norm_eps=1e-6),
        ours=hf_tx.TxDecoderForCausalLM,
        settings=common | (settings or {}),
        names=llama_names(LLAMA_LAYER),
    )


def like_llama(
    theirs: Any, config: dict[str, Any], settings: dict[str, Any], layer: dict[str, str], **facts: Any
) -> Peer:
    """A decoder whose modules have the names of Llama's."""
    return Peer(
        theirs=theirs,
        config=lambda: theirs.config_class(**STANDARD | config),
        ours=hf_tx.TxDecoderForCausalLM,
        settings=STANDARD | settings,
        names=llama_names(layer),
        **facts,
    )


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
BY_KIND = dict(mixers="sliding,full", sliding_window=4)

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
    "mistral": like_llama(
        hf.MistralForCausalLM,
        dict(num_key_value_heads=2, sliding_window=4, tie_word_embeddings=False),
        dict(num_key_value_heads=2, mixers="sliding", sliding_window=4, tie_word_embeddings=False),
        LLAMA_LAYER,
    ),
    "qwen2": like_llama(
        hf.Qwen2ForCausalLM,
        dict(num_key_value_heads=2),
        dict(num_key_value_heads=2, attention_bias=True, attention_out_bias=False, tie_word_embeddings=False),
        LLAMA_LAYER,
    ),
    "qwen3": like_llama(
        hf.Qwen3ForCausalLM,
        dict(num_key_value_heads=2, head_dim=12, tie_word_embeddings=True),
        dict(num_key_value_heads=2, head_dim=12, qk_norm=True),
        LLAMA_LAYER | QK_NORMS,
    ),
    "gemma": like_llama(
        hf.GemmaForCausalLM,
        dict(num_key_value_heads=1, head_dim=12),
        dict(
            num_key_value_heads=1,
            head_dim=12,
            hidden_act="gelu_pytorch_tanh",
            norm_unit_offset=True,
            embedding_scale=WIDTH**0.5,
        ),
        LLAMA_LAYER,
    ),
    "gemma2": like_llama(
        hf.Gemma2ForCausalLM,
        dict(
            num_key_value_heads=2,
            head_dim=12,
            query_pre_attn_scalar=20,
            sliding_window=4,
            attn_logit_softcapping=2.0,
            final_logit_softcapping=3.0,
            layer_types=LAYER_KINDS,
        ),
        dict(
            **BY_KIND,
            num_key_value_heads=2,
            head_dim=12,
            hidden_act="gelu_pytorch_tanh",
            norm_position="sandwich",
            norm_unit_offset=True,
            embedding_scale=WIDTH**0.5,
            attention_scale=20**-0.5,
            attn_logit_softcapping=2.0,
            final_logit_softcapping=3.0,
        ),
        SANDWICH,
        backends=("eager",),  # sdpa has no softcap
    ),
    "gemma3": like_llama(
        hf.Gemma3ForCausalLM,
        dict(
            num_key_value_heads=2,
            head_dim=12,
            query_pre_attn_scalar=20,
            sliding_window=4,
            layer_types=LAYER_KINDS,
            rope_parameters={
                "full_attention": dict(rope_type="linear", factor=4.0, rope_theta=500.0),
                "sliding_attention": dict(rope_type="default", rope_theta=50.0),
            },
        ),
        dict(
            **BY_KIND,
            num_key_value_heads=2,
            head_dim=12,
            hidden_act="gelu_pytorch_tanh",
            norm_position="sandwich",
            norm_unit_offset=True,
            qk_norm=True,
            embedding_scale=WIDTH**0.5,
            attention_scale=20**-0.5,
            rope_parameters={
                "full_attention": dict(rope_type="linear", factor=4.0, rope_theta=500.0),
                "sliding_attention": dict(rope_type="default", rope_theta=50.0),
            },
        ),
        SANDWICH | QK_NORMS,
    ),
    "granite": like_llama(
        hf.GraniteForCausalLM,
        dict(
            num_key_value_heads=2,
            embedding_multiplier=3.0,
            residual_multiplier=0.4,
            attention_multiplier=0.2,
            logits_scaling=5.0,
            tie_word_embeddings=True,
        ),
        dict(
            num_key_value_heads=2,
            embedding_scale=3.0,
            residual_multiplier=0.4,
            attention_scale=0.2,
            logit_scale=0.2,
        ),
        LLAMA_LAYER,
    ),
    "cohere": like_llama(
        hf.CohereForCausalLM,
        dict(num_key_value_heads=2, logit_scale=0.25, layer_norm_eps=1e-5, rope_parameters=ROPE),
        dict(
            num_key_value_heads=2,
            rope_parameters=ROPE,
            logit_scale=0.25,
            norm_type="layernorm",
            norm_eps=1e-5,
            norm_bias=False,
            parallel_residual=True,
            parallel_shared_norm=True,
            rope_interleaved=True,
        ),
        dict(**LLAMA_ATTENTION, **GATED, mixer_norm="input_layernorm"),
    ),
    "stablelm": like_llama(
        hf.StableLmForCausalLM,
        dict(num_key_value_heads=2, use_qkv_bias=True, rope_parameters=dict(ROPE, partial_rotary_factor=0.25)),
        dict(
            num_key_value_heads=2,
            tie_word_embeddings=False,
            attention_bias=True,
            attention_out_bias=False,
            norm_type="layernorm",
            norm_eps=1e-5,
            rope_parameters=dict(ROPE, partial_rotary_factor=0.25),
        ),
        LLAMA_LAYER,
    ),
    "phi": Peer(
        theirs=hf.PhiForCausalLM,
        config=lambda: hf.PhiConfig(**STANDARD, num_key_value_heads=2),
        ours=hf_tx.TxDecoderForCausalLM,
        settings=dict(
            **STANDARD,
            num_key_value_heads=2,
            tie_word_embeddings=False,
            lm_head_bias=True,
            norm_type="layernorm",
            norm_eps=1e-5,
            parallel_residual=True,
            parallel_shared_norm=True,
            ffn_type="mlp",
            hidden_act="gelu_new",
            attention_bias=True,
            mlp_bias=True,
            rope_parameters=dict(rope_theta=10_000.0, partial_rotary_factor=0.5),
        ),
        names=causal(
            dict(
                **{f"mixer__{part}_proj": f"self_attn.{part}_proj" for part in "qkv"},
                mixer__o_proj="self_attn.dense",
                mlp__up_proj="mlp.fc1",
                mlp__down_proj="mlp.fc2",
                mixer_norm="input_layernorm",
            ),
            "model.embed_tokens",
            "model.layers",
            "model.final_layernorm",
        ),
    ),
    "gpt2": Peer(
        theirs=hf.GPT2LMHeadModel,
        config=lambda: hf.GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=LENGTH,
            n_embd=WIDTH,
            n_layer=LAYERS,
            n_head=HEADS,
            n_inner=INNER,
            **TOKENS,
        ),
        ours=hf_tx.TxDecoderForCausalLM,
        settings=dict(
            **STANDARD,
            position_type="learned",
            norm_type="layernorm",
            norm_eps=1e-5,
            ffn_type="mlp",
            hidden_act="gelu_new",
            attention_bias=True,
            mlp_bias=True,
        ),
        names={
            "model.positions.learned.embed_positions": "transformer.wpe",
            **causal(dict(mixer_norm="ln_1", mlp_norm="ln_2"), "transformer.wte", "transformer.h", "transformer.ln_f"),
            **{
                f"model.layers.*.mixer.{part}_proj": (
                    "transformer.h.*.attn.c_attn",
                    lambda weight, index=index: third(index, conv(weight)),
                )
                for index, part in enumerate("qkv")
            },
            "model.layers.*.mixer.o_proj": ("transformer.h.*.attn.c_proj", conv),
            "model.layers.*.mlp.up_proj": ("transformer.h.*.mlp.c_fc", conv),
            "model.layers.*.mlp.down_proj": ("transformer.h.*.mlp.c_proj", conv),
        },
    ),
    "gptj": Peer(
        theirs=hf.GPTJForCausalLM,
        config=lambda: hf.GPTJConfig(
            vocab_size=VOCABULARY,
            n_positions=LENGTH,
            n_embd=WIDTH,
            n_layer=LAYERS,
            n_head=HEADS,
            n_inner=INNER,
            rotary_dim=4,
            **TOKENS,
        ),
        ours=hf_tx.TxDecoderForCausalLM,
        settings=dict(
            **STANDARD,
            tie_word_embeddings=False,
            lm_head_bias=True,
            norm_type="layernorm",
            norm_eps=1e-5,
            parallel_residual=True,
            parallel_shared_norm=True,
            ffn_type="mlp",
            hidden_act="gelu_new",
            mlp_bias=True,
            rope_interleaved=True,
            rope_parameters=dict(rope_theta=10_000.0, partial_rotary_factor=0.5),
        ),
        names=causal(
            dict(
                **{f"mixer__{part}_proj": f"attn.{part}_proj" for part in "qkv"},
                mixer__o_proj="attn.out_proj",
                mlp__up_proj="mlp.fc_in",
                mlp__down_proj="mlp.fc_out",
                mixer_norm="ln_1",
            ),
            "transformer.wte",
            "transformer.h",
            "transformer.ln_f",
        ),
    ),
    **{
        f"gpt_neox_{kind}": Peer(
            theirs=hf.GPTNeoXForCausalLM,
            config=lambda parallel=parallel: hf.GPTNeoXConfig(
                **STANDARD,
                use_parallel_residual=parallel,
                rope_parameters=dict(ROPE, rope_type="default", partial_rotary_factor=0.25),
            ),
            ours=hf_tx.TxDecoderForCausalLM,
            settings=dict(
                **STANDARD,
                tie_word_embeddings=False,
                norm_type="layernorm",
                norm_eps=1e-5,
                parallel_residual=parallel,
                ffn_type="mlp",
                hidden_act="gelu",
                attention_bias=True,
                mlp_bias=True,
                rope_parameters=dict(ROPE, rope_type="default", partial_rotary_factor=0.25),
            ),
            names={
                "model.embed_tokens": "gpt_neox.embed_in",
                **qkv("model.layers.*.mixer", "gpt_neox.layers.*.attention.query_key_value", third_of_head),
                **block(
                    "model.layers",
                    "gpt_neox.layers",
                    mixer__o_proj="attention.dense",
                    mlp__up_proj="mlp.dense_h_to_4h",
                    mlp__down_proj="mlp.dense_4h_to_h",
                    mixer_norm="input_layernorm",
                    mlp_norm="post_attention_layernorm",
                ),
                "model.norm": "gpt_neox.final_layer_norm",
                "lm_head": "lm_head",
            },
        )
        for kind, parallel in (("parallel", True), ("sequential", False))
    },
    "opt": Peer(
        theirs=hf.OPTForCausalLM,
        config=lambda: hf.OPTConfig(
            vocab_size=VOCABULARY,
            hidden_size=WIDTH,
            word_embed_proj_dim=WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            ffn_dim=INNER,
            max_position_embeddings=LENGTH,
            **TOKENS,
        ),
        ours=hf_tx.TxDecoderForCausalLM,
        settings=dict(
            **STANDARD,
            position_type="learned",
            position_offset=2,
            norm_type="layernorm",
            norm_eps=1e-5,
            ffn_type="mlp",
            hidden_act="relu",
            attention_bias=True,
            mlp_bias=True,
        ),
        names={
            "model.positions.learned.embed_positions": "model.decoder.embed_positions",
            **causal(
                dict(
                    **{f"mixer__{part}_proj": f"self_attn.{part}_proj" for part in "qkv"},
                    mixer__o_proj="self_attn.out_proj",
                    mlp__up_proj="fc1",
                    mlp__down_proj="fc2",
                    mixer_norm="self_attn_layer_norm",
                    mlp_norm="final_layer_norm",
                ),
                "model.decoder.embed_tokens",
                "model.decoder.layers",
                "model.decoder.final_layer_norm",
            ),
        },
        positions="own",
    ),
    "bloom": Peer(
        theirs=hf.BloomForCausalLM,
        config=lambda: hf.BloomConfig(
            vocab_size=VOCABULARY, hidden_size=WIDTH, n_layer=LAYERS, n_head=HEADS, **TOKENS
        ),
        ours=hf_tx.TxDecoderForCausalLM,
        settings=dict(STANDARD, intermediate_size=4 * WIDTH)
        | dict(
            position_type="alibi",
            embedding_norm=True,
            norm_type="layernorm",
            norm_eps=1e-5,
            ffn_type="mlp",
            hidden_act="gelu_new",
            attention_bias=True,
            mlp_bias=True,
        ),
        names={
            "model.embed_norm": "transformer.word_embeddings_layernorm",
            **qkv("model.layers.*.mixer", "transformer.h.*.self_attention.query_key_value", third_of_head),
            **causal(
                dict(
                    mixer__o_proj="self_attention.dense",
                    mlp__up_proj="mlp.dense_h_to_4h",
                    mlp__down_proj="mlp.dense_4h_to_h",
                    mixer_norm="input_layernorm",
                    mlp_norm="post_attention_layernorm",
                ),
                "transformer.word_embeddings",
                "transformer.h",
                "transformer.ln_f",
            ),
        },
        positions="own",
        backends=("eager",),
    ),
}

DECODER_HEADS = {
    "llama_classifier": Peer(
        theirs=hf.LlamaForSequenceClassification,
        config=lambda: hf.LlamaConfig(**STANDARD, num_labels=3),
        ours=hf_tx.TxDecoderForSequenceClassification,
        settings=dict(**STANDARD, num_labels=3),
        names=llama_names(LLAMA_LAYER) | {"score": "score"},
    ),
}
