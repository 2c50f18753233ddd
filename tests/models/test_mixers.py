# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What each mixer computes: its definition, written out again, against the layer inside a model."""

import copy

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from tiny_models import (
    ATTENTION,
    LINEAR,
    MIXER_OPTIONS,
    RECURRENT,
    WINDOW,
    assert_close,
    assert_differ,
    build,
    config_of,
    enlarge,
    padded,
    tokens,
)
from torch import nn
from transformers import DynamicCache, StaticCache

import hf_tx
from hf_tx.conformance.references import naive_recurrence
from hf_tx.models.linear_forms import recurrence
from hf_tx.models.mixers import MIXERS

STATEFUL = LINEAR + RECURRENT
LENGTH = 13


# -------------------------------------------------------------------------------------------- sparse attention
def blocks_drawn(options: dict, block: int) -> set[int]:
    """Blocks that `global_local` draws, by the hash of the docstring, in plain integers."""
    drawn = set()
    for draw in range(options["random_blocks"]):
        mixed = (block * 2654435761 + (draw + 1) * 2246822519 + options.get("seed", 0) * 3266489917) & 0x7FFFFFFF
        mixed = ((mixed ^ (mixed >> 15)) * 668265263) & 0x7FFFFFFF
        mixed ^= mixed >> 13
        if block > 0:
            drawn.add(mixed % block)
    return drawn


def sees(mixer: str, query: int, key: int, causal: bool) -> bool:
    """Whether a query sees a key of its document, from the written definitions."""
    if causal and key > query:
        return False
    distance, options = abs(query - key), MIXER_OPTIONS.get(mixer, {})
    near = distance < WINDOW if causal else distance <= WINDOW
    if mixer == "full":
        return True
    if mixer == "sliding":
        return near
    if mixer == "chunked":
        return query // options["chunk_size"] == key // options["chunk_size"]
    if mixer == "dilated":
        steps, rest = divmod(distance, options["dilation"])
        return rest == 0 and (steps < WINDOW if causal else steps <= WINDOW)
    size = options["block_size"]
    drawn = key // size in blocks_drawn(options, query // size)
    if not causal:
        drawn = drawn or query // size in blocks_drawn(options, key // size)
    return near or query in options["global_positions"] or key in options["global_positions"] or drawn


@pytest.mark.parametrize("family", ["decoder", "encoder"])
@pytest.mark.parametrize("mixer", ATTENTION)
def test_a_query_sees_the_keys_of_the_definition(mixer, family):
    expected = torch.tensor(
        [[sees(mixer, query, key, family == "decoder") for key in range(LENGTH)] for query in range(LENGTH)]
    )
    model = build(family, mixers=mixer, position_type="none")
    batch, mask = padded([tokens(LENGTH), tokens(LENGTH - 2, seed=1)], "left", extra=3)
    with torch.no_grad():
        weights = model(batch, attention_mask=mask, output_attentions=True).attentions
    for layer in weights:
        assert torch.equal((layer[0, :, 3:, 3:] > 0).all(0), expected)
        assert torch.equal((layer[1, :, 5:, 5:] > 0).all(0), expected[:-2, :-2])
        assert not (layer[0, :, 3:, :3] > 0).any()
        assert not (layer[1, :, 5:, :5] > 0).any()


@pytest.mark.parametrize("family", ["decoder", "encoder"])
@pytest.mark.parametrize("backend", ["sdpa", "flex_attention"])
@pytest.mark.parametrize("mixer", ["chunked", "dilated", "global_local"])
def test_sparse_attention_is_the_same_on_every_backend(mixer, backend, family):
    from tiny_models import uncompiled

    batch, mask = padded([tokens(LENGTH), tokens(LENGTH - 4, seed=1)], "left")
    expected, actual = (build(family, name, mixers=f"{mixer},full") for name in ("eager", backend))
    with torch.no_grad(), uncompiled():
        assert_close(
            actual(batch, attention_mask=mask).last_hidden_state[mask.bool()],
            expected(batch, attention_mask=mask).last_hidden_state[mask.bool()],
        )


@pytest.mark.parametrize("mixer", ["chunked", "dilated", "global_local"])
def test_documents_begin_their_own_pattern(mixer):
    model = build("decoder", mixers=mixer)
    first, second = tokens(5), tokens(9, seed=1)
    positions = torch.cat((torch.arange(5), torch.arange(9)))[None]
    with torch.no_grad():
        together = model(torch.cat((first, second))[None], position_ids=positions).last_hidden_state[0]
        assert_close(together[:5], model(first[None]).last_hidden_state[0])
        assert_close(together[5:], model(second[None]).last_hidden_state[0])


