# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Linear attention: mixers whose state is a matrix per head, so that time is linear in the length and decoding needs
constant memory. Position schemes that work on scores do not affect them; the order is in their recurrence."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.cache_utils import Cache
from transformers.utils.generic import maybe_autocast

from .attention import repeat_kv
from .documents import Segments
from .linear_kernels import fastest_recurrence
from .mixer import MIXERS, Mixer, check_integer
from .norms import RMSNorm
from .recurrent_cache import RECURRENT_LAYER_TYPE, read_state, write_state


class LinearMixer(nn.Module):
    """Kernelised linear attention (Katharopoulos et al., 2020, https://huggingface.co/papers/2006.16236): the softmax
    is replaced by a product of positive features,

        o_i = sum_j phi(q_i) . phi(k_j) v_j / sum_j phi(q_i) . phi(k_j),        phi(x) = elu(x) + 1,

    over the positions at or before `i`, or over all in a bidirectional layer. It is also the base of the mixers that
    give old keys less weight, which differ in features, decay and output.

    Args:
        config: config of this layer.
        layer_idx: index of the layer, under which the cache keeps its state.
        backend_config: the model's config.
        is_causal: whether a position sees only those at or before it.
    """

    def __init__(self, config: Any, layer_idx: int, backend_config: Any, is_causal: bool, options: Any = None) -> None:
        super().__init__()
        self.layer_idx = layer_idx
        self.is_causal = is_causal
        self.options = options
        self.heads = config.num_attention_heads
        self.head_dim = config.head_dim
        self.groups = self.heads // config.num_key_value_heads
        features, keys = self.heads * self.head_dim, config.num_key_value_heads * self.head_dim
        self.q_proj = nn.Linear(config.hidden_size, features, bias=config.attention_bias)
        self.k_proj = nn.Linear(config.hidden_size, keys, bias=config.attention_bias)
        self.v_proj = nn.Linear(config.hidden_size, keys, bias=config.attention_bias)
        self.o_proj = nn.Linear(features, config.hidden_size, bias=config.attention_out_bias)

    def _heads(self, states: torch.Tensor) -> torch.Tensor:
        """Return `(batch, length, heads * size)` as `(batch, heads, length, size)`, in float32."""
        return states.unflatten(-1, (-1, self.head_dim)).transpose(1, 2).float()

    def features(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return what enters the recurrence. *Shape:* each `(batch, heads, length, size)`."""
        # The last column of the values counts the weights, for the denominator.
        ones = value.new_ones(*value.shape[:-1], 1)
        return nn.functional.elu(query) + 1, nn.functional.elu(key) + 1, torch.cat((value, ones), dim=-1)

    def gates(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Return the logarithm of the decay and the strength of the delta rule, or None for either. *Shape:* `(batch
        or 1, heads, length, 1 or head_dim)` and `(batch, heads, length, 1)`, float32."""
        return None, None

    def finish(self, outputs: torch.Tensor, hidden_states: torch.Tensor) -> torch.Tensor:
        """Return the outputs of the heads. *Shape:* both `(batch, length, heads, size)`."""
        return outputs[..., :-1] / (outputs[..., -1:] + 1e-6)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: Segments | None = None,
        cache: Cache | None = None,
        is_causal: bool | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None]:
        """Mix the values of the visible positions.

        Args:
            hidden_states: *Shape:* `(batch, length, hidden_size)`, floating point.
            attention_mask: padding and borders of documents, or None when there are none.
            cache: the states of earlier positions; updated in place.
            is_causal: whether a position sees only those at or before it in this call. Default: as the layer was
                built.
            **kwargs: what attention takes.

        Returns:
            *Shape:* `(batch, length, hidden_size)`, and None: there are no weights.
        """
        segments = attention_mask or Segments()
        query, value = self._heads(self.q_proj(hidden_states)), self._heads(self.v_proj(hidden_states))
        key = self._heads(self.k_proj(hidden_states))
        query, key, value = self.features(query, repeat_kv(key, self.groups), repeat_kv(value, self.groups))
        log_decay, beta = self.gates(hidden_states)
        with maybe_autocast(hidden_states.device.type, enabled=False):
            if segments.real is not None:
                # Padding tokens, whatever their values, do not reach the state.
                real = segments.real[:, None, :, None]
                key, value = key.masked_fill(~real, 0.0), value.masked_fill(~real, 0.0)
                log_decay = None if log_decay is None else torch.where(real, log_decay, 0.0)
                beta = None if beta is None else torch.where(real, beta, 0.0)
            inputs = (query, key, value, log_decay, beta)
            before, dtype = read_state(cache, self.layer_idx), hidden_states.dtype
            outputs, state = fastest_recurrence(*inputs, segments.document, before, dtype)
            if not (self.is_causal if is_causal is None else is_causal):
                outputs = outputs + self._backwards(*inputs, segments.document, dtype)
            write_state(cache, self.layer_idx, state, hidden_states.shape[1])
        outputs = self.finish(outputs.transpose(1, 2), hidden_states)
        return self.o_proj(outputs.flatten(2).to(hidden_states.dtype)), None

    def _backwards(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        log_decay: torch.Tensor | None,
        beta: torch.Tensor | None,
        document: torch.Tensor | None,
        dtype: torch.dtype,
    ) -> torch.Tensor:
        """Return the part of the later positions. Sums count a position itself once; the delta rule, which has no
        such term, runs in both directions."""
        inputs = [None if part is None else part.flip(2) for part in (query, key, value, log_decay, beta)]
        inputs.append(None if document is None else document.flip(1))
        outputs, _ = fastest_recurrence(*inputs, state=None, dtype=dtype)  # type: ignore[arg-type]
        outputs = outputs.flip(2)
        return outputs if beta is not None else outputs - (query * key).sum(-1, keepdim=True) * value


