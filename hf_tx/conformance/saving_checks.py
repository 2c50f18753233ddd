# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""The checks of a model's config, its saving and loading, and its vocabulary."""

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers.models.auto import modeling_auto

from .checks import CheckTable
from .clean_process import assert_loads_elsewhere
from .model_subject import LENGTH, ModelSubject
from .tools import assert_close, assert_finite, expect, meta_tensors

SAVING_CHECKS = CheckTable()


def _reload(subject: ModelSubject, model: Any) -> tuple[Any, dict[str, Any]]:
    """Save a model, load it, and return it with what transformers says of the load."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        load: Any = subject.kind.from_pretrained
        loaded, info = load(folder, attn_implementation="eager", output_loading_info=True)
    return loaded.eval(), info


@SAVING_CHECKS.add
def config_round_trip(subject: ModelSubject) -> None:
    """A saved config comes back equal."""
    config = subject.fresh_config()
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        loaded = type(config).from_pretrained(folder)
    before, after = config.to_dict(), loaded.to_dict()
    names = (before.keys() | after.keys()) - {"_name_or_path"}  # where it was loaded from
    changed = sorted(name for name in names if before.get(name) != after.get(name))
    expect(not changed, "changes by a round trip: " + ", ".join(changed))


@SAVING_CHECKS.add
def builds_on_meta(subject: ModelSubject) -> None:
    """The model can be built on the meta device, with the parameters that it has elsewhere."""
    with torch.device("meta"):
        model = subject.kind(subject.fresh_config())
    named = {name: parameter.shape for name, parameter in model.named_parameters()}
    real = {name: parameter.shape for name, parameter in subject.build().named_parameters()}
    expect(named == real, f"parameters differ on the meta device: {sorted(named.keys() ^ real.keys())}")
    other = [name for name, parameter in model.named_parameters() if not parameter.is_meta]
    expect(not other, f"not on the meta device: {', '.join(other)}")


@SAVING_CHECKS.add
def save_and_load(subject: ModelSubject) -> None:
    """A saved model comes back: all weights and buffers to the bit, equal outputs, nothing missing or left over, and
    nothing on the meta device."""
    model = subject.build()
    loaded, info = _reload(subject, model)
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        expect(not info.get(what), f"{what}: {info.get(what)}")
    left = meta_tensors(loaded)
    expect(not left, f"on the meta device after a load: {', '.join(left)}")
    after = dict([*loaded.named_parameters(), *loaded.named_buffers()])
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        expect(name in after, f"{name} is gone")
        expect(torch.equal(tensor, after[name]), f"{name} changes by a load")
    batch = subject.tokens(2, LENGTH)
    assert_close(subject.states(loaded, batch), subject.states(model, batch), "outputs after a load")


@SAVING_CHECKS.add
def draws_what_is_missing(subject: ModelSubject) -> None:
    """A load that finds no weights draws all of them: none is left as the memory was."""
    model = subject.kind.from_pretrained(None, config=subject.fresh_config(), state_dict={})
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_floating_point():
            assert_finite(tensor[tensor != float("-inf")], f"{name} of a model without weights")
    assert_finite(subject.states(model.eval(), subject.tokens(2, LENGTH)), "outputs")


@SAVING_CHECKS.add
def tied_weights(subject: ModelSubject) -> None:
    """Head and embeddings are one parameter exactly if the config says so: built, loaded, copied, cast."""
    model = subject.build()
    subject.need(model.get_output_embeddings() is not None, "the model has no head of tokens")
    config = subject.config.get_text_config(decoder=True)
    says = getattr(subject.config, "tie_word_embeddings", getattr(config, "tie_word_embeddings", False))
    cases = {
        "built": model,
        "loaded": _reload(subject, model)[0],
        "copied": copy.deepcopy(model),
        "cast": copy.deepcopy(model).to(torch.bfloat16),
    }
    for what, one in cases.items():
        decoder = one.get_decoder() if subject.seq2seq else one
        tied = one.get_output_embeddings().weight is decoder.get_input_embeddings().weight
        expect(tied == says, f"{what}: tied is {tied}, tie_word_embeddings = {says}")


@SAVING_CHECKS.add
def resized_vocabulary(subject: ModelSubject) -> None:
    """More tokens: sizes agree everywhere, old tokens keep their outputs, and the model comes back from a load."""
    model = subject.build()
    batch = subject.tokens(2, LENGTH)
    before, old = subject.states(model, batch), subject.vocabulary
    model.resize_token_embeddings(old + 3, pad_to_multiple_of=8)
    size = model.get_input_embeddings().weight.shape[0]
    expect(size % 8 == 0 and size >= old + 3, f"{old + 3} tokens, padded to multiples of 8, are {size}")
    for what, one in (("resized", model), ("resized and loaded", _reload(subject, model)[0])):
        said = one.config.get_text_config().vocab_size
        expect(said == size, f"{what}: config.vocab_size = {said}, the embeddings have {size} rows")
        head = one.get_output_embeddings()
        if head is not None:
            expect(head.weight.shape[0] == size, f"{what}: the head has {head.weight.shape[0]} rows, not {size}")
        after = subject.states(one, batch)
        if head is not None and before.shape[-1] == old:
            after = after[..., :old]
        assert_close(after, before, f"{what}: outputs of the old tokens")
        if "labels" in subject.parameters and before.shape[-1] == old and subject.per_token:
            with torch.no_grad():
                assert_finite(subject.call(one, batch, labels=batch).loss, f"{what}: loss")


def _auto_class(subject: ModelSubject) -> str | None:
    """The Auto class that loads the model."""
    tables = {
        "AutoModelForCausalLM": "MODEL_FOR_CAUSAL_LM_MAPPING",
        "AutoModelForMaskedLM": "MODEL_FOR_MASKED_LM_MAPPING",
        "AutoModelForSeq2SeqLM": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
        "AutoModelForSequenceClassification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
        "AutoModelForTokenClassification": "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING",
        "AutoModelForQuestionAnswering": "MODEL_FOR_QUESTION_ANSWERING_MAPPING",
        "AutoModel": "MODEL_MAPPING",
    }
    for auto, table in tables.items():
        found = getattr(modeling_auto, table).get(type(subject.config), None)
        if subject.kind in (found if isinstance(found, tuple) else (found,)):
            return auto
    return None


@SAVING_CHECKS.add_slow
def loads_in_new_process(subject: ModelSubject) -> None:
    """A saved model gives the same in a new process that has imported nothing but transformers."""
    auto = _auto_class(subject) or subject.kind._auto_class
    how = (
        f"{type(subject.config).__name__}.register_for_auto_class() and {subject.kind.__name__}."
        f"register_for_auto_class({auto or 'AutoModelForCausalLM'!r}) let save_pretrained write the code beside the "
        "weights, from where trust_remote_code=True loads it"
    )
    subject.need(auto is not None, f"no Auto class knows the model; {how}, under the Auto class of its task")
    model = subject.build()
    batch = subject.tokens(2, LENGTH)
    inputs = subject.inputs(batch)
    with torch.no_grad():
        outputs = model(**inputs)
    name = "logits" if "logits" in outputs else next(iter(outputs))
    # What comes with its code must not need the package that the code is from.
    package = subject.kind.__module__.partition(".")[0]
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        travels = "auto_map" in json.loads(Path(folder, "config.json").read_text())
        expect(travels or package == "transformers", f"no code comes with what is saved: call both before. {how}.")
        without = "" if package in ("transformers", "transformers_modules") else package
        assert_loads_elsewhere(folder, str(auto), inputs, {name: outputs[name]}, without=without)
