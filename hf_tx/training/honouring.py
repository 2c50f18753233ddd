# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Options of the Trainer that a run cannot honour are refused by name, before anything is done."""

from collections.abc import Collection
from typing import Any

# Options that some tasks and objectives honour, each of which declares them in `honours`, with the values that ask for
# nothing.
_OF_SOME: dict[str, tuple[Any, ...]] = {
    "label_smoothing_factor": (0,),
    "predict_with_generate": (False,),
    "generation_max_length": (None,),
    "generation_num_beams": (None,),
    "generation_config": (None,),
    "prediction_loss_only": (False,),
    "neftune_noise_alpha": (None,),
    "activation_checkpointing": (False,),
    "train_sampling_strategy": ("random", "sequential"),
}
# Options that no run honours, with the values that ask for nothing, and why.
_OF_NONE: dict[str, tuple[tuple[Any, ...], str]] = {
    "label_names": ((None,), "what is to be learnt says which columns are labels"),
    "remove_unused_columns": ((False,), "the rows hold what the model needs, and nothing else"),
    "include_for_metrics": (([], None), "measures are made of predictions and labels"),
    "batch_eval_metrics": ((False,), "measures are made of all rows"),
    "eval_do_concat_batches": ((True,), "measures are made of all rows"),
    "length_column_name": (("length",), "rows are as long as their tokens"),
    "sortish_sampler": ((False,), "transformers does not read it any more; --train_sampling_strategy group_by_length"),
    "do_predict": ((False,), "a run trains and measures; `hf-tx evaluate` measures other data"),
    "use_liger_kernel": ((False,), "it has no kernels for the models of hf_tx, and would change nothing"),
}


def check_honoured(options: Any, what: str, honours: Collection[str]) -> None:
    """Refuse options that a task or an objective cannot honour.

    Args:
        options: of the Trainer, before a task has set its own.
        what: the task or the objective.
        honours: those of the options that not all honour which this one does.

    Raises:
        ValueError: with the first that it cannot.
    """
    for name, neutral in _OF_SOME.items():
        value = _given(options, name, neutral)
        if value not in neutral and name not in honours:
            raise ValueError(f"--{name} {value}: {what} does not support it; remove it.")
    for name, (neutral, reason) in _OF_NONE.items():
        value = _given(options, name, neutral)
        if value not in neutral:
            raise ValueError(f"--{name} {value}: is not supported, because {reason}; leave it out.")


def _given(options: Any, name: str, neutral: tuple[Any, ...]) -> Any:
    value = getattr(options, name, neutral[0])
    return getattr(value, "value", value)
