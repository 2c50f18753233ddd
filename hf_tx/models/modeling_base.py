# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Loading, saving, backends and initialization of all models."""

import copy
from typing import Any

from torch import nn
from transformers import PreTrainedConfig
from transformers import initialization as init
from transformers.activations import XIELUActivation
from transformers.modeling_utils import PreTrainedModel

from .backend_rules import DEFAULTS, refusal
from .hub_repositories import PushesAsAsked, repository_of_save
from .initialisation import refuse_unset
from .mixers import MIXERS
from .plugin_loading import find_backend
from .weight_names import refuse_empty_stacks, unwrap_names, unwrapped, with_unwrapping


def stack_configs(config: PreTrainedConfig) -> list[Any]:
    """Return the configs of the stacks: the config itself, or those in it."""
    return [getattr(config, name) for name in config.sub_configs] or [config]


_LOSSES = ("full", "chunked")


class TxPreTrainedModel(PushesAsAsked, PreTrainedModel):
    """Base of all models.

    Args:
        config: config of the model.
        loss_implementation: how a language modeling head computes its loss: `full`, or `chunked`, which never stores
            the logits of all positions. Also an argument of `from_pretrained`, and an attribute. It is not saved.
    """

    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["TxBlock"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    #: What to use instead, for classes that do not generate.
    _generates_with = ""

    def __init__(self, config: PreTrainedConfig, loss_implementation: str = "full") -> None:
        config.validate()  # attributes may have been assigned since it was built
        super().__init__(config)
        mixers = [MIXERS.get(name) for stack in stack_configs(config) for name in stack.mixers]
        # Read by generate(): whether it may compile a step, and whether it may take tokens back.
        self._can_compile_fullgraph = all(mixer.compilable for mixer in mixers)
        self._is_stateful = not all(mixer.is_attention for mixer in mixers)
        self.loss_implementation = loss_implementation

    @property
    def loss_implementation(self) -> str:
        """How the loss is computed: `full` or `chunked`."""
        return self._loss_implementation

    @loss_implementation.setter
    def loss_implementation(self, value: str) -> None:
        if value not in _LOSSES:
            raise ValueError(f"loss_implementation = {value!r}: must be one of {', '.join(_LOSSES)}.")
        self._loss_implementation = value

    def __getattr__(self, name: str) -> Any:
        if name == "generate":
            raise AttributeError(
                f"{type(self).__name__} cannot generate text: generate() is a method of {self._generates_with}."
            )
        return super().__getattr__(name)

    # --------------------------------------------------------------------------------------------------- backends
    @classmethod
    def _from_config(cls, config: PreTrainedConfig, **kwargs: Any) -> Any:
        # The backend is stored in the config: the requested one must not change other models with the same config.
        return super()._from_config(copy.deepcopy(config) if "attn_implementation" in kwargs else config, **kwargs)

    def get_correct_attn_implementation(self, requested_attention: str | None, is_init_check: bool = False) -> str:
        """Return the backend to use: the requested one, or the first default that computes every layer.

        Raises:
            ValueError: the requested backend cannot compute a layer.
            ImportError: it belongs to a plug-in that cannot be used.
        """
        if requested_attention is None:
            able = (name for name in DEFAULTS if refusal(self.config, name) is None)
            return super().get_correct_attn_implementation(next(able), is_init_check)
        find_backend(requested_attention)
        backend = super().get_correct_attn_implementation(requested_attention, is_init_check)
        self._refuse(backend)
        return backend

    def _check_and_adjust_attn_implementation(self, attn_implementation: str | None, *args: Any, **kwargs: Any) -> str:
        # Kernels from the Hub do not pass through get_correct_attn_implementation.
        backend = super()._check_and_adjust_attn_implementation(attn_implementation, *args, **kwargs)
        self._refuse(backend)
        return backend

    def set_attn_implementation(self, attn_implementation: str | dict[str, Any], *args: Any, **kwargs: Any) -> None:
        """Switch the backend; see the method of the same name in transformers. If an error is raised, nothing changes.

        Raises:
            ValueError: the backend cannot compute a layer.
        """
        configs = [self.config, *(getattr(self.config, name) for name in self.config.sub_configs)]
        before = [config._attn_implementation for config in configs]
        try:
            super().set_attn_implementation(attn_implementation, *args, **kwargs)
        except Exception:
            for config, backend in zip(configs, before, strict=True):
                config._attn_implementation_internal = backend
            raise

    def _refuse(self, backend: str) -> None:
        if reason := refusal(self.config, backend):
            raise ValueError(f"{type(self).__name__}: {reason}.")

    # ------------------------------------------------------------------------------------------- several processes
    @classmethod
    def maybe_distribute_model(cls, model: Any, distributed_config: Any, mesh_manager: Any) -> Any:
        """Shard the model as transformers does; see its method of the same name.

        Raises:
            ValueError: the heads of a layer cannot be divided among the devices of `tp_plan="auto"`.
        """
        size = getattr(distributed_config, "tp_size", 1)
        if mesh_manager is not None and not isinstance(distributed_config.tp_plan, dict):
            for stack in stack_configs(model.config):
                divided = stack.base_model_tp_plan.get("layers.*.mixer.k_proj") == "colwise"
                for idx in range(stack.num_hidden_layers) if divided else ():
                    heads = stack.layer_config(idx).num_key_value_heads
                    if heads % size:
                        raise ValueError(
                            f"{cls.__name__}: layer {idx} has num_key_value_heads = {heads}, which is not a multiple "
                            f"of tp_size = {size}: choose another tp_size, or use FSDP."
                        )
        model = super().maybe_distribute_model(model, distributed_config, mesh_manager)
        if getattr(model, "_is_fsdp_managed_module", False) and model.can_generate():
            # Not at the top: torch may be built without it. generate() calls the encoder alone, before the model whose
            # call would gather what belongs to no layer.
            from torch.distributed.fsdp import register_fsdp_forward_method

            register_fsdp_forward_method(model, "generate")
        return model

    # ----------------------------------------------------------------------------------------- weights and saving
    @classmethod
    def get_init_context(cls, *args: Any, **kwargs: Any) -> list[Any]:
        """Draw nothing while a model is built that is then loaded; see the method of the same name in transformers."""
        return [*super().get_init_context(*args, **kwargs), init.no_init_weights()]

    @staticmethod
    def _load_pretrained_model(  # type: ignore[override]
        model: Any, state_dict: Any, checkpoint_files: Any, load_config: Any, **kwargs: Any
    ) -> Any:
        return PreTrainedModel._load_pretrained_model(
            model, state_dict, checkpoint_files, with_unwrapping(load_config), **kwargs
        )

    @staticmethod
    def _finalize_model_loading(model: Any, load_config: Any, loading_info: Any) -> Any:
        # Sizes that do not match are transformers' error, unless they are to be ignored.
        ignored = load_config.ignore_mismatched_sizes
        lacking = loading_info.missing_and_mismatched() if ignored else loading_info.missing_keys
        refuse_empty_stacks(model, lacking, loading_info.unexpected_keys, load_config.pretrained_model_name_or_path)
        return PreTrainedModel._finalize_model_loading(model, load_config, loading_info)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        # The outermost module is asked first, and what it renames reaches those in it. Modules in it may be wrapped.
        if not prefix:
            own = {unwrapped(name): name for name in self.state_dict()}
            for name in list(state_dict):
                if (new := own.get(unwrapped(name), name)) not in state_dict:
                    state_dict[new] = state_dict.pop(name)
        elif not unwrapped(prefix) and not state_dict:
            *_, errors = args
            errors.append(
                f"the state dict has no names with the prefix {prefix}, which a wrapper (torch.compile, "
                f"DataParallel) adds: load it into the {type(self).__name__} inside of the wrapper (which TxTrainer "
                "can train)."
            )
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, nn.PReLU | nn.RNN | nn.GRU):  # which transformers leaves out
            module.reset_parameters()
        elif isinstance(module, XIELUActivation):
            for name, value in XIELUActivation().state_dict().items():
                init.copy_(getattr(module, name), value)
        elif hasattr(module, "init_parameters"):
            module.init_parameters()  # type: ignore[operator]

    def post_init(self) -> None:
        """Initialise the weights; see the method of the same name in transformers.

        Raises:
            ValueError: a module holds parameters or buffers that nothing initialises.
        """
        refuse_unset(self)
        super().post_init()

    @classmethod
    def register_for_auto_class(cls, auto_class: str | type = "AutoModel") -> None:
        """Do nothing: the config takes the code along, and names all classes. transformers calls this for classes that
        it has loaded from a checkpoint, and would copy the code once more."""

    def save_pretrained(
        self,
        save_directory: Any,
        is_main_process: bool = True,
        state_dict: dict[str, Any] | None = None,
        push_to_hub: bool = False,
        *args: Any,
        include_code: bool = True,
        **kwargs: Any,
    ) -> None:
        """Save weights, config and code; see the method of the same name in transformers.

        Args:
            save_directory: folder to write to.
            is_main_process: as in transformers.
            state_dict: as in transformers.
            push_to_hub: as in transformers; with `private`, an error is raised if the repository is public.
            *args: as in transformers.
            include_code: also save the code of the model, and the `auto_map` with which others load it
                with `trust_remote_code=True` and without hf_tx.
            **kwargs: as in transformers.

        Raises:
            ValueError: the repository is there and is not as `private` says; nothing has been saved or sent.
        """
        if state_dict is None and any(unwrapped(name) != name for name, _ in self.named_parameters()):
            state_dict = self.state_dict()  # a module in it is wrapped, such as one that is compiled
        if state_dict is not None:
            state_dict = unwrap_names(state_dict)
        if push_to_hub:
            kwargs["repo_id"] = repository_of_save(save_directory, kwargs)
        if not all(weight.is_contiguous() for weight in self.parameters()):
            # Views of one storage: transformers asks where each ends, which only contiguous tensors can say.
            state = self.state_dict() if state_dict is None else state_dict
            state_dict = {name: weight.contiguous() for name, weight in state.items()}
        args = (is_main_process, state_dict, push_to_hub, *args)
        if include_code:
            super().save_pretrained(save_directory, *args, **kwargs)
            return
        # An attribute, since the config of a checkpoint that came with its code may be of another copy of that code.
        self.config._saved_without_code = True
        try:
            super().save_pretrained(save_directory, *args, **kwargs)
        finally:
            del self.config._saved_without_code