class _GatedOutput(LinearMixer):
    """The output that the other mixers share: each head is normalised, and a gate chooses from it."""

    output_gate = True

    def __init__(self, config: Any, layer_idx: int, backend_config: Any, is_causal: bool, options: Any = None) -> None:
        super().__init__(config, layer_idx, backend_config, is_causal, options)
        self.out_norm = RMSNorm(self.head_dim, eps=config.norm_eps)
        size = self.heads * self.head_dim
        self.g_proj = nn.Linear(config.hidden_size, size, bias=False) if self.output_gate else None

    def features(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return query * self.head_dim**-0.5, key, value

    def finish(self, outputs: torch.Tensor, hidden_states: torch.Tensor) -> torch.Tensor:
        outputs = self.out_norm(outputs)
        if self.g_proj is None:
            return outputs
        gate = self.g_proj(hidden_states).float()
        return outputs * nn.functional.silu(gate).unflatten(-1, (self.heads, self.head_dim))


class RetentionMixer(_GatedOutput):
    """Retention (Sun et al., 2023, https://huggingface.co/papers/2307.08621): head `h` forgets by the constant factor
    `1 - 2 ** (-5 - h)` a token. In a bidirectional layer the weight falls with the distance on both sides."""

    def gates(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        heads = torch.arange(self.heads, device=hidden_states.device, dtype=torch.float32)
        decay = torch.log1p(-torch.exp2(-5.0 - heads))
        return decay[None, :, None, None].expand(1, -1, hidden_states.shape[1], 1), None


@dataclass(frozen=True)
class GatedLinearOptions:
    """Options of `gated_linear`.

    Args:
        gate_rank: features between the two projections of the gate.
        gate_divisor: the logarithm of the decay is divided by it, so that memory begins long.
    """

    gate_rank: int = 16
    gate_divisor: float = 16.0

    def __post_init__(self) -> None:
        check_integer(self, "gate_rank", 1)
        divisor = self.gate_divisor
        if isinstance(divisor, bool) or not isinstance(divisor, int | float) or not 0 < divisor < math.inf:
            raise ValueError(f"gate_divisor = {divisor!r}: must be a number above 0.")


class GatedLinearMixer(_GatedOutput):
    """Gated linear attention (Yang et al., 2023, https://huggingface.co/papers/2312.06635): every feature of the key
    decays by a factor that depends on the token."""

    def __init__(self, config: Any, layer_idx: int, backend_config: Any, is_causal: bool, options: Any = None) -> None:
        super().__init__(config, layer_idx, backend_config, is_causal, options)
        self.decay_down_proj = nn.Linear(config.hidden_size, self.options.gate_rank, bias=False)
        self.decay_up_proj = nn.Linear(self.options.gate_rank, self.heads * self.head_dim)

    def gates(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        states = self.decay_up_proj(self.decay_down_proj(hidden_states))
        return nn.functional.logsigmoid(self._heads(states)) / self.options.gate_divisor, None


class DeltaMixer(_GatedOutput):
    """The delta rule (Schlag et al., 2021, https://huggingface.co/papers/2102.11174; in chunks: Yang et al., 2024,
    https://huggingface.co/papers/2406.06484): a token replaces what the state holds under its key, as far as
    `beta` says. Keys and queries are normalised, after the activation of the paper."""

    output_gate = False

    def __init__(self, config: Any, layer_idx: int, backend_config: Any, is_causal: bool, options: Any = None) -> None:
        super().__init__(config, layer_idx, backend_config, is_causal, options)
        self.beta_proj = nn.Linear(config.hidden_size, self.heads, bias=False)

    def features(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        act = nn.functional.silu
        query, key = (nn.functional.normalize(act(states), dim=-1, eps=1e-6) for states in (query, key))
        return query * self.head_dim**-0.5, key, value

    def _per_head(self, projection: nn.Linear, hidden_states: torch.Tensor) -> torch.Tensor:
        return projection(hidden_states).float().transpose(1, 2)[..., None]

    def gates(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        return None, self._per_head(self.beta_proj, hidden_states).sigmoid()


class GatedDeltaMixer(DeltaMixer):
    """The gated delta rule (Yang et al., 2024, https://huggingface.co/papers/2412.06464): the state also decays, by a
    factor of every head that depends on the token."""

    output_gate = True

    def __init__(self, config: Any, layer_idx: int, backend_config: Any, is_causal: bool, options: Any = None) -> None:
        super().__init__(config, layer_idx, backend_config, is_causal, options)
        self.decay_proj = nn.Linear(config.hidden_size, self.heads, bias=False)
        # Named as what they are, biases of a gate, so that no optimizer decays them.
        self.rate_bias = nn.Parameter(torch.empty(self.heads))
        self.step_bias = nn.Parameter(torch.empty(self.heads))

    def init_parameters(self) -> None:
        """Draw the rates and the steps of the decay as the paper does (from Mamba 2)."""
        init.copy_(self.rate_bias, torch.empty(self.heads).uniform_(1, 16).log())
        step = torch.empty(self.heads).uniform_(math.log(1e-3), math.log(1e-1)).exp()
        init.copy_(self.step_bias, step + torch.log(-torch.expm1(-step)))  # the inverse of softplus

    def gates(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        _, beta = super().gates(hidden_states)
        step = self._per_head(self.decay_proj, hidden_states) + self.step_bias.float()[:, None, None]
        return -self.rate_bias.float().exp()[:, None, None] * nn.functional.softplus(step), beta


def _register(name: str, module: Callable[..., nn.Module], options: type | None = None) -> None:
    targets = ("q_proj", "k_proj", "v_proj", "o_proj")
    mixer = Mixer(module, RECURRENT_LAYER_TYPE, "linear", is_attention=False, options=options, adapter_targets=targets)
    MIXERS.register(name, mixer)


_register("linear", LinearMixer)
_register("retention", RetentionMixer)
_register("gated_linear", GatedLinearMixer, GatedLinearOptions)
_register("delta", DeltaMixer)
_register("gated_delta", GatedDeltaMixer)
