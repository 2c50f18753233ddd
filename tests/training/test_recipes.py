# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import math
from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

from hf_tx.evaluation import UnigramModel
from hf_tx.tokenization import train_tokenizer
from hf_tx.training import RECIPES, Document, Recipe, encode_documents, width_fields

TEXTS = [
    "The river runs past the old mill, and the miller – who else? – runs past the river.\n" * 6,
    "Who said hello to the other brother? Nobody said hello; everybody said goodbye.\n" * 4,
]
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 32}
FAMILIES = tuple(RECIPES)


def make(family: str, seed: int = 0, **fields: Any) -> tuple[Recipe, PreTrainedModel, list[Document]]:
    tokenizer = train_tokenizer(
        TEXTS, vocab_size=300, family=family, model_max_length=32, extra_ids=0, show_progress=False
    )
    recipe = RECIPES[family](tokenizer, 32, seed)
    torch.manual_seed(0)
    config = recipe.config(**{**recipe.token_fields(), **SIZES, **fields})
    return recipe, recipe.auto_class.from_config(config), encode_documents(tokenizer, TEXTS)


def test_what_layers_read_and_write_is_about_as_large_at_every_width():
    for hidden_size in (32, 256):
        fields = width_fields(hidden_size)
        _, model, _ = make("decoder", hidden_size=hidden_size, **fields)
        assert abs(3 * fields["intermediate_size"] - 8 * hidden_size) <= 24
        layer, ids = model.model.layers[0], torch.arange(300)[None]
        embedded = model.model.embed_tokens(ids) * model.config.embedding_scale
        projected = layer.mixer.v_proj(torch.randn(50, hidden_size))
        logits = model.lm_head(torch.randn(50, hidden_size))
        for values in (embedded, projected, logits):
            assert values.std().item() == pytest.approx(1, rel=0.15)
    with pytest.raises(ValueError, match="hidden_size = 0: must be above 0"):
        width_fields(0)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_uniform_model_has_the_measures_of_its_vocabulary(family):
    recipe, model, documents = make(family)
    nn.init.zeros_(model.lm_head.weight)
    unigram = UnigramModel([], len(recipe.tokenizer))
    measured = recipe.measure(model, unigram, documents, batch_size=3)
    assert measured.model.num_tokens == measured.unigram.num_tokens
    for measures in measured.as_dict().values():
        assert measures["perplexity"] == pytest.approx(len(recipe.tokenizer), rel=1e-5)
    num_tokens, num_bytes = len(sum((d.token_ids for d in documents), [])), sum(len(t.encode()) for t in TEXTS)
    if family == "encoder":
        assert 0.05 < measured.model.num_tokens / num_tokens < 0.3
        assert set(measured.as_dict()["model"]) == {"loss", "perplexity", "accuracy"}
        return
    assert (measured.model.num_tokens, measured.num_bytes) == (num_tokens, num_bytes)
    bits = math.log2(len(recipe.tokenizer)) * num_tokens / num_bytes
    for measures in measured.as_dict().values():
        assert set(measures) == {"loss", "perplexity", "bits_per_byte"}
        assert measures["bits_per_byte"] == pytest.approx(bits, rel=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_unigram_model_answers_for_the_same_targets(family):
    recipe, model, documents = make(family)
    targets: list[int] = []
    if family == "encoder":
        for batch in recipe.held_out_batches(documents, 4):
            targets += batch["labels"][batch["labels"] != -100].tolist()
    else:
        targets = sum((document.token_ids for document in documents), [])
    counts = Counter(token for document in documents for token in document.token_ids)
    total = sum(counts.values()) + len(recipe.tokenizer)
    expected = -sum(math.log((counts[token] + 1) / total) for token in targets)
    unigram = UnigramModel([document.token_ids for document in documents], len(recipe.tokenizer))
    measured = recipe.measure(model, unigram, documents, batch_size=4)
    assert measured.unigram.nats == pytest.approx(expected)
    assert measured.model.num_tokens == len(targets)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_learnt_is_what_is_measured(family):
    """By heart: a shift between what is trained and what is scored would leave no trace of it."""
    recipe, model, documents = make(family)
    (batch,) = recipe.held_out_batches(documents, batch_size=100)
    optimizer = torch.optim.AdamW(model.parameters(), 5e-3)
    for _ in range(100):
        loss = model.train()(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    unigram = UnigramModel([document.token_ids for document in documents], len(recipe.tokenizer))
    measured = recipe.measure(model, unigram, documents, batch_size=100)
    assert measured.model.loss < 0.5 * measured.unigram.loss


def test_held_out_masks_are_the_same_in_every_run_and_those_of_training_are_not():
    held_out, training = [], []
    for seed in (1, 2):
        recipe, _, documents = make("encoder", seed)
        held_out.append(recipe.held_out_batches(documents, 4)[0])
        torch.manual_seed(0)
        training.append(recipe.objective(recipe.examples(documents)[:4]))
    assert all(torch.equal(held_out[0][name], held_out[1][name]) for name in held_out[0])
    assert not torch.equal(training[0]["labels"], training[1]["labels"])
    assert (held_out[0]["labels"] != -100).sum() > 5


def test_special_tokens_are_never_masked():
    recipe, _, documents = make("encoder")
    collate, special = recipe.objective, set(recipe.tokenizer.all_special_ids)
    for epoch in range(20):
        collate.set_epoch(epoch)
        labels = collate(recipe.examples(documents))["labels"]
        assert not special & set(labels[labels != -100].tolist())


@pytest.mark.parametrize("family", FAMILIES)
def test_prompts_are_short_pieces_of_the_text(family):
    recipe, _, _ = make(family)
    prompts = recipe.prompts(TEXTS)
    for prompt in prompts:
        before, _, after = prompt.partition(recipe.tokenizer.mask_token or "\n\n")
        assert len(before + after) > 10
        assert any(before in text and after in text for text in TEXTS)
        assert 1 < len(recipe.tokenizer(prompt)["input_ids"]) <= 32
    assert len(prompts) == (3 if family == "encoder" else 1)
    assert all(prompt.count("[MASK]") == 1 for prompt in prompts) or family != "encoder"


def test_prompts_of_a_text_without_lines():
    recipe, _, _ = make("decoder")
    assert recipe.prompts(["river"]) == ["river"]
    assert recipe.prompts(["\n \n"]) == []


def mixers_of(family: str, **fields: Any) -> Any:
    config = RECIPES[family].config(**SIZES, **fields)
    stacks = [config.encoder, config.decoder] if family == "encoder-decoder" else [config]
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
        config = RECIPES[family].config(**SIZES, mixers="chunked,dilated")
        assert (config.sliding_window, config.mixer_options) == (size, {"chunked": {"chunk_size": size}})
        given = {"chunked": {"chunk_size": 3}}
        config = RECIPES[family].config(**SIZES, mixers="chunked,global_local", sliding_window=5, mixer_options=given)
        assert (config.sliding_window, config.mixer_options) == (5, given)
    assert mixers_of("encoder-decoder", mixers="sliding,full") == [local, local]
    assert mixers_of("encoder-decoder", encoder_mixers="sliding,full") == [local, full]
    config = RECIPES["encoder-decoder"].config(**SIZES, decoder_mixers="chunked")
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
        RECIPES["encoder-decoder"].config(**SIZES, **fields)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_config_knows_the_tokens(family):
    recipe, model, _ = make(family)
    config, tokenizer = model.config, recipe.tokenizer
    assert (config.vocab_size, config.pad_token_id) == (len(tokenizer), tokenizer.pad_token_id)
    if family != "encoder":
        assert config.eos_token_id == model.generation_config.eos_token_id == tokenizer.eos_token_id
    if family == "decoder":
        assert config.bos_token_id == model.generation_config.bos_token_id == tokenizer.bos_token_id
    if family == "encoder-decoder":
        assert config.decoder_start_token_id == tokenizer.pad_token_id
