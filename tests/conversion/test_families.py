# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Every family, variant and class: what goes in comes out bit by bit; what cannot be expressed is refused.

That what comes in computes the same is shown by `tests/peers`, with the same variants.
"""

import copy
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from peers.decoders import BLOOM, CAUSAL, DECODER_HEADS, GPT2, OPT, PARTIAL
from peers.encoder_decoders import BART, SEQ2SEQ, SEQ2SEQ_HEADS, T5, T5GEMMA_STACK
from peers.encoders import DISTILBERT, ENCODERS, ROBERTA
from peers.parity import assert_close, build, randomise
from peers.tables import STANDARD, VOCABULARY, Peer
from torch import nn
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import hf_tx
from hf_tx.conversion import FAMILIES, NotExpressible
from hf_tx.conversion.families import REFUSED, family_of
from hf_tx.conversion.fields import SHARED
from hf_tx.objectives import OBJECTIVES, objectives_of
from hf_tx.training import NEW_MODELS, new_config, width_fields

PEERS = CAUSAL | DECODER_HEADS | ENCODERS | SEQ2SEQ | SEQ2SEQ_HEADS
CONFIGS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(FAMILIES, STANDARD | dict(num_key_value_heads=2)),
    **dict.fromkeys(("bert", "electra"), STANDARD),
    "gpt2": GPT2,
    "gptj": GPT2 | dict(rotary_dim=4),
    "gpt_neox": STANDARD | dict(rope_parameters=PARTIAL),
    "opt": OPT,
    "bloom": BLOOM,
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text"), STANDARD | dict(num_key_value_heads=2, head_dim=12)),
    "distilbert": DISTILBERT,
    **dict.fromkeys(("roberta", "xlm-roberta", "mpnet"), ROBERTA),
    **dict.fromkeys(("modernbert", "nomic_bert"), STANDARD),
    **dict.fromkeys(("t5", "mt5", "umt5"), T5),
    "t5gemma": dict(encoder=T5GEMMA_STACK, decoder=T5GEMMA_STACK),
    **dict.fromkeys(("bart", "mbart", "plbart", "pegasus", "marian", "m2m_100", "blenderbot"), BART),
}
PUBLISHED = json.loads((Path(__file__).parent / "published_configs.json").read_text("utf-8"))
HEADS = [
    pytest.param(name, head, id=head.theirs)
    for name, family in FAMILIES.items()
    for head in (*family.heads, *(family.encoder.heads if family.encoder else ()))
]


EPSILONS = {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"}


def config_of(name: str, **changes: Any) -> Any:
    """Return a config that shares nothing with the tables: transformers' configs keep the dicts they are given."""
    return CONFIG_MAPPING[name](**copy.deepcopy(CONFIGS[name] | changes))


def epsilon_of(name: str) -> dict[str, float]:
    """Return the number added to variances, so large that it shows, by the family's name of it."""
    declared = {field.name for field in dataclasses.fields(CONFIG_MAPPING[name])}
    return dict.fromkeys(EPSILONS & declared, 0.1)


def fields_of(config: Any) -> dict[str, Any]:
    """Return what a config says, but for what the model was loaded as, its dtype."""
    inner = {name: fields_of(getattr(config, name)) for name in config.sub_configs}
    return config.to_dict() | inner | {"dtype": None}


def assert_same(theirs: Any, back: Any, dropped: Any = ()) -> None:
    """Compare classes, configs, and all tensors: those that were dropped differ, unless they can be computed."""
    assert type(back) is type(theirs)
    old, new = theirs.state_dict(), back.state_dict()
    assert old.keys() == new.keys()
    family = FAMILIES[theirs.config.model_type].for_class(type(theirs).__name__)
    lost = {name for name in dropped if not any(re.fullmatch(each, name) for each in family.constants)}
    assert {name for name in old if not torch.equal(old[name], new[name])} == lost
    assert fields_of(theirs.config) == fields_of(back.config)
    if theirs.can_generate():
        assert back.generation_config.to_dict() == theirs.generation_config.to_dict()


@pytest.mark.parametrize("peer", [pytest.param(peer, id=name) for name, peer in PEERS.items()])
def test_there_and_back(peer: Peer) -> None:
    theirs = build(peer)
    if theirs.can_generate():
        theirs.generation_config.max_new_tokens = 7
    ours, info = hf_tx.from_hf(theirs, output_loading_info=True)
    assert_same(theirs, hf_tx.to_hf(ours), info["dropped_keys"])


