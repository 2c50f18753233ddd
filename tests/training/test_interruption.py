# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import signal
from types import SimpleNamespace

import pytest
from transformers import TrainerControl
from transformers.trainer_utils import SaveStrategy

from hf_tx.training import StopOnInterrupt


def stops(stop: StopOnInterrupt, save_strategy: SaveStrategy = SaveStrategy.STEPS) -> bool:
    arguments = SimpleNamespace(save_strategy=save_strategy)
    control = stop.on_step_end(arguments, SimpleNamespace(), TrainerControl())
    assert control.should_save == (control.should_training_stop and save_strategy != SaveStrategy.NO)
    return control.should_training_stop


def test_the_first_interrupt_stops_and_the_second_breaks_off():
    before = signal.getsignal(signal.SIGINT)
    stop = StopOnInterrupt()
    with stop:
        assert not stop.interrupted
        assert not stops(stop)
        signal.raise_signal(signal.SIGINT)
        assert stop.interrupted
        assert stops(stop)
        assert stops(stop, SaveStrategy.NO)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_the_signal_is_given_back_after_an_error():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(RuntimeError), StopOnInterrupt():
        raise RuntimeError
    assert signal.getsignal(signal.SIGINT) is before
