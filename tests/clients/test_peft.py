# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Adapters and prompts of PEFT: training, saving, loading and merging, also on tied heads and resized vocabularies."""

from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from tiny_models import VOCABULARY, assert_close, assert_differ, build, config_of, enlarge, padded, tokens
from transformers import AutoModelForCausalLM

import hf_tx

TASKS = {"decoder": "CAUSAL_LM", "encoder": None, "encoder_decoder": "SEQ_2_SEQ_LM"}
PROMPTS = {
    "prompt": peft.PromptTuningConfig,
    "p-tuning": peft.PromptEncoderConfig,
    "prefix": peft.PrefixTuningConfig,
}
VIRTUAL_TOKENS = 3


def ask(model: Any, *rows: torch.Tensor) -> dict[str, torch.Tensor]:
    """Inputs of a model: rows padded on the left; encoder-decoders read them on both sides."""
    rows = rows or (tokens(7), tokens(4, seed=3))
    ids, mask = padded(rows, "left")
    inputs = dict(input_ids=ids, attention_mask=mask)
    return inputs | dict(decoder_input_ids=ids) if model.config.is_encoder_decoder else inputs


def logits_of(model: Any, inputs: dict[str, torch.Tensor] | None = None) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(**(inputs or ask(model))).logits[..., -4:, :]  # of tokens that are real in every row


def train(model: Any, steps: int = 4) -> list[float]:
    """Train on one batch; return the losses."""
    inputs = ask(model)
    labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
    optimizer = torch.optim.Adam([weight for weight in model.parameters() if weight.requires_grad], lr=5e-2)
    losses = []
    for _ in range(steps):
        loss = model.train()(**inputs, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def prompts(name: str, family: str, **settings: Any) -> Any:
    return PROMPTS[name](task_type=TASKS[family], num_virtual_tokens=VIRTUAL_TOKENS, **settings)


@pytest.mark.parametrize(
    ("config", "modules"),
    [
        (peft.LoraConfig(r=2), {"q_proj", "v_proj"}),
        (peft.IA3Config(), {"k_proj", "v_proj", "down_proj"}),
    ],
    ids=["lora", "ia3"],
)
@pytest.mark.parametrize("family", TASKS)
def test_default_targets_train_save_load_and_merge(
    config: Any, modules: set[str], family: str, tmp_path: Path
) -> None:
    # Retention has gates besides, which are no default target. A merged matrix is a sum that was rounded: in float64,
    # since what training makes of random weights may enlarge the rounding.
    settings = dict(head="lm", mixers="full,retention", ffn_type="glu", dtype=torch.float64)
    base = build(family, **settings)
    before = logits_of(base)
    config.task_type = TASKS[family]
    model = peft.get_peft_model(base, config)
    adapted = {name.rpartition(".")[2] for name, module in model.named_modules() if hasattr(module, "base_layer")}
    assert adapted == modules
    losses = train(model)
    assert losses[-1] < 0.95 * losses[0]
    trained = logits_of(model)
    assert (trained - before).abs().max() > 0.1 * before.abs().max()

    model.save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(build(family, **settings), tmp_path)
    assert_close(logits_of(loaded), trained, 1e-6)
    merged = loaded.merge_and_unload()
    assert type(merged) is type(base)
    assert_close(logits_of(merged), trained)
    merged.save_pretrained(tmp_path / "merged")
    assert_close(logits_of(type(base).from_pretrained(tmp_path / "merged")), trained)


def test_layers_without_projections_are_no_default_target() -> None:
    with pytest.raises(ValueError, match=r"Target modules .*_proj.* not found"):
        peft.get_peft_model(build("decoder", head="lm", mixers="lstm"), peft.LoraConfig())
    named = peft.LoraConfig(target_modules=["up_proj", "down_proj"], task_type="CAUSAL_LM")
    losses = train(peft.get_peft_model(build("decoder", head="lm", mixers="lstm"), named))
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", PROMPTS)
@pytest.mark.parametrize(("family", "mixers"), [("decoder", "sliding,full"), ("encoder_decoder", "full")])
def test_prompts_train_save_load_and_generate(name: str, family: str, mixers: str, tmp_path: Path) -> None:
    settings = dict(head="lm", mixers=mixers)
    model = peft.get_peft_model(build(family, **settings), prompts(name, family))
    assert all("prompt_encoder" in key for key, weight in model.named_parameters() if weight.requires_grad)
    losses = train(model, steps=8)
    assert losses[-1] < losses[0]
    model.save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(build(family, **settings), tmp_path)
    trained = logits_of(model)
    assert_close(logits_of(loaded), trained, 1e-6)
    generates_what_it_predicts(loaded)


@pytest.mark.parametrize("name", ["prompt", "p-tuning"])
@pytest.mark.parametrize("mixers", ["lstm", "gated_delta", "retention,full"])
def test_prompts_go_into_states(name: str, mixers: str) -> None:
    torch.manual_seed(0)
    model = build("decoder", head="lm", mixers=mixers)
    generates_what_it_predicts(peft.get_peft_model(model, prompts(name, "decoder")))


def generates_what_it_predicts(model: Any) -> None:
    """Compare generate() with a cache, which prompts the model once, with calls that read everything anew. The model
    without the prompt predicts other tokens, before and after it."""
    base, inputs = model.get_base_model(), ask(model)
    base.generation_config.eos_token_id = None
    alone = logits_of(base, inputs)
    with torch.no_grad():
        for weight in model.prompt_encoder.parameters():
            weight.mul_(2)
    greedy = dict(max_new_tokens=6, do_sample=False)
    text = {key: value for key, value in inputs.items() if not key.startswith("decoder")}
    found = model.generate(**text, **greedy, output_logits=True, return_dict_in_generate=True)
    start = torch.full((2, 1), base.config.decoder_start_token_id) if base.config.is_encoder_decoder else None
    written, mask = inputs["input_ids"] if start is None else start, inputs["attention_mask"]
    for step in found.logits:
        calls = text | dict(decoder_input_ids=written) if start is not None else dict(input_ids=written)
        expected = logits_of(model, calls | dict(attention_mask=mask))[:, -1]
        assert_close(step, expected)
        written = torch.cat([written, expected.argmax(-1, keepdim=True)], dim=1)
        if start is None:
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
    assert found.sequences.tolist() == written.tolist()
    plain = base.generate(**text, **greedy, output_logits=True, return_dict_in_generate=True)
    assert_differ(found.logits[0], plain.logits[0])
    assert_close(logits_of(base, inputs), alone, 1e-6)


@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
def test_a_prefix_needs_layers_that_keep_keys(family: str) -> None:
    model = peft.get_peft_model(build(family, head="lm", mixers="full,gru"), prompts("prefix", family))
    with pytest.raises(ValueError, match="layer 1 needs a state of constant size.* Prefix tuning needs"):
        logits_of(model)


def test_a_prefix_needs_a_cache() -> None:
    config = config_of("encoder")
    model = peft.get_peft_model(
        hf_tx.TxEncoderModel(config), peft.PrefixTuningConfig(task_type="FEATURE_EXTRACTION", num_virtual_tokens=2)
    )
    for inputs in (ask(model), dict(input_ids=tokens(1, 4))):
        with pytest.raises(ValueError, match="past_key_values is given, but an encoder .*prefix tuning"):
            model(**inputs)
    # Of classifiers PEFT says so itself.
    model = peft.get_peft_model(
        hf_tx.TxEncoderForSequenceClassification(config),
        peft.PrefixTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=2),
    )
    with pytest.raises(ValueError, match="does not support past key values"):
        model(**ask(model))
    model = peft.get_peft_model(build("decoder", head="lm"), prompts("prefix", "decoder"))
    with pytest.raises(ValueError, match="position_ids has 8 positions, but the input has 1"):
        model.generate(input_ids=tokens(1, 7), use_cache=False, max_new_tokens=2)


