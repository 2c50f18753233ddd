# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Recurrent networks as mixers: Elman networks, LSTM and GRU, with the kernels of PyTorch."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import initialization as init
from transformers.cache_utils import Cache

from .documents import Segments
from .mixer import MIXERS, Mixer
from .recurrent_cache import RECURRENT_LAYER_TYPE, read_state, write_state


class RecurrentMixer(nn.Module):
    """Base of the recurrent mixers: one layer of `torch.nn.RNN`, `LSTM` or `GRU`, with the parameters of that module
    under its names. A bidirectional layer has two halves of `hidden_size / 2` features.

    Every document, or the real part of a row, is a sequence of its own for the kernel, so that neither padding nor
    another document reaches a state. A single step is written out here, and can be compiled; the kernels cannot.

    The first state is zero, or with `initial_state="encoder"` that of Bahdanau et al., 2014, appendix A.2.2
    (https://huggingface.co/papers/1409.0473), `tanh(W h)`: `h` is the encoder's state of the first token, where the
    backward half of a recurrent encoder has read the whole source.

    Args:
        config: config of this layer.
        layer_idx: index of the layer, under which the cache keeps its state.
        backend_config: the model's config.
        is_causal: whether it runs in one direction only.
    """

    #: Rows of the weights for every feature, and how many vectors the state has.
    gates = 1
    states = 1

    def __init__(self, config: Any, layer_idx: int, backend_config: Any, is_causal: bool, options: Any = None) -> None:
        super().__init__()
        self.layer_idx = layer_idx
        self.bidirectional = not is_causal
        self.options = options
        if self.bidirectional and config.hidden_size % 2:
            raise ValueError(
                f"hidden_size = {config.hidden_size}: must be even for a bidirectional {config.mixers[layer_idx]!r}."
            )
        self.size = config.hidden_size // 2 if self.bidirectional else config.hidden_size
        rows = self.gates * self.size
        for suffix in ("", "_reverse") if self.bidirectional else ("",):
            self.register_parameter(f"weight_ih_l0{suffix}", nn.Parameter(torch.empty(rows, config.hidden_size)))
            self.register_parameter(f"weight_hh_l0{suffix}", nn.Parameter(torch.empty(rows, self.size)))
            self.register_parameter(f"bias_ih_l0{suffix}", nn.Parameter(torch.empty(rows)))
            self.register_parameter(f"bias_hh_l0{suffix}", nn.Parameter(torch.empty(rows)))
        self.start_proj = None
        if is_causal and config.initial_state == "encoder":
            sources = config.cross_attention_hidden_size or config.hidden_size
            self.start_proj = nn.Linear(sources, self.states * self.size)

    def init_parameters(self) -> None:
        """Draw the parameters of the network uniformly within `1 / sqrt(size)`, as torch does."""
        bound = 1 / math.sqrt(self.size)
        for parameter in self.parameters(recurse=False):
            init.uniform_(parameter, -bound, bound)

    # ---------------------------------------------------------------------------------------------------- kernels
    def kernel(self) -> Any:
        """Return torch's function."""
        raise NotImplementedError

    def cell(self, mixed: torch.Tensor, recurrent: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Return the state after one step.

        Args:
            mixed: the input times its weights. *Shape:* `(batch, gates * size)`.
            recurrent: the state times its weights. *Shape:* `(batch, gates * size)`.
            state: *Shape:* `(batch, states, size)`.
        """
        raise NotImplementedError

    def _run(self, inputs: torch.Tensor, sizes: torch.Tensor | None, state: torch.Tensor) -> Any:
        """Run the kernel over rows, or over packed rows of `sizes`. State: `(directions, rows, states, size)`."""
        first = tuple(state[:, :, part].contiguous() for part in range(self.states))
        hidden = first if self.states > 1 else first[0]
        weights = list(self.parameters(recurse=False))
        tail = (True, 1, 0.0, self.training, self.bidirectional)
        if sizes is None:
            outputs, *last = self.kernel()(inputs, hidden, weights, *tail, True)
        else:
            outputs, *last = self.kernel()(inputs, sizes, hidden, weights, *tail)
        return outputs, torch.stack(tuple(last), dim=2)

    def _sequences(
        self, hidden_states: torch.Tensor, segments: Segments, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run every document as a sequence of its own; return outputs, and the state after each row's last token."""
        batch, length = hidden_states.shape[:2]
        flat = hidden_states.new_ones((batch, length), dtype=torch.bool) if segments.real is None else segments.real
        number = flat.new_zeros((batch, length), dtype=torch.long) if segments.document is None else segments.document
        row, column = flat.nonzero(as_tuple=True)
        number = number[row, column]
        if not len(row):
            return torch.zeros_like(hidden_states), state
        begins = torch.ones_like(row, dtype=torch.bool)
        begins[1:] = (row[1:] != row[:-1]) | (number[1:] != number[:-1])
        sequence = begins.long().cumsum(0) - 1
        lengths = torch.bincount(sequence)
        place = torch.arange(len(row), device=row.device) - (lengths.cumsum(0) - lengths)[sequence]

        padded = hidden_states.new_zeros(len(lengths), int(lengths.max()), hidden_states.shape[-1])
        padded = padded.index_put((sequence, place), hidden_states[row, column])
        first_row, fresh = row[begins], number[begins] > 0
        start = state[:, first_row].masked_fill(fresh[None, :, None, None], 0.0)
        packed = pack_padded_sequence(padded, lengths.cpu(), batch_first=True, enforce_sorted=False)
        ran, last = self._run(packed.data, packed.batch_sizes, start[:, packed.sorted_indices])
        ran = packed._replace(data=ran)
        unpacked, _ = pad_packed_sequence(ran, batch_first=True)
        outputs = unpacked.new_zeros(batch, length, unpacked.shape[-1])
        outputs = outputs.index_put((row, column), unpacked[sequence, place])
        last = last[:, packed.unsorted_indices]
        ends = torch.ones_like(first_row, dtype=torch.bool)
        ends[:-1] = first_row[1:] != first_row[:-1]
        state = state.to(last.dtype)  # that of autocast
        return outputs, state.index_put((torch.arange(len(state))[:, None], first_row[ends][None]), last[:, ends])

    def _step(
        self, hidden_states: torch.Tensor, segments: Segments, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        weights = dict(self.named_parameters(recurse=False))
        before = state[0]
        if segments.document is not None:
            before = before * (segments.document == 0)[:, :, None].to(before.dtype)
        mixed = nn.functional.linear(hidden_states[:, 0], weights["weight_ih_l0"], weights["bias_ih_l0"])
        recurrent = nn.functional.linear(before[:, 0], weights["weight_hh_l0"], weights["bias_hh_l0"])
        after = self.cell(mixed, recurrent, before)
        if segments.real is not None:
            after = torch.where(segments.real[:, :, None], after, state[0])
        return after[:, :1], after[None]

    def _first_state(self, hidden_states: torch.Tensor, source_start: torch.Tensor | None) -> torch.Tensor:
        """Return the state before the first token. *Shape:* `(directions, batch, states, size)`."""
        batch = hidden_states.shape[0]
        if self.start_proj is None:
            return hidden_states.new_zeros(2 if self.bidirectional else 1, batch, self.states, self.size)
        state = torch.tanh(self.start_proj(source_start))
        return state.view(1, batch, self.states, self.size).to(hidden_states.dtype)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: Segments | None = None,
        cache: Cache | None = None,
        is_causal: bool | None = None,
        source_start: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None]:
        """Run over the sequence.

        Args:
            hidden_states: *Shape:* `(batch, length, hidden_size)`, floating point.
            attention_mask: padding and borders of documents, or None when there are none.
            cache: the states of earlier positions; updated in place.
            is_causal: must be the direction that the layer was built for.
            source_start: what `initial_state="encoder"` makes the first state from. *Shape:* `(batch, source_size)`.
            **kwargs: what attention takes.

        Returns:
            *Shape:* `(batch, length, hidden_size)`, and None: there are no weights.

        Raises:
            ValueError: a layer of one direction is asked for both.
            RuntimeError: torch.compile over more than one step.
        """
        if is_causal is not None and is_causal == self.bidirectional:
            raise ValueError("a recurrent layer cannot change its direction: leave is_causal out.")
        segments = attention_mask or Segments()
        length = hidden_states.shape[1]
        stored = read_state(cache, self.layer_idx)
        if stored is None:
            state = self._first_state(hidden_states, source_start)
        else:
            state = stored[None].to(hidden_states.dtype)
        if length == 1 and not self.bidirectional:
            outputs, state = self._step(hidden_states, segments, state)
        elif torch.compiler.is_compiling():
            raise RuntimeError(
                f"{type(self).__name__} uses a kernel that torch.compile does not support; compile models without "
                "recurrent mixers, or single steps of decoding."
            )
        elif segments.real is None and segments.document is None:
            outputs, state = self._run(hidden_states, None, state)
        else:
            outputs, state = self._sequences(hidden_states, segments, state)
        if not self.bidirectional:
            write_state(cache, self.layer_idx, state[0], length)
        return outputs, None


@dataclass(frozen=True)
class RnnOptions:
    """Options of `rnn`.

    Args:
        nonlinearity: `tanh` or `relu`.
    """

    nonlinearity: str = "tanh"

    def __post_init__(self) -> None:
        if self.nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"nonlinearity = {self.nonlinearity!r}: must be 'tanh' or 'relu'.")