@pytest.mark.parametrize(("name", "head"), HEADS)
def test_every_class_computes_the_same_and_comes_back(name: str, head: Any) -> None:
    cls = getattr(hf, head.theirs)
    labels = {"num_labels": 3} if "Classification" in head.theirs else {}
    config = config_of(name, **labels, **epsilon_of(name))
    config._attn_implementation = "eager"
    theirs = cls(config).eval()
    randomise(theirs)
    ours, info = hf_tx.from_hf(theirs, output_loading_info=True)
    assert type(ours).__name__ == head.ours
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(3, VOCABULARY, (2, 3, 9), generator=generator)
    inputs = {"input_ids": tokens if "MultipleChoice" in head.theirs else tokens[:, 0]}
    if theirs.config.is_encoder_decoder and "Classification" not in head.theirs and "Encoder" not in head.theirs:
        inputs["decoder_input_ids"] = tokens[:, 1, :6]
    if theirs.config.is_encoder_decoder:
        tokens[..., -1] = theirs.config.eos_token_id  # whose state theirs classifies
    expected, actual = theirs(**inputs), ours(**inputs)
    fields = [field for field in ("logits", "start_logits", "pooler_output", "last_hidden_state") if field in expected]
    assert fields
    for field in fields:
        assert_close(actual[field], expected[field], field)
    assert_same(theirs, hf_tx.to_hf(ours), info["dropped_keys"])


@pytest.mark.parametrize(
    "name", [name for name, family in FAMILIES.items() if family.kind is hf_tx.TxEncoderDecoderConfig]
)
def test_an_encoder_decoder_goes_out_without_an_origin(name: str) -> None:
    cls = getattr(hf, FAMILIES[name].head_of("TxEncoderDecoderForConditionalGeneration").theirs)
    theirs = cls(config_of(name)).eval()
    randomise(theirs)
    ours = hf_tx.from_hf(theirs)
    ours.config.origin = None
    back = hf_tx.to_hf(ours, name)
    old, new = theirs.state_dict(), back.state_dict()
    assert old.keys() == new.keys()
    assert not [key for key in old if not torch.equal(old[key], new[key])]
    inputs = {key: torch.arange(6).view(2, 3) + 9 for key in ("input_ids", "labels")}
    assert torch.equal(back(**inputs).loss, theirs(**inputs).loss)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_base_model_goes_out_without_an_origin(name: str) -> None:
    theirs = hf.AutoModel.from_config(config_of(name)).eval()
    randomise(theirs)
    ours = hf_tx.from_hf(theirs)
    ours.config.origin = None
    tokens = torch.randint(3, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(1))
    inputs = {"input_ids": tokens} | ({"decoder_input_ids": tokens} if theirs.config.is_encoder_decoder else {})
    assert torch.equal(hf_tx.to_hf(ours, name)(**inputs)[0], theirs(**inputs)[0])


def test_tensors_that_only_one_side_has() -> None:
    theirs = hf.DistilBertModel(config_of("distilbert"))
    with pytest.raises(NotExpressible, match=r"weights = \['embeddings.token_type_embeddings.weight'\]"):
        hf_tx.to_hf(hf_tx.from_hf(theirs), "bert")


DROPOUTS = {
    "gpt2": dict(embd_pdrop=0.4, resid_pdrop=0.0),
    "gptj": dict(embd_pdrop=0.4, resid_pdrop=0.0),
    "phi": dict(embd_pdrop=0.4, resid_pdrop=0.1),
    "starcoder2": dict(embedding_dropout=0.4, residual_dropout=0.0),
    "modernbert": dict(embedding_dropout=0.4),
    "gpt_neox": dict(hidden_dropout=0.4),
    "opt": dict(dropout=0.4),
    "phi3": dict(resid_pdrop=0.4),
    "stablelm": dict(hidden_dropout=0.4),
    "bloom": dict(hidden_dropout=0.4),
}