def test_prompts_of_a_classifier() -> None:
    model = enlarge(hf_tx.TxEncoderForSequenceClassification(config_of("encoder")))
    before = logits_of(model)
    torch.manual_seed(0)
    model = peft.get_peft_model(model, peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=4))
    inputs, labels = ask(model), torch.tensor([0, 1])
    model(**inputs, labels=labels).loss.backward()
    found = [key for key, weight in model.named_parameters() if "prompt" in key and weight.grad.abs().max() > 0]
    assert found == ["prompt_encoder.default.embedding.weight"]
    assert_differ(logits_of(model), before)


def test_a_tied_head_is_untied_before_it_is_adapted(tmp_path: Path) -> None:
    """A merge into weights that are shared would change the embeddings too: PEFT warns, and hf_tx unties."""
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "lm_head"], init_lora_weights=False)
    tied = build("decoder", head="lm", tie_word_embeddings=True)
    with pytest.warns(UserWarning, match="tie_word_embeddings=True"):
        peft.get_peft_model(build("decoder", head="lm", tie_word_embeddings=True), config)
    torch.manual_seed(0)
    model = peft.get_peft_model(hf_tx.untie_embeddings(tied), config)
    expected = logits_of(model)
    merged = model.merge_and_unload()
    assert_close(logits_of(merged), expected)
    merged.save_pretrained(tmp_path)
    assert_close(logits_of(AutoModelForCausalLM.from_pretrained(tmp_path)), expected)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("rows", ["all", "new"])
def test_a_vocabulary_that_was_resized(tied: bool, rows: str, tmp_path: Path) -> None:
    """The new rows are saved beside the adapter: all embeddings as they are, or the new rows as they were trained."""
    new = list(range(VOCABULARY, VOCABULARY + 3))
    build("decoder", head="lm", tie_word_embeddings=tied).save_pretrained(tmp_path / "base")

    def resized() -> Any:
        model = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
        model.resize_token_embeddings(VOCABULARY + len(new), mean_resizing=False)
        return model

    settings = dict(trainable_token_indices=new) if rows == "new" else {}
    model = peft.get_peft_model(resized(), peft.LoraConfig(task_type="CAUSAL_LM", r=2, **settings))
    inputs = dict(input_ids=torch.tensor([[*new, 5, new[0], 7]]))
    if rows == "new":
        with torch.no_grad():
            for key, weight in model.named_parameters():
                if "trainable_tokens_delta" in key:
                    weight.normal_(generator=torch.Generator().manual_seed(1))
    train(model)
    expected = logits_of(model, inputs)
    assert expected.shape[-1] == VOCABULARY + len(new)
    model.save_pretrained(tmp_path / "adapter")
    loaded = peft.PeftModel.from_pretrained(resized(), tmp_path / "adapter")
    assert_close(logits_of(loaded, inputs), expected, 1e-6)
    merged = loaded.merge_and_unload()
    assert_close(logits_of(merged, inputs), expected)
    merged.save_pretrained(tmp_path / "merged")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert again.config.vocab_size == VOCABULARY + len(new)
    assert_close(logits_of(again, inputs), expected)
