"""The eleven algorithmic tasks of the Tropical Attention paper: vectorised generators and exact labels, NumPy only.

``generate("knapsack", "length-ood", n=64, count=5000, seed=1234)`` makes a `TaskBatch`; ``stream`` feeds a training.
One file per task holds its sampler, its perturbation and its exact labeller.
"""

from __future__ import annotations

from nco_bench.problems.tasks.spec import TaskBatch
from nco_bench.problems.tasks.table import SETTINGS, TASKS, VARIANTS, Task, generate, stream, task

__all__ = ["SETTINGS", "TASKS", "VARIANTS", "Task", "TaskBatch", "generate", "stream", "task"]