NATIVE: dict[str, dict[str, Any]] = {
    "as it is": {},
    "weights of its width": width_fields(32),
    "like GPT-2": dict(
        norm_type="layernorm", position_type="learned", ffn_type="mlp", attention_bias=True, mlp_bias=True
    ),
    "like BERT": dict(norm_type="layernorm", norm_position="post", position_type="learned", ffn_type="mlp"),
    "like T5": dict(position_type="relative", attention_scale=1.0),
}


@pytest.mark.parametrize("kind", NEW_MODELS)
@pytest.mark.parametrize("changes", NATIVE)
def test_a_model_that_began_here_is_expressed_or_refused(kind: str, changes: str) -> None:
    sizes = dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=32)
    ids = torch.arange(3, 15)[None]
    config = new_config(kind, **sizes, pad_token_id=0, **NATIVE[changes])
    model = OBJECTIVES[objectives_of(kind)[0]].auto_class.from_config(config).eval()
    randomise(model)
    expressed = []
    for name in FAMILIES:
        try:
            theirs = hf_tx.to_hf(model, name)
        except NotExpressible:
            continue
        expressed.append(name)
        assert_close(theirs(ids).logits, model(ids).logits, name)
    wanted = {"as it is": ["llama", "mistral", "phi3", "granite", "smollm3"], "weights of its width": ["granite"]}
    wanted["like GPT-2"] = ["gpt2"]
    assert sorted(expressed) == sorted(wanted.get(changes, []) if kind == "decoder" else [])


@pytest.mark.parametrize("name", DROPOUTS)
def test_embeddings_have_their_dropout_in_training(name: str) -> None:
    """One that layers have not, one that they have as well, or none."""
    theirs = hf.AutoModel.from_config(config_of(name, **DROPOUTS[name])).train()
    randomise(theirs)
    ours = hf_tx.from_hf(theirs)
    tokens = torch.randint(3, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(1))
    states = []
    for model in (theirs, ours):
        torch.manual_seed(0)
        states.append(model(tokens, output_hidden_states=True).hidden_states[0])
    assert_close(states[1], states[0], "embeddings")
    assert_same(theirs, hf_tx.to_hf(ours))


CLASSIFIERS = [case for case in HEADS if re.search("Classification|MultipleChoice", str(case.id))]


@pytest.mark.parametrize(("name", "head"), CLASSIFIERS)
def test_classifiers_have_their_dropout(name: str, head: Any) -> None:
    declared = sorted(field.name for field in dataclasses.fields(CONFIG_MAPPING[name]) if "drop" in field.name)
    probabilities = {field: 0.1 * (index + 1) for index, field in enumerate(declared)}
    theirs = getattr(hf, head.theirs)(config_of(name, **probabilities))
    wanted, found = (
        {module.p for module in model.children() if isinstance(module, nn.Dropout)}
        for model in (theirs, hf_tx.from_hf(theirs))
    )
    assert wanted <= found  # where theirs have none, or not as a child, ours have one that is not used, or the same


@pytest.mark.parametrize("name", PUBLISHED)
def test_configs_as_they_are_published(name: str) -> None:
    """Of well-known checkpoints, with their sizes made small: names of old versions, fields of other code, and values
    that no default has."""
    cls = CONFIG_MAPPING[PUBLISHED[name]["model_type"]]
    config = cls.from_dict(copy.deepcopy(PUBLISHED[name]))
    family = family_of(config)
    head = family.head_of(config.architectures[0])
    settings = family.read(config) | head.settings
    written = family.write(family.build(settings), cls(), head)  # raises unless it says the same
    assert type(written) is cls


@pytest.mark.parametrize("name", FAMILIES)
def test_every_field_is_understood(name: str) -> None:
    """Also those that are null here, and those that a later version of transformers adds."""
    declared = {field.name for field in dataclasses.fields(CONFIG_MAPPING[name])}
    for family in filter(None, (FAMILIES[name], FAMILIES[name].encoder)):
        understood = {field for entry in family.entries for field in entry.theirs}
        assert not {field for field in declared - understood - SHARED.keys() if not field.startswith("_")}


