# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
import math
from types import SimpleNamespace

import pytest
import torch
from tiny_models import shared, tokens
from torch import nn

from hf_tx.evaluation import causal_windows, score_causal_lm, score_targets

BOS = 1


class Table(nn.Module):
    """Predicts from the last token alone: the rows of the table are the logarithms of the probabilities."""

    device = torch.device("cpu")

    def __init__(self, probabilities: list[list[float]]) -> None:
        super().__init__()
        self.table = torch.tensor(probabilities).log()

    def forward(self, input_ids: torch.Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.table[input_ids])


@pytest.mark.parametrize("stride", [1, 2, 5])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_table_by_hand(stride, batch_size):
    model = Table([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125], [0.25, 0.25, 0.5]])
    text = [0, 0, 2, 0, 1, 1, 0]
    # After bos (1), 0, 0, 2, 0, 1 and 1:
    bits = [3, 1, 2, 2, 2, math.log2(1 / 0.75), 3]
    score = score_causal_lm(model, text, context_length=6, bos_token_id=BOS, stride=stride, batch_size=batch_size)
    assert score.nats == pytest.approx(sum(bits) * math.log(2), rel=1e-6)
    # Only the second 0 (after 0) and the second 1 (after 1) were the likeliest.
    assert (score.num_tokens, score.num_correct) == (7, 2)
    assert score.bits_per_byte(7) == pytest.approx(sum(bits) / 7, rel=1e-6)


def test_a_uniform_model_needs_the_logarithm_of_its_vocabulary():
    model = Table([[1 / 16] * 16] * 16)
    score = score_causal_lm(model, list(range(16)) * 5, context_length=9, bos_token_id=BOS)
    assert score.perplexity == pytest.approx(16)
    # 4 bits a token, and 80 tokens for 160 bytes.
    assert score.bits_per_byte(160) == pytest.approx(2)


@pytest.mark.parametrize("num_tokens", [0, 1, 4, 7, 8, 9, 15, 40])
@pytest.mark.parametrize(("context_length", "stride"), [(2, 1), (8, 1), (8, 3), (8, 4), (8, 7), (64, 32)])
def test_windows_cover_each_token_once(num_tokens, context_length, stride):
    text = list(range(100, 100 + num_tokens))
    windows = list(causal_windows(text, context_length=context_length, stride=stride, bos_token_id=BOS))
    scored = [target for _, targets in windows for target in targets if target != -100]
    assert scored == text
    for number, (inputs, targets) in enumerate(windows):
        assert len(inputs) == len(targets) == min(context_length - 1, num_tokens)
        assert inputs[0] == BOS
        first = next(target for target in targets if target != -100)
        start, index = first - 100, targets.index(first)
        # What is before the first target is the text before it, as much as there is room for.
        assert inputs[1 : index + 1] == text[start - index : start]
        assert inputs[index + 1 :] == targets[index:-1]
        if number:
            assert index >= context_length - 1 - stride


def test_windows_that_would_leave_tokens_out_are_refused():
    for stride in (0, 8):
        with pytest.raises(
            ValueError, match=f"stride = {stride}: must be at least 1 and at most context_length - 1 = 7"
        ):
            score_causal_lm(Table([[1.0]]), [0], context_length=8, bos_token_id=0, stride=stride)


def test_one_window_has_the_loss_of_the_model():
    model = shared("decoder", "sdpa", "lm")
    text = tokens(1, 20)[0].tolist()
    row = torch.tensor([[BOS, *text]])
    with torch.no_grad():
        expected = model(input_ids=row, labels=row).loss.item()
    score = score_causal_lm(model, text, context_length=32, bos_token_id=BOS)
    assert score.loss == pytest.approx(expected, rel=1e-5)


def test_more_context_changes_what_is_predicted():
    """Guards the tests above: with this model the windows matter."""
    model, text = shared("decoder", "sdpa", "lm"), tokens(1, 40)[0].tolist()
    losses = [
        score_causal_lm(model, text, context_length=12, bos_token_id=BOS, stride=stride).loss for stride in (1, 6, 11)
    ]
    assert len({round(loss, 3) for loss in losses}) == 3


def test_the_model_is_scored_in_evaluation_mode_and_left_as_it_was():
    class Watched(Table):
        def forward(self, input_ids):
            assert not self.training
            assert not torch.is_grad_enabled()
            return super().forward(input_ids)

    model = Watched([[1.0]])
    for training in (True, False):
        model.train(training)
        score_targets(model, [({"input_ids": torch.tensor([[0]])}, torch.tensor([[0]]))])
        assert model.training is training
    with pytest.raises(IndexError):
        score_targets(model.train(), [({"input_ids": torch.tensor([[9]])}, torch.tensor([[0]]))])
    assert model.training


def test_ignored_targets_are_not_counted():
    model = Table([[0.5, 0.5], [0.25, 0.75]])
    batches = [
        ({"input_ids": torch.tensor([[0, 1], [1, 1]])}, torch.tensor([[-100, 0], [1, -100]])),
        ({"input_ids": torch.tensor([[0, 0]])}, torch.tensor([[-100, -100]])),
    ]
    score = score_targets(model, batches)
    assert score.nats == pytest.approx(-math.log(0.25) - math.log(0.75), rel=1e-6)
    assert (score.num_tokens, score.num_correct) == (2, 1)