def test_random_blocks_change_with_the_seed_and_link_both_ways():
    def pattern(family, **options):
        model = build(
            family,
            mixers="global_local",
            sliding_window=1,
            position_type="none",
            mixer_options={"global_local": dict(global_positions=[], block_size=2, **options)},
        )
        with torch.no_grad():
            return model(tokens(1, 40), output_attentions=True).attentions[0][0, 0] > 0

    none, drawn, other = (
        pattern("decoder"),
        pattern("decoder", random_blocks=2),
        pattern("decoder", random_blocks=2, seed=1),
    )
    assert none.sum() == 40
    assert drawn.sum() > 100
    assert not torch.equal(drawn, other)
    both = pattern("encoder", random_blocks=2)
    assert torch.equal(both, both.T)
    assert (both & drawn).sum() == drawn.sum()


def test_sinks_take_weight_from_all_keys():
    model = build("decoder", attention_sinks=True, num_hidden_layers=1)
    layer = model.layers[0].mixer
    with torch.no_grad():
        first = model(tokens(2, 7), output_attentions=True)
        sums = first.attentions[0].sum(-1)
        assert (sums < 1).all()
        assert sums.amin() < 0.5
        query = layer.sinks.detach().clone()
        layer.sinks.fill_(-1e4)
        nothing = model(tokens(2, 7), output_attentions=True)
        assert_close(nothing.attentions[0].sum(-1), torch.ones_like(sums))
        # softmax with one more logit: w' = w * Z / (Z + exp(sink)), for the same scores
        ratio = first.attentions[0] / nothing.attentions[0].clamp(min=1e-30)
        rows = ratio.masked_fill(nothing.attentions[0] == 0, 0).amax(-1)
        assert_close(rows, sums)
        plain = build("decoder", num_hidden_layers=1)
        plain.load_state_dict(model.state_dict(), strict=False)
        assert_close(plain(tokens(2, 7)).last_hidden_state, nothing.last_hidden_state)
    assert query.abs().max() > 0.1