class RnnMixer(RecurrentMixer):
    """The simple recurrent network (Elman, 1990, https://doi.org/10.1207/s15516709cog1402_1):
    `h' = tanh(W x + b + U h + c)`."""

    def kernel(self) -> Any:
        return torch.rnn_tanh if self.options.nonlinearity == "tanh" else torch.rnn_relu

    def cell(self, mixed: torch.Tensor, recurrent: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        act = torch.tanh if self.options.nonlinearity == "tanh" else torch.relu
        return act(mixed + recurrent)[:, None]


class LstmMixer(RecurrentMixer):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997, https://doi.org/10.1162/neco.1997.9.8.1735) with the
    forget gate of Gers et al., 2000 (https://doi.org/10.1162/089976600300015015). The state is `h` and `c`."""

    gates = 4
    states = 2

    def kernel(self) -> Any:
        return torch.lstm

    def cell(self, mixed: torch.Tensor, recurrent: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        enter, forget, new, leave = (mixed + recurrent).chunk(4, dim=-1)
        memory = forget.sigmoid() * state[:, 1] + enter.sigmoid() * new.tanh()
        return torch.stack((leave.sigmoid() * memory.tanh(), memory), dim=1)


class GruMixer(RecurrentMixer):
    """The gated recurrent unit (Cho et al., 2014, https://huggingface.co/papers/1406.1078), as torch computes it: the
    reset gate acts on the state after its weights."""

    gates = 3

    def kernel(self) -> Any:
        return torch.gru

    def cell(self, mixed: torch.Tensor, recurrent: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        reset, update, new = mixed.chunk(3, dim=-1)
        reset_h, update_h, new_h = recurrent.chunk(3, dim=-1)
        update = (update + update_h).sigmoid()
        new = torch.tanh(new + (reset + reset_h).sigmoid() * new_h)
        return ((1 - update) * new + update * state[:, 0])[:, None]


def _register(name: str, module: type[RecurrentMixer], options: type | None = None) -> None:
    MIXERS.register(
        name,
        Mixer(
            module,
            RECURRENT_LAYER_TYPE,
            "linear",
            is_attention=False,
            options=options,
            compilable=False,
            takes_start=True,
        ),
    )


_register("rnn", RnnMixer, RnnOptions)
_register("lstm", LstmMixer)
_register("gru", GruMixer)