REFUSALS = [
    ("llama", dict(is_causal=False), "is_causal = False: a llama has no such field"),
    ("llama", dict(sliding_window=4), "sliding_window = 4: a llama has no such field"),
    ("llama", dict(rope_parameters=PARTIAL), "rope_parameters = {"),
    ("llama", dict(quantization_config={"quant_method": "bitsandbytes"}), "quantization_config = {"),
    ("mistral", dict(layer_types=["full_attention"] * 3), "layer_types = ["),
    ("gpt2", dict(add_cross_attention=True), "add_cross_attention = True"),
    ("olmo", dict(clip_qkv=8.0), "clip_qkv = 8.0"),
    ("gemma", dict(use_bidirectional_attention=True), "use_bidirectional_attention = True"),
    ("gemma2", dict(use_bidirectional_attention=True), "use_bidirectional_attention = True"),
    (
        "gpt_neox",
        dict(head_dim=12),
        "head_dim = 12: its rotary positions use this value, but its heads have 8 features",
    ),
    ("bloom", dict(slow_but_exact=True, pretraining_tp=2), "slow_but_exact = True: with pretraining_tp = 2"),
    ("bloom", dict(apply_residual_connection_post_layernorm=True), "apply_residual_connection_post_layernorm = True"),
    ("smollm3", dict(no_rope_layers=[0, 0, 0]), "no_rope_layers = [0, 0, 0]"),
    ("bert", dict(is_decoder=True), "is_decoder = True"),
    ("bert", dict(position_embedding_type="relative_key"), "position_embedding_type = 'relative_key'"),
    ("bert", dict(add_cross_attention=True), "add_cross_attention = True"),
    ("roberta", dict(hidden_act="relu"), "hidden_act = 'relu'"),
    ("roberta", dict(pad_token_id=None), "pad_token_id = None: its positions begin after pad_token_id"),
    ("electra", dict(hidden_act="relu"), "hidden_act = 'relu'"),
    ("mpnet", dict(pad_token_id=0), "pad_token_id = 0"),
    ("mpnet", dict(relative_attention_num_buckets=16), "relative_attention_num_buckets = 16"),
    ("modernbert", dict(classifier_activation="relu"), "classifier_activation = 'relu'"),
    ("eurobert", dict(classifier_pooling="cls"), "classifier_pooling = 'cls': known values are bos, mean, late"),
    ("modernbert", dict(sparse_pred_ignore_index=-1), "sparse_pred_ignore_index = -1"),
    ("marian", dict(decoder_vocab_size=90), "decoder_vocab_size = 90: the stacks share embeddings"),
    ("t5gemma", dict(is_encoder_decoder=False), "is_encoder_decoder = False"),
    ("t5gemma", dict(pad_token_id=3), "decoder.pad_token_id = 0"),
    ("m2m_100", dict(decoder_start_token_id=0), "decoder_start_token_id = 0"),
    ("bart", dict(is_decoder=True), "is_decoder = True"),
    ("t5", dict(is_decoder=True), "is_decoder = True"),
]