# ------------------------------------------------------------------------------------------------ linear family
def recurrence_inputs(length, decay=None, delta=False, documents=False, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    batch, heads, size, values = 2, 3, 5, 4
    inputs = dict(
        query=draw(batch, heads, length, size),
        key=draw(batch, heads, length, size),
        value=draw(batch, heads, length, values),
    )
    if decay:
        inputs["log_decay"] = -draw(batch, heads, length, 1 if decay == "head" else size).abs()
    if delta:
        inputs["key"] = nn.functional.normalize(inputs["key"], dim=-1)
        inputs["beta"] = draw(batch, heads, length, 1).sigmoid()
    if documents:
        begins = torch.rand(batch, length, generator=generator) < 0.3
        inputs["document"] = begins.long().cumsum(-1)
    inputs["state"] = draw(batch, heads, size, values)
    return inputs


@pytest.mark.parametrize("documents", [False, True], ids=["one", "packed"])
@pytest.mark.parametrize(
    ("decay", "delta"), [(None, False), ("head", False), ("feature", False), (None, True), ("head", True)]
)
@pytest.mark.parametrize(("length", "chunk_size"), [(1, 4), (2, 4), (7, 4), (8, 4), (17, 4), (17, 64), (37, 16)])
def test_chunks_equal_the_recurrence_token_by_token(length, chunk_size, decay, delta, documents):
    """Outputs, state and the gradients of everything."""
    inputs = recurrence_inputs(length, decay, delta, documents)
    results = []
    for form in (lambda **given: recurrence(**given, chunk_size=chunk_size), naive_recurrence):
        given = {name: value.clone().requires_grad_(value.is_floating_point()) for name, value in inputs.items()}
        outputs, state = form(**given)
        generator = torch.Generator().manual_seed(9)
        (outputs * torch.randn(outputs.shape, generator=generator, dtype=outputs.dtype)).sum().backward(
            retain_graph=True
        )
        (state * torch.randn(state.shape, generator=generator, dtype=state.dtype)).sum().backward()
        results.append([outputs, state, *(value.grad for value in given.values() if value.grad is not None)])
    assert len(results[0]) == 2 + len(inputs) - documents
    for actual, expected in zip(*results, strict=True):
        assert_close(actual.detach(), expected.detach(), 1e-10)


def test_a_strong_decay_overflows_nowhere():
    inputs = {name: value.float() for name, value in recurrence_inputs(64, "feature").items()}
    inputs["log_decay"] = inputs["log_decay"] * 100
    actual, expected = recurrence(**inputs), naive_recurrence(**inputs)
    for one, other in zip(actual, expected, strict=True):
        assert_close(one, other)


def test_the_delta_rule_takes_no_decay_by_feature():
    inputs = recurrence_inputs(4, "feature", delta=True)
    with pytest.raises(ValueError, match="one decay per head"):
        recurrence(**inputs)


def by_hand(mixer, states):
    """The five linear mixers from their papers, for one sequence, in float64, causal: *Shape:* `(length, hidden)`."""
    heads = mixer.heads

    def split(x):
        return x.unflatten(-1, (-1, mixer.head_dim))

    q, k, v = split(mixer.q_proj(states)), split(mixer.k_proj(states)), split(mixer.v_proj(states))
    k, v = (x.repeat_interleave(heads // x.shape[1], dim=1) for x in (k, v))
    kind = type(mixer).__name__
    outputs = []
    for h in range(heads):
        memory = torch.zeros(mixer.head_dim, mixer.head_dim, dtype=states.dtype)
        norm = torch.zeros(mixer.head_dim, dtype=states.dtype)
        for t in range(len(states)):
            query, key, value = q[t, h], k[t, h], v[t, h]
            if kind == "LinearMixer":
                query, key = nn.functional.elu(query) + 1, nn.functional.elu(key) + 1
                memory, norm = memory + torch.outer(key, value), norm + key
                outputs.append((query @ memory) / (query @ norm + 1e-6))
                continue
            if kind == "RetentionMixer":
                memory = memory * (1 - 2.0 ** (-5 - h)) + torch.outer(key, value)
            elif kind == "GatedLinearMixer":
                gate = split(mixer.decay_up_proj(mixer.decay_down_proj(states[t])))[h].sigmoid() ** (1 / 16)
                memory = gate[:, None] * memory + torch.outer(key, value)
            else:
                query, key = (nn.functional.silu(x) / nn.functional.silu(x).norm() for x in (query, key))
                beta = mixer.beta_proj(states[t])[h].sigmoid()
                if kind == "GatedDeltaMixer":
                    step = nn.functional.softplus(mixer.decay_proj(states[t])[h] + mixer.step_bias[h])
                    memory = memory * torch.exp(-mixer.rate_bias[h].exp() * step)
                memory = memory - beta * torch.outer(key, key @ memory) + beta * torch.outer(key, value)
            out = query @ memory * mixer.head_dim**-0.5
            out = out * torch.rsqrt(out.pow(2).mean() + mixer.out_norm.eps) * mixer.out_norm.weight
            if mixer.g_proj is not None:
                out = out * nn.functional.silu(split(mixer.g_proj(states[t]))[h])
            outputs.append(out)
    return mixer.o_proj(torch.stack(outputs).view(heads, len(states), -1).transpose(0, 1).flatten(1))


@pytest.mark.parametrize("mixer", LINEAR)
def test_a_linear_mixer_is_what_its_paper_says(mixer):
    layer = build("decoder", mixers=mixer).layers[1].mixer
    states = torch.randn(1, 70, 24, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert_close(layer(states)[0][0], by_hand(copy.deepcopy(layer).double(), states[0].double()).float())


@pytest.mark.parametrize("mixer", LINEAR)
def test_a_bidirectional_linear_mixer_sees_both_sides(mixer):
    """Sums over all positions, each once; the delta rule is the sum of its two directions."""
    config = dict(mixers=mixer, num_hidden_layers=1)
    both, forwards = build("encoder", **config).layers[0].mixer, build("decoder", **config).layers[0].mixer
    forwards.load_state_dict(both.state_dict())
    states = torch.randn(1, 11, 24, generator=torch.Generator().manual_seed(0))
    seen = {}

    def record(name, layer, given):
        layer.finish = lambda outputs, hidden: (
            seen.setdefault(name, outputs) if outputs.shape[-1] == 8 else (seen.setdefault(name, outputs)[..., :-1])
        )
        with torch.no_grad():
            layer(given)

    record("both", both, states)
    record("there", forwards, states)
    back = copy.deepcopy(forwards)
    record("back", back, states.flip(1))
    expected = seen["there"] + seen["back"].flip(1)
    if "delta" not in mixer:
        query, key, value = (
            part(states).unflatten(-1, (-1, 8)).transpose(1, 2) for part in (both.q_proj, both.k_proj, both.v_proj)
        )
        key, value = (part.repeat_interleave(3, dim=1) for part in (key, value))
        query, key, value = both.features(query, key, value)
        expected = expected - ((query * key).sum(-1, keepdim=True) * value).transpose(1, 2).detach()
    assert_close(seen["both"], expected)


# ---------------------------------------------------------------------------------------------------- recurrent
TORCH = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


@pytest.mark.parametrize("family", ["decoder", "encoder"])
@pytest.mark.parametrize("mixer", RECURRENT)
def test_a_recurrent_mixer_is_the_module_of_torch(mixer, family):
    """With the same names of parameters; forward and gradients; padded rows and documents are sequences alone."""
    layer = build(family, mixers=mixer).layers[0].mixer
    both = family == "encoder"
    peer = TORCH[mixer](24, 12 if both else 24, bidirectional=both, batch_first=True)
    peer.load_state_dict(layer.state_dict())
    states = torch.randn(3, 9, 24, generator=torch.Generator().manual_seed(0))
    outputs, expected = layer(states)[0], peer(states)[0]
    assert_close(outputs, expected)
    for module, out in ((layer, outputs), (peer, expected)):
        (out * torch.arange(9)[None, :, None]).sum().backward()
        del module
    for name, parameter in layer.named_parameters():
        assert_close(parameter.grad, dict(peer.named_parameters())[name].grad)


def test_other_nonlinearity():
    layer = build("decoder", mixers="rnn", mixer_options={"rnn": {"nonlinearity": "relu"}}).layers[0].mixer
    peer = nn.RNN(24, 24, batch_first=True, nonlinearity="relu")
    peer.load_state_dict(layer.state_dict())
    states = torch.randn(2, 5, 24)
    assert_close(layer(states)[0], peer(states)[0])
    cache = DynamicCache(config=config_of("decoder", mixers="rnn"))
    steps = [layer(states[:, t : t + 1], cache=cache)[0] for t in range(5)]
    assert_close(torch.cat(steps, dim=1), peer(states)[0])


@pytest.mark.parametrize("mixer", RECURRENT)
def test_without_ffn_norm_residual_and_positions_it_is_the_classic_language_model(mixer):
    config = hf_tx.TxDecoderConfig(
        vocab_size=61, hidden_size=24, num_hidden_layers=3, num_attention_heads=1, mixers=mixer, ffn_type="none",
        norm_type="none", residual=False, tie_word_embeddings=False, lm_head_bias=True,
    )  # fmt: skip
    assert config.position_type == "none"
    model = enlarge(hf_tx.TxDecoderForCausalLM(config)).eval()
    embed, out = nn.Embedding(61, 24), nn.Linear(24, 61)
    peer = TORCH[mixer](24, 24, num_layers=3, batch_first=True)
    embed.load_state_dict(model.model.embed_tokens.state_dict())
    out.load_state_dict(model.lm_head.state_dict())
    peer.load_state_dict(
        {
            name.replace("l0", f"l{idx}"): value
            for idx, layer in enumerate(model.model.layers)
            for name, value in layer.mixer.state_dict().items()
        }
    )
    batch = tokens(2, 11)
    with torch.no_grad():
        assert_close(model(batch).logits, out(peer(embed(batch))[0]))
    names = {name for name, _ in model.named_parameters()}
    assert len(names) == 1 + 3 * 4 + 2, names  # embeddings, three layers, head: nothing else


def test_a_chunk_of_padding_leaves_the_state():
    model = build("decoder", mixers="lstm,gru,rnn,gated_delta,linear", num_hidden_layers=5)
    batch, mask = padded([tokens(9), tokens(3, seed=1)], "left")
    with torch.no_grad():
        expected = model(batch, attention_mask=mask).last_hidden_state
        first = model(batch[:, :4], attention_mask=mask[:, :4], use_cache=True)
        second = model(batch[:, 4:], attention_mask=mask, cache=first.cache)
    assert_close(second.last_hidden_state[0], expected[0, 4:])
    assert_close(second.last_hidden_state[1, 2:], expected[1, 6:])


def test_a_direction_cannot_be_changed():
    model = build("decoder", mixers="lstm")
    with pytest.raises(ValueError, match="cannot change its direction"):
        model(tokens(1, 4), is_causal=False)


def test_torch_compile_of_a_kernel_is_refused_and_of_a_step_is_not():
    layer = build("decoder", mixers="lstm").layers[0].mixer.eval()
    states = torch.randn(2, 4, 24)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    with pytest.raises(Exception, match="does not support"):
        compiled(states)
    with torch.no_grad():
        assert_close(compiled(states[:, :1])[0], layer(states[:, :1])[0])
    assert not build("decoder", mixers="lstm,full")._can_compile_fullgraph
    assert build("decoder", mixers="gated_delta,full")._can_compile_fullgraph


# ------------------------------------------------------------------------------------------------- cache and rules
@pytest.mark.parametrize("mixers", [*STATEFUL, "gated_delta,full", "sliding,lstm"])
def test_every_way_to_generate_gives_the_same(mixers):
    model = build("decoder", "sdpa", "lm", mixers=mixers)
    batch, mask = padded([tokens(9), tokens(5, seed=1)], "left")
    settings = dict(attention_mask=mask, max_new_tokens=5, do_sample=False, eos_token_id=None)
    for beams in (1, 3):
        expected = model.generate(batch, num_beams=beams, use_cache=False, **settings)
        for more in ({}, dict(cache_implementation="static"), dict(prefill_chunk_size=1), dict(prefill_chunk_size=4)):
            if more and beams > 1 and "prefill_chunk_size" in more:
                continue
            assert torch.equal(model.generate(batch, num_beams=beams, **more, **settings), expected), more


@pytest.mark.parametrize("mixers", ["gated_delta", "lstm", "lstm,full"])
def test_assisted_decoding_is_refused_before_it_begins(mixers):
    model = build("decoder", "sdpa", "lm", mixers=mixers)
    with pytest.raises(ValueError, match="stateful"):
        model.generate(tokens(1, 6), assistant_model=build("decoder", "sdpa", "lm"), max_new_tokens=4)


@pytest.mark.parametrize("mixers", ["gated_delta,full", "lstm"])
def test_a_state_is_small_and_can_be_reset(mixers):
    model = build("decoder", mixers=mixers)
    batch = tokens(2, 40)
    with torch.no_grad():
        cache = model(batch, use_cache=True).cache
        state = cache.layers[0].recurrent_states[0]
        assert state.numel() < 2 * 40 * 24
        assert cache.get_seq_length() == 40
        with pytest.raises(RuntimeError, match="cannot be cropped"):
            cache.layers[0].crop(-1)
        static = StaticCache(config=model.config, max_cache_len=44)
        first = model(batch, cache=static).last_hidden_state
        static.reset()
        cache.reset()
        assert static.get_seq_length() == 0 == cache.get_seq_length()
        assert_close(model(batch, cache=static).last_hidden_state, first)
        assert_close(model(batch, cache=cache).last_hidden_state, first)


def test_gradients_flow_through_a_dynamic_state():
    """Truncated backpropagation may go back as far as the caller keeps the cache."""
    model = build("decoder", mixers="lstm,gated_delta")
    embeds = torch.randn(1, 6, 24, requires_grad=True)
    whole = model(inputs_embeds=embeds).last_hidden_state[0, -1].sum()
    (expected,) = torch.autograd.grad(whole, embeds)
    first = model(inputs_embeds=embeds[:, :3], use_cache=True)
    second = model(inputs_embeds=embeds[:, 3:], cache=first.cache).last_hidden_state[0, -1].sum()
    (actual,) = torch.autograd.grad(second, embeds)
    assert_close(actual, expected)
    assert_differ(expected[:, :3], torch.zeros(1, 3, 24), 1e-6)


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        (dict(mixers="lstm", position_type="rope"), ("position_type = 'rope'", "no layer is attention", "lstm")),
        (dict(mixers="delta", position_type="alibi"), ("position_type = 'alibi'", "no layer is attention")),
        (
            dict(mixers="delta", attn_logit_softcapping=3.0),
            ("attn_logit_softcapping = 3.0", "no layer has attention scores"),
        ),
        (
            dict(mixers="delta", per_layer_config={1: {"attention_scale": 0.3}}),
            ("attention_scale = 0.3", "no layer has attention scores"),
        ),
        (dict(mixers="gru", attention_sinks=True), ("attention_sinks = True", "no layer has attention scores")),
        (dict(mixers="gru", qk_norm=True), ("qk_norm = True", "no layer has attention scores")),
        (dict(mixers="dilated"), ("sliding_window", "must be set", "dilated")),
        (dict(mixers="chunked", mixer_options={"chunked": {"chunk_size": 0}}), ("chunk_size = 0", "at least 1")),
        (dict(mixers="chunked", mixer_options={"chunked": {"chunk_sise": 4}}), ("chunk_sise", "chunk_size")),
        (dict(mixers="full", mixer_options={"chunked": {"chunk_size": 4}}), ("chunked", "used by no layer")),
        (dict(mixers="rnn", mixer_options={"rnn": {"nonlinearity": "gelu"}}), ("nonlinearity = 'gelu'", "tanh")),
        (dict(mixers="lstm", mixer_options={"lstm": {"size": 4}}), ("lstm", "has no options")),
        (
            dict(mixers="global_local", sliding_window=2, mixer_options={"global_local": {"global_positions": [-1]}}),
            ("global_positions = [-1]",),
        ),
        (dict(mixers="gated_linear", mixer_options={"gated_linear": {"gate_rank": 0}}), ("gate_rank = 0",)),
        (
            dict(mixers="gated_linear", mixer_options={"gated_linear": {"gate_rank": 2.5}}),
            ("gate_rank = 2.5", "integer"),
        ),
        (
            dict(mixers="gated_linear", mixer_options={"gated_linear": {"gate_divisor": 0}}),
            ("gate_divisor = 0", "above 0"),
        ),
        (dict(residual=False, residual_multiplier=0.5), ("residual_multiplier = 0.5", "residual = True")),
        (dict(norm_type="none", norm_position="post"), ("norm_position = 'post'", "norm_type")),
        (dict(norm_type="none", qk_norm=True), ("qk_norm = True", "norm_type")),
    ],
    ids=str,
)
def test_rules_of_mixers(settings, parts):
    with pytest.raises((ValueError, StrictDataclassError)) as error:
        hf_tx.TxDecoderConfig(num_hidden_layers=2, hidden_size=16, num_attention_heads=2, **settings)
    for part in parts:
        assert part in str(error.value)


def test_only_attention_takes_the_positions_of_scores():
    config = config_of("decoder", mixers="lstm,full", position_type="alibi")
    assert config.layer_positions == ["none", "alibi"]
    assert config_of("decoder", mixers="lstm,full").position_type == "rope"
    assert config_of("decoder", mixers="lstm,full", position_type="learned").layer_positions == ["learned"] * 2


def test_what_has_no_scores_takes_no_mask_of_them_and_gives_no_weights():
    model = build("decoder", mixers="delta")
    with pytest.raises(ValueError, match="is not attention, so attention_mask"):
        model(tokens(1, 4), attention_mask=torch.ones(1, 1, 4, 4, dtype=torch.bool))
    assert model(tokens(1, 4), output_attentions=True).attentions == ()
    hybrid = build("decoder", mixers="delta,full")
    assert len(hybrid(tokens(1, 4), output_attentions=True).attentions) == 1


@pytest.mark.parametrize("mixers", ["lstm", "gated_delta,global_local"])
def test_mixers_can_be_changed_on_loading(mixers, tmp_path):
    build("decoder", head="lm").save_pretrained(tmp_path)
    window = dict(sliding_window=3) if "global_local" in mixers else {}
    model = hf_tx.TxDecoderForCausalLM.from_pretrained(tmp_path, mixers=mixers, **window)
    assert model.config.mixers == mixers.split(",") * (2 // len(mixers.split(",")))
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
    model.save_pretrained(tmp_path / "again")
    again = hf_tx.TxDecoderForCausalLM.from_pretrained(tmp_path / "again")
    with torch.no_grad():
        assert_close(again(tokens(1, 6)).logits, model.eval()(tokens(1, 6)).logits)


@pytest.mark.parametrize("mixers", STATEFUL)
def test_checkpointed_training_has_the_same_gradients(mixers):
    gradients = []
    for checkpointing in (False, True):
        model = build("decoder", head="lm", mixers=mixers).train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        batch, mask = padded([tokens(9), tokens(5, seed=1)], "right")
        model(batch, attention_mask=mask, labels=batch).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        assert_close(one, other)


# ---------------------------------------------------------------------------------------------- cross-attention
@pytest.mark.parametrize("kind", ["additive", "multiplicative"])
def test_classic_attention_to_the_encoder_is_what_its_paper_says(kind):
    sizes = dict(vocab_size=61, num_hidden_layers=1, num_attention_heads=1)
    classic = dict(ffn_type="none", norm_type="none", residual=False)
    config = hf_tx.TxEncoderDecoderConfig(
        encoder=dict(**sizes, hidden_size=16, mixers="gru", type_vocab_size=0),
        decoder=dict(
            **sizes, **classic, hidden_size=24, mixers="lstm", cross_mixer=kind, cross_attention_hidden_size=16
        ),
        pad_token_id=0,
        decoder_start_token_id=0,
        share_embeddings=False,
    )
    model = enlarge(hf_tx.TxEncoderDecoderModel(config)).eval()
    source, target = tokens(2, 7), tokens(2, 5, seed=1)
    mask = torch.ones_like(source)
    mask[1, 4:] = 0
    with torch.no_grad():
        outputs = model(source, attention_mask=mask, decoder_input_ids=target, output_attentions=True)
        layer = model.decoder.layers[0]
        memory = outputs.encoder_last_hidden_state
        queries = layer.mixer(model.decoder.embed_tokens(target))[0]
        cross = layer.cross_mixer
        for b in range(2):
            real = memory[b, : 7 if b == 0 else 4]
            for t in range(5):
                state = queries[b, t]
                if kind == "additive":
                    scores = torch.stack(
                        [cross.score_proj(torch.tanh(cross.q_proj(state) + cross.k_proj(item)))[0] for item in real]
                    )
                else:
                    scores = torch.stack([state @ cross.k_proj(item) for item in real])
                weights = scores.softmax(0)
                context = (weights[:, None] * real).sum(0)
                expected = torch.tanh(cross.o_proj(torch.cat((context, state))))
                assert_close(outputs.last_hidden_state[b, t], expected)
                assert_close(outputs.cross_attentions[0][b, 0, t, : len(real)], weights)
    assert (outputs.cross_attentions[0][1, 0, :, 4:] == 0).all()


@pytest.mark.parametrize("kind", ["additive", "multiplicative"])
@pytest.mark.parametrize("mixers", ["lstm", "full", "gated_delta,full", "rnn,full,gru"])
def test_classic_seq2seq_generates_with_every_cache(mixers, kind):
    config = config_of("encoder_decoder", mixers=mixers, attn_implementation="sdpa")
    config.decoder.cross_mixer = kind
    if MIXERS.get(config.decoder.mixers[0]).takes_start:
        config.decoder.initial_state = "encoder"
    model = enlarge(hf_tx.TxEncoderDecoderForConditionalGeneration(config)).eval()
    source, mask = padded([tokens(9), tokens(5, seed=1)], "right")
    settings = dict(attention_mask=mask, max_new_tokens=6, do_sample=False, eos_token_id=None)
    for beams in (1, 3):
        expected = model.generate(source, num_beams=beams, use_cache=False, **settings)
        assert torch.equal(model.generate(source, num_beams=beams, **settings), expected)
        static = model.generate(source, num_beams=beams, cache_implementation="static", **settings)
        assert torch.equal(static, expected)
    alone = model.generate(tokens(5, seed=1)[None], **{**settings, "attention_mask": None})
    assert torch.equal(alone[0], model.generate(source, **settings)[1])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("mixer", RECURRENT)
def test_the_first_state_is_a_map_of_the_encoders(mixer, side):
    """In a model whose decoder reads one token, against torch's own module, with each source on its own."""
    config = config_of("encoder_decoder", mixers=mixer, num_hidden_layers=1, ffn_type="none", norm_type="none")
    config.decoder.initial_state, config.decoder.residual, config.decoder.num_hidden_layers = "encoder", False, 1
    model = enlarge(hf_tx.TxEncoderDecoderModel(config)).eval()
    layer = model.decoder.layers[0]
    seen = []
    layer.mixer.register_forward_hook(lambda module, args, outputs: seen.append(outputs[0]))
    sources = [tokens(9), tokens(5, seed=1)]
    batch, mask = padded(sources, side)
    target = tokens(2, 4, seed=2)
    with torch.no_grad():
        model(batch, attention_mask=mask, decoder_input_ids=target)
        size = layer.mixer.size
        module = getattr(torch.nn, mixer.upper())(size, size, batch_first=True)
        module.load_state_dict({k: v for k, v in layer.mixer.state_dict().items() if not k.startswith("start_proj")})
        for row, source in enumerate(sources):
            first = model.encoder(source[None]).last_hidden_state[0, 0]
            start = torch.tanh(layer.mixer.start_proj(first)).view(-1, 1, 1, size)
            embedded = model.decoder.embed_tokens(target[row : row + 1])
            expected, _ = module(embedded, tuple(start) if mixer == "lstm" else start[0])
            assert_close(seen[0][row], expected[0])


def test_gradients_reach_the_encoder_through_the_first_state_also_when_recomputed():
    gradients = []
    for checkpointing in (False, dict(use_reentrant=False), dict(use_reentrant=True)):
        config = config_of("encoder_decoder", mixers="lstm")
        config.decoder.initial_state = "encoder"
        model = enlarge(hf_tx.TxEncoderDecoderForConditionalGeneration(config)).train()
        if checkpointing:
            model.gradient_checkpointing_enable(checkpointing)
        for layer in model.model.decoder.layers:
            layer.cross_mixer.o_proj.weight.data.zero_()
        model(tokens(2, 7), labels=tokens(2, 5, seed=1)).loss.backward()
        gradients.append({name: each.grad for name, each in model.model.encoder.layers.named_parameters()})
    # The last layer's forward half has read one token there, so that its recurrent weights have no part.
    assert all(grad.abs().max() > 0 for name, grad in gradients[0].items() if name != "1.mixer.weight_hh_l0")
    for other in gradients[1:]:
        for name, gradient in gradients[0].items():
            assert_close(other[name], gradient)


def test_a_first_state_from_nowhere_is_refused():
    with pytest.raises(
        StrictDataclassError, match="initial_state = 'encoder': no layer has a state to start: the mixers are f"
    ):
        hf_tx.TxDecoderConfig(mixers="full", initial_state="encoder")
    with pytest.raises(StrictDataclassError, match="initial_state = 'last': is unknown. Known: zero, encoder"):
        hf_tx.TxDecoderConfig(mixers="gru", initial_state="last")
    for changes in (dict(initial_state="encoder"), dict(cross_mixer="additive")):
        with pytest.raises(ValueError, match="needs an encoder, but this decoder has none"):
            hf_tx.TxDecoderForCausalLM(config_of("decoder", mixers="gru", **changes))
    config = config_of("encoder_decoder", mixers="gru")
    config.decoder.initial_state = "encoder"
    model = hf_tx.TxEncoderDecoderModel(config)
    mask = torch.ones(2, 1, 4, 7, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"initial_state = 'encoder' needs a mask .* not \(2, 1, 4, 7\)"):
        model.decoder(tokens(2, 4), encoder_hidden_states=torch.randn(2, 7, 24), encoder_attention_mask=mask)


# ------------------------------------------------------------------------------------------------- once wrong
@pytest.mark.parametrize("mixer", [*ATTENTION, *STATEFUL])
def test_pads_between_documents_move_nothing(mixer):
    model = build("decoder", "sdpa", mixers=mixer)
    first, second = tokens(5), tokens(7, seed=1)
    row, mask = torch.cat((first, tokens(3, seed=2), second))[None], torch.ones(1, 15, dtype=torch.long)
    mask[0, 5:8] = 0
    positions = torch.tensor([[0, 1, 2, 3, 4, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6]])
    with torch.no_grad():
        together = model(row, attention_mask=mask, position_ids=positions).last_hidden_state[0]
        assert_close(together[:5], model(first[None]).last_hidden_state[0])
        assert_close(together[8:], model(second[None]).last_hidden_state[0])


@pytest.mark.parametrize("family", ["decoder", "encoder"])
@pytest.mark.parametrize("mixer", STATEFUL)
def test_autocast_of_padded_rows(mixer, family):
    model = build(family, mixers=mixer)
    batch, mask = padded([tokens(9), tokens(5, seed=1)], "left")
    with torch.no_grad():
        expected = model(batch, attention_mask=mask).last_hidden_state[mask.bool()]
        with torch.autocast("cpu", torch.bfloat16):
            actual = model(batch, attention_mask=mask).last_hidden_state[mask.bool()]
    # bfloat16 rounds what a deep recurrence multiplies; what is wrong differs by all of it
    assert (actual.float() - expected).norm() < 0.2 * expected.norm()


def test_weights_of_a_layer_may_have_any_dtype():
    """Layers whose weights are packed integers, as of quantised models, take activations as they come."""
    seen = []

    class Packed(nn.Linear):
        def forward(self, states):
            seen.append(states.dtype)
            return nn.functional.linear(states, self.weight.float() / 32, self.bias)

    model = build("decoder", mixers=",".join(LINEAR), num_hidden_layers=5)
    expected = model(tokens(2, 9)).last_hidden_state
    for layer in model.layers:
        for module in layer.mixer.children():
            if isinstance(module, nn.Linear):
                module.__class__ = Packed
                module.weight = nn.Parameter((module.weight * 32).round().to(torch.int8), requires_grad=False)
    actual = model(tokens(2, 9)).last_hidden_state
    assert set(seen) == {torch.float32}
    assert (actual - expected).norm() < 0.3 * expected.norm()


def test_a_mask_of_other_rows_and_an_empty_input_are_refused():
    model = build("decoder", mixers="lstm,full")
    with pytest.raises(ValueError, match="attention_mask has 1 rows, but the input has 2"):
        model(tokens(2, 4), attention_mask=torch.ones(1, 4, dtype=torch.long))
    with pytest.raises(ValueError, match="no tokens"):
        model(tokens(2, 4)[:, :0])
    with pytest.raises(ValueError, match="no rows"):
        model(tokens(2, 4)[:0])


def test_options_of_mixers_that_are_gone_are_left_behind(tmp_path):
    build("decoder", head="lm", mixers="chunked,gated_linear").save_pretrained(tmp_path)
    config = hf_tx.TxDecoderConfig.from_pretrained(tmp_path, mixers="full")
    assert config.mixer_options is None
    config = hf_tx.TxDecoderConfig.from_pretrained(tmp_path, mixers="full,chunked")
    assert config.mixer_options == {"chunked": {"chunk_size": 3}}


@pytest.mark.parametrize("decay", ["head", "feature"])
def test_a_very_strong_decay_costs_no_digits(decay):
    inputs = recurrence_inputs(64, decay)
    inputs["log_decay"] = torch.where(inputs["log_decay"] > 1, -1e5, inputs["log_decay"] / 10)
    inputs["log_decay"][:, :, ::3] = -1e5
    expected = naive_recurrence(**inputs)
    actual = recurrence(**{name: value.float() for name, value in inputs.items()})
    for one, other in zip(actual, expected, strict=True):
        assert_close(one.double(), other, 1e-4)


@pytest.mark.parametrize(
    ("mixer", "backend"), [*((mixer, "sdpa") for mixer in MIXERS), ("sliding", "tiled"), ("sliding", "banded")]
)
def test_functional_gradients_are_those_of_the_backward_pass(mixer, backend):
    model, batch = build("decoder", backend, mixers=mixer), tokens(2, 20)

    def loss(parameters):
        output = torch.func.functional_call(model, parameters, (batch,), dict(use_cache=False))
        return output.last_hidden_state.square().sum()

    actual = torch.func.grad(loss)({name: weight.detach() for name, weight in model.named_parameters()})
    loss(dict(model.named_parameters())).backward()
    for name, weight in model.named_parameters():
        assert_close(actual[name], weight.grad)
