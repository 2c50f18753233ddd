# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""What models are fine-tuned for, one file a task: rows with labels from a dataset, and what is measured."""

from .chat import Chat
from .options import TaskOptions, check_task_options
from .question_answering import QuestionAnswering
from .seq2seq import Seq2Seq
from .sequence_classification import SequenceClassification
from .task import Task
from .token_classification import TokenClassification

#: The tasks by name.
TASKS: dict[str, type[Task]] = {
    task.name: task for task in (SequenceClassification, TokenClassification, QuestionAnswering, Seq2Seq, Chat)
}

__all__ = [
    "TASKS",
    "Chat",
    "QuestionAnswering",
    "Seq2Seq",
    "SequenceClassification",
    "Task",
    "TaskOptions",
    "TokenClassification",
    "check_task_options",
]