@pytest.mark.parametrize(
    ("name", "changes", "message"), REFUSALS, ids=[f"{n}-{next(iter(c))}" for n, c, _ in REFUSALS]
)
def test_what_hf_tx_cannot_compute_is_refused(name: str, changes: dict[str, Any], message: str) -> None:
    config = config_of(name, **changes)
    with pytest.raises(NotExpressible) as error:
        family_of(config).read(config)
    assert str(error.value).startswith(f"not expressible: {message}")


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("llama", dict(rms_norm_eps=0.0), "norm_eps = 0.0: must be a finite number above 0."),
        (
            "t5",
            dict(relative_attention_num_buckets=10),
            "relative_attention_num_buckets = 10: must be a multiple of 4.",
        ),
        ("bart", dict(dropout=1.0), "hidden_dropout = 1.0: must lie in [0, 1)."),
        ("gpt2", dict(activation_function="prelu"), "weights = ['layers.0.mlp.act_fn.weight', "),
    ],
)
def test_what_breaks_a_rule_of_ours_is_refused(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(NotExpressible) as error:
        hf_tx.from_hf(hf.AutoModel.from_config(config_of(name, **changes)))
    assert str(error.value).startswith(f"not expressible: {message}")


@pytest.mark.parametrize("name", FAMILIES)
def test_fields_that_no_code_reads_are_no_obstacle(name: str) -> None:
    """Those of clients, and of other families."""
    config = config_of(name, initializer_range=0.1, finetuning_task="mnli", parallel_residual=True, norm_type="none")
    rope = getattr(config, "rope_parameters", None) or {}
    for own in [own for own in rope.values() if isinstance(own, dict)] or [rope]:
        own["finetuned"] = True  # Yarn-Mistral
    theirs = hf.AutoModel.from_config(config)
    assert_same(theirs, *_there_and_back(theirs))


def _there_and_back(theirs: Any) -> tuple[Any, Any]:
    ours, info = hf_tx.from_hf(theirs, output_loading_info=True)
    return hf_tx.to_hf(ours), info["dropped_keys"]


@pytest.mark.parametrize("name", ["llama", "bert", "t5", "bart"])
def test_states_that_a_config_asks_for_are_returned(name: str) -> None:
    theirs = hf.AutoModel.from_config(config_of(name, output_hidden_states=True))
    tokens = torch.randint(3, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(1))
    inputs = (
        dict(input_ids=tokens, decoder_input_ids=tokens) if theirs.config.is_encoder_decoder else {"input_ids": tokens}
    )
    field = "decoder_hidden_states" if theirs.config.is_encoder_decoder else "hidden_states"
    assert len(hf_tx.from_hf(theirs)(**inputs)[field]) == len(theirs(**inputs)[field])


@pytest.mark.parametrize("name", ["pegasus", "marian"])
def test_a_table_of_positions_that_are_no_sinusoids_is_refused(name: str) -> None:
    model = hf.AutoModel.from_config(config_of(name))
    hf_tx.from_hf(model.bfloat16())
    model.decoder.embed_positions.weight.data[5] += 0.1
    with pytest.raises(NotExpressible, match="weights = 'decoder.embed_positions.weight': sinusoids are computed"):
        hf_tx.from_hf(model)


def test_every_refused_field_is_tested() -> None:
    """Those of entries that give nothing but refuse; families share entries."""
    tested = {
        (id(entry), field)
        for name, changes, _ in REFUSALS
        for entry in FAMILIES[name].fields
        for field in changes.keys() & set(entry.theirs)
    }
    for name, family in FAMILIES.items():
        for entry in family.fields:
            if not entry.ours and _refuses(entry, name):
                assert not [field for field in entry.theirs if (id(entry), field) not in tested], name


def _refuses(entry: Any, name: str) -> bool:
    class Strange:
        model_type = name

        def __getattr__(self, field: str) -> Any:
            return "strange"

    try:
        entry.read(Strange())
    except NotExpressible:
        return True
    return False


@pytest.mark.parametrize(
    "folder", [Path(__file__).parents[2], Path(hf_tx.__file__).parent / "conversion"], ids=["project", "conversion"]
)
def test_the_readme_lists_the_families(folder: Path) -> None:
    lines = (folder / "README.md").read_text("utf-8").splitlines()
    rows = [line for line in lines if line.startswith(("| decoders", "| encoders", "| encoder-decoders"))]
    assert [name for row in rows for name in re.findall("`(.*?)`", row)] == [
        name
        for kind in ("hf_tx_decoder", "hf_tx_encoder", "hf_tx_encoder_decoder")
        for name, family in FAMILIES.items()
        if family.kind.model_type == kind
    ]


@pytest.mark.parametrize("name", REFUSED)
def test_families_that_the_blocks_cannot_express(name: str) -> None:
    model = hf.AutoModel.from_config(CONFIG_MAPPING[name](**STANDARD))
    with pytest.raises(NotExpressible, match=f"not expressible: model_type = '{name}': {REFUSED[name]}"):
        hf_tx.from_hf(model)


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.refused])
def test_classes_that_are_not_expressible(name: str) -> None:
    for cls, reason in FAMILIES[name].refused.items():
        model = getattr(hf, cls)(config_of(name))
        with pytest.raises(NotExpressible) as error:
            hf_tx.from_hf(model)
        message = f"not expressible: architectures = ['{cls}']: {reason}; the classes of {name} are "
        assert str(error.value).startswith(message)


def test_other_families_and_classes() -> None:
    with pytest.raises(NotExpressible, match="model_type = 'vit': model types that can be converted are llama"):
        hf_tx.from_hf(hf.ViTModel(hf.ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2)))
    model = hf.BertForNextSentencePrediction(config_of("bert"))
    with pytest.raises(
        NotExpressible, match=r"architectures = \['BertForNextSentencePrediction'\]: the classes of bert are"
    ):
        hf_tx.from_hf(model)
