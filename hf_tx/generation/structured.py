# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""`generate()` with a constraint, from texts to texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import LogitsProcessorList

from .constraint import Constraint
from .processor import CANDIDATES, ConstraintLogitsProcessor

#: What generate_structured sets itself, or what would end a text before it is complete.
_REFUSED = {
    "max_length": "give max_new_tokens",
    "stop_strings": "they would end a text before it is complete: say where it ends in the constraint",
    "max_time": "it would end a text before it is complete",
    "stopping_criteria": "they could end a text before it is complete",
    "forced_eos_token_id": "the constraint says where a text ends",
    "input_ids": "give prompts, or use ConstraintLogitsProcessor with generate()",
    "inputs_embeds": "give prompts, or use ConstraintLogitsProcessor with generate()",
}


@dataclass
class Structured:
    """What `generate_structured` returns.

    Attributes:
        texts: one for each sequence, in the order of `generate()`; each conforms.
        parsed: their values: of JSON, what it says; of other constraints, the text.
        sequences: their ids, with the prompts. Shape: (sequences, length).
    """

    texts: list[str]
    parsed: list[Any]
    sequences: torch.Tensor


def generate_structured(
    model: Any,
    tokenizer: Any,
    prompts: str | Sequence[str],
    constraint: Constraint | Sequence[Constraint],
    *,
    max_new_tokens: int = 256,
    candidates: int | None = CANDIDATES,
    **generate_kwargs: Any,
) -> Structured:
    """Generate texts that conform to a constraint, with any model of transformers that has `generate()`.

    Args:
        model: a decoder or an encoder-decoder.
        tokenizer: its tokenizer: byte-level BPE, Unigram or SentencePiece.
        prompts: one or several; the constraint is about what comes after them.
        constraint: one for all prompts, or one for each.
        max_new_tokens: of these the text is complete, with the token that ends it.
        candidates: how many allowed tokens are tried at a step, the best first (`ConstraintLogitsProcessor`).
        generate_kwargs: options of `generate()`: `num_beams`, `do_sample`, `num_return_sequences`, `streamer` ...

    Raises:
        ValueError: the budget cannot hold a complete text, an option contradicts the constraint, or there are fewer
            texts that conform than sequences asked for.
    """
    texts = [prompts] if isinstance(prompts, str) else list(prompts)
    if not texts:
        raise ValueError("prompts: is an empty list.")
    if not isinstance(constraint, Constraint) and len(constraint) != len(texts):
        raise ValueError(f"there are {len(constraint)} constraints for {len(texts)} prompts.")
    for name, why in _REFUSED.items():
        if generate_kwargs.get(name) is not None:
            raise ValueError(f"{name}: {why}.")
    config = generate_kwargs.get("generation_config") or model.generation_config

    def option(name: str, otherwise: Any = None) -> Any:
        value = generate_kwargs.get(name)
        value = getattr(config, name, None) if value is None else value
        return otherwise if value is None else value

    eos = option("eos_token_id", tokenizer.eos_token_id)
    pad = option("pad_token_id", tokenizer.pad_token_id)
    if pad is None:
        pad = eos[0] if isinstance(eos, list) else eos
    beams, several = option("num_beams", 1), option("num_return_sequences", 1)
    assisted = any(option(name) is not None for name in ("assistant_model", "prompt_lookup_num_tokens"))
    inputs, prompt_length = _inputs(model, tokenizer, texts, pad, generate_kwargs, option("forced_bos_token_id"))
    processor = ConstraintLogitsProcessor(
        constraint,
        tokenizer,
        prompt_length=prompt_length,
        max_new_tokens=max_new_tokens,
        eos_token_id=eos,
        rows_per_prompt=max(beams, several),
        lenient_rows=assisted or (beams > 1 and bool(option("do_sample", False))),
        candidates=candidates,
    )
    processors = LogitsProcessorList([*(generate_kwargs.pop("logits_processor", None) or []), processor])
    settings = {"eos_token_id": processor.eos_token_ids, "pad_token_id": pad, "forced_eos_token_id": None}
    output = model.generate(
        **inputs,
        **{**generate_kwargs, **settings},
        max_new_tokens=max_new_tokens,
        logits_processor=processors,
    )
    sequences = output if isinstance(output, torch.Tensor) else output.sequences
    return _read(sequences, processor, len(texts), prompt_length)


def _read(
    sequences: torch.Tensor, processor: ConstraintLogitsProcessor, prompts: int, prompt_length: int
) -> Structured:
    found, parsed = [], []
    each = len(sequences) // prompts
    for index, tokens in enumerate(sequences[:, prompt_length:].tolist()):
        compiled = processor.compiled[index // each if len(processor.compiled) > 1 else 0]
        ends = [place for place, token in enumerate(tokens) if token in processor.eos_token_ids]
        text = compiled.vocabulary.text(tokens[: ends[0]] if ends else tokens).decode("utf-8", "replace")
        problem = compiled.constraint.explain(text, enforced_only=True)
        if not ends or problem is not None:
            raise ValueError(
                f"sequence {index}: {text!r} does not conform to {compiled.constraint!r}"
                f"{f' ({problem})' if problem else ''}: with beams, that is so when fewer texts conform than "
                "sequences are asked for (num_return_sequences); otherwise another processor came after that of the "
                "constraint."
            )
        found.append(text)
        parsed.append(compiled.constraint.parse(text))
    return Structured(found, parsed, sequences)


def _inputs(
    model: Any, tokenizer: Any, texts: list[str], pad: int, given: dict[str, Any], forced_bos: int | None
) -> tuple[dict[str, torch.Tensor], int]:
    """Return what `generate()` reads, and how many ids a row has before the first step."""
    ids = tokenizer(texts, return_token_type_ids=False, return_attention_mask=False)["input_ids"]
    if not all(ids):
        raise ValueError("prompts: one of them has no tokens.")
    longest = max(map(len, ids))
    encoder = bool(model.config.is_encoder_decoder)
    rows, masks = [], []
    for row in ids:
        filler = [0] * (longest - len(row))
        padded, mask = [pad] * len(filler), [1] * len(row)
        rows.append(row + padded if encoder else padded + row)
        masks.append(mask + filler if encoder else filler + mask)
    inputs = {
        "input_ids": torch.tensor(rows, device=model.device),
        "attention_mask": torch.tensor(masks, device=model.device),
    }
    if not encoder:
        return inputs, longest
    if given.get("decoder_input_ids") is not None:
        return inputs, given["decoder_input_ids"].shape[1]
    if forced_bos is None:
        return inputs, 1
    # The first token is the model's, and not part of the text.
    start = given.get("decoder_start_token_id")
    start = model.generation_config.decoder_start_token_id if start is None else start
    start = model.config.decoder_start_token_id if start is None else start
    given["decoder_input_ids"] = torch.tensor([[start, forced_bos]] * len(texts), device=model.device)
    given["forced_bos_token_id"] = None
    return inputs, 2
