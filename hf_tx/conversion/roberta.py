# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""RoBERTa and XLM-RoBERTa: a BERT whose positions begin after the padding token's index."""

from typing import Any

from .bert import FIELDS, POOLER, WEIGHTS
from .family import ENCODER, Family, Head
from .fields import Entry, NotExpressible, always, only
from .weights import rule


def offset_of(config: Any) -> int:
    """Return where positions begin that begin after the padding token's index."""
    if config.pad_token_id is None:
        raise NotExpressible("pad_token_id", None, "its positions begin after pad_token_id, which must be an integer")
    return config.pad_token_id + 1


def _read_positions(config: Any) -> dict[str, Any]:
    offset = offset_of(config)
    return {"max_position_embeddings": config.max_position_embeddings - offset, "position_offset": offset}


POSITIONS = Entry(
    ("max_position_embeddings",),
    ("max_position_embeddings", "position_offset"),
    _read_positions,
    lambda settings: {"max_position_embeddings": settings["max_position_embeddings"] + settings["position_offset"]},
)


GELU = only("its head for masked tokens always uses gelu", hidden_act="gelu")


def heads(name: str, prefix: str = "roberta") -> tuple[Head, ...]:
    """Return the heads of RoBERTa, whose classes begin with `name`."""
    masked = (
        rule("lm_head.dense", "transform.dense"),
        rule("lm_head.layer_norm", "transform.norm"),
        rule("lm_head.decoder", "lm_head"),
    )
    text = (rule("classifier.dense", "model.pooler.dense"), rule("classifier.out_proj", "score"))
    return (
        Head(f"{name}Model", "TxEncoderModel"),
        Head(f"{name}ForMaskedLM", "TxEncoderForMaskedLM", prefix, masked),
        Head(f"{name}ForSequenceClassification", "TxEncoderForSequenceClassification", prefix, text),
        *(
            Head(f"{name}{kind}", f"TxEncoder{kind}", prefix, (rule(theirs, ours),), settings)
            for kind, theirs, ours, settings in (
                ("ForTokenClassification", "classifier", "score", {}),
                ("ForMultipleChoice", "classifier", "score", {"classifier_dropout": None}),  # that of the layers
                ("ForQuestionAnswering", "qa_outputs", "qa_outputs", {}),
            )
        ),
    )


FAMILIES = tuple(
    Family(
        model_type=model_type,
        kind=ENCODER,
        fields=(
            *FIELDS,
            POSITIONS,
            GELU,
            always(add_pooling_layer=True),
        ),
        weights=(*WEIGHTS, POOLER),
        heads=heads(name),
        dropped={r"lm_head\.bias": "a second name of the bias of the decoder, which is what the head adds"},
        by_weights=("add_pooling_layer",),
    )
    for model_type, name in (("roberta", "Roberta"), ("xlm-roberta", "XLMRoberta"))
)
