# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
from typing import Any

import pytest
import torch

from hf_tx.objectives import OBJECTIVES, text_objective_of
from hf_tx.tokenization import train_tokenizer
from hf_tx.training import NEW_MODELS, new_config, width_fields

TEXTS = ["The river runs past the old mill, and the miller – who else? – runs past the river.\n" * 6]
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 32}


def make(family: str, **fields: Any) -> tuple[Any, Any]:
    """Return an objective of a family, and a model that can learn it."""
    tokenizer = train_tokenizer(
        TEXTS, vocab_size=300, family=family, model_max_length=32, extra_ids=0, show_progress=False
    )
    objective = OBJECTIVES[text_objective_of(family)](tokenizer, 32)
    torch.manual_seed(0)
    config = new_config(family, **{**objective.token_fields(), **SIZES, **fields})
    return objective, objective.auto_class.from_config(config)


def test_what_layers_read_and_write_is_about_as_large_at_every_width():
    for hidden_size in (32, 256):
        fields = width_fields(hidden_size)
        _, model = make("decoder", hidden_size=hidden_size, **fields)
        assert abs(3 * fields["intermediate_size"] - 8 * hidden_size) <= 24
        layer, ids = model.model.layers[0], torch.arange(model.config.vocab_size)[None]
        embedded = model.model.embed_tokens(ids) * model.config.embedding_scale
        projected = layer.mixer.v_proj(torch.randn(50, hidden_size))
        logits = model.lm_head(torch.randn(50, hidden_size))
        for values in (embedded, projected, logits):
            assert values.std().item() == pytest.approx(1, rel=0.15)
    with pytest.raises(ValueError, match="hidden_size = 0: must be above 0"):
        width_fields(0)


def mixers_of(family: str, **fields: Any) -> Any:
    config = new_config(family, **SIZES, **fields)
    stacks = [getattr(config, name) for name in NEW_MODELS[family].stacks] or [config]
    return [(stack.mixers, stack.sliding_window) for stack in stacks]


def test_mixers_of_the_stacks():
    full, mixed = (["full", "full"], None), (["sliding", "full"], 8)
    window = {"sliding_window": 8}
    for family in ("decoder", "encoder"):
        assert mixers_of(family, mixers="sliding,full", **window) == [mixed]
    assert mixers_of("encoder-decoder", mixers="sliding,full", **window) == [mixed, mixed]
    assert mixers_of("encoder-decoder", mixers="full", encoder_mixers="sliding,full", **window) == [mixed, full]
    assert mixers_of("encoder-decoder", mixers="sliding,full", decoder_mixers="full", **window) == [mixed, full]
    assert mixers_of("encoder-decoder", mixers="full", decoder_mixers="sliding,full", **window) == [full, mixed]


def test_local_attention_sees_a_part_of_the_context():
    size = SIZES["max_position_embeddings"] // 4
    local, full = (["sliding", "full"], size), (["full", "full"], None)
    for family in ("decoder", "encoder"):
        assert mixers_of(family, mixers="sliding,full", sliding_window=None) == [local]
        config = new_config(family, **SIZES, mixers="chunked,dilated")
        assert (config.sliding_window, config.mixer_options) == (size, {"chunked": {"chunk_size": size}})
        given = {"chunked": {"chunk_size": 3}}
        config = new_config(family, **SIZES, mixers="chunked,global_local", sliding_window=5, mixer_options=given)
        assert (config.sliding_window, config.mixer_options) == (5, given)
    assert mixers_of("encoder-decoder", mixers="sliding,full") == [local, local]
    assert mixers_of("encoder-decoder", encoder_mixers="sliding,full") == [local, full]
    config = new_config("encoder-decoder", **SIZES, decoder_mixers="chunked")
    assert (config.encoder.mixer_options, config.decoder.mixer_options) == (None, {"chunked": {"chunk_size": size}})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mixers": "full", "sliding_window": 8}, "no layer has a window"),
        ({"mixers": "slidding"}, "Did you mean 'sliding'"),
        ({"mixers": "full", "decoder_mixers": "fall"}, "Did you mean 'full'"),
    ],
)
def test_wrong_mixers_are_refused(fields, message):
    with pytest.raises(Exception, match=message):
        new_config("encoder-decoder", **SIZES, **fields)


@pytest.mark.parametrize("family", NEW_MODELS)
def test_the_config_knows_the_tokens(family):
    objective, model = make(family)
    config, tokenizer = model.config, objective.tokenizer
    assert (config.vocab_size, config.pad_token_id) == (len(tokenizer), tokenizer.pad_token_id)
    for name in set(objective.token_ids) - {"pad_token_id"}:
        assert getattr(config, name) == getattr(model.generation_config, name) == getattr(tokenizer, name)
    if family == "encoder-decoder":
        assert config.decoder_start_token_id == tokenizer.pad_token_id
