"""Learning Long Range Arena: cross-entropy on sequences of a training split, or on freshly made ones.

``nco-bench train lra-tropical --data lra-listops64`` and the like. ListOps and Pathfinder draw new instances without end
(every Pathfinder drawing in its eight symmetries); Text, Retrieval, Image and the released Pathfinder repeat their split
``train`` in new orders.
Validation is on instances that are not learned from: others than any test set of the default seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from nco_bench.datasets.lra import SPLITS, build_listops, build_pathfinder, resolve
from nco_bench.datasets.lra_files import task_of
from nco_bench.datasets.names import parse_generated
from nco_bench.datasets.places import Places
from nco_bench.errors import BadInputError, ResultsError, UnknownNameError, counted
from nco_bench.problems.lra import LRA_TASKS, LRAInstance, LRATask, lra_task, pathfinder
from nco_bench.problems.lra.listops import expressions
from nco_bench.solvers.sequences.lra import LRAClassifier, lra_config
from nco_bench.training.courses import Assignment, Course, Prepared
from nco_bench.training.learner import Loss, Measure
from nco_bench.training.manifest import manifest_of
from nco_bench.training.recipes import LoopRecipe
from nco_bench.training.trainer import Trainer
from nco_bench.weights.manifest import Manifest, TrainingData

VALIDATION_SEED = 4_294_967_295
"""The largest; `--seed` of a test set is unlikely to be it."""
VALIDATION_BATCH = 32
Example = tuple[tuple[np.ndarray, ...], int]
"""The text or texts, and the class."""


@dataclass(frozen=True)
class LRARecipe(LoopRecipe):
    """How a classifier learns; see `LoopRecipe` for the rest. The paper gives no numbers; batch 32 is the benchmark's.

    Attributes
    ----------
    width, layers, heads
        Sizes in place of the task's, 0 for those.
    """

    learner: str = "lra"
    batch: int = 32
    steps: int = 0
    lr: float = 1e-3
    schedule: str = "cosine"
    warmup: int = 100
    clip: float = 1.0
    spike: float = 0.0
    validate_every: float = 60.0
    validation_instances: int = 500
    log_every: int = 50
    width: int = 0
    layers: int = 0
    heads: int = 0


@dataclass(frozen=True)
class Lesson:
    """What is learned.

    Attributes
    ----------
    task
        The task.
    name
        As given with ``--data``.
    n
        Setting of ListOps; else the task's length.
    pool
        Training instances read from a file; None where instances are made.
    held_out
        Instances to validate on.
    """

    task: LRATask
    name: str
    n: int
    pool: tuple[LRAInstance, ...] | None
    held_out: tuple[LRAInstance, ...]


def lesson(assignment: Assignment) -> Lesson:
    """Return what ``--data`` names.

    Raises
    ------
    BadInputError, UnknownNameError
        When it names no task, several, or one whose files are missing.
    """
    if len(assignment.data) != 1:
        raise BadInputError(
            f"{assignment.model} learns one task: name it, as in --data lra-listops64 (there are: {', '.join(LRA_TASKS)})."
        )
    name, count = str(assignment.data[0]), assignment.recipe.validation_instances
    head = name.split(":")[0]
    if head in SPLITS:
        return _read_lesson(name, head, count, assignment.places or Places(Path("instances")))
    spec = parse_generated(name)
    if spec is None or spec.problem not in LRA_TASKS:
        raise UnknownNameError("Long Range Arena task", head, LRA_TASKS)
    if ":" in name:
        raise BadInputError(f"--data {name}: instances are drawn by --seed without end; give {head} alone.")
    held = parse_generated(f"{name}:seed={VALIDATION_SEED}:count={max(1, count)}")
    assert held is not None
    make = build_listops if spec.problem == "lra-listops" else build_pathfinder
    made = tuple(i for i in make(held) if isinstance(i, LRAInstance))
    return Lesson(lra_task(spec.problem), name, spec.n, None, made)


def _read_lesson(name: str, head: str, count: int, places: Places) -> Lesson:
    """Hold out the last tenth of the split, at most `count`."""
    if len(name.split(":")) > 1 + ("count=" in name):
        raise BadInputError(f"--data {name}: training takes the split train; give {head} or {head}:count=K.")
    found = resolve(f"{head}:train{name.removeprefix(head)}", places.instances, places.mirror)
    assert found is not None
    everything = tuple(i for i in found.instances if isinstance(i, LRAInstance))
    held = min(max(1, count), len(everything) // 10)
    if not held:
        raise BadInputError(
            f"--data {name}: {counted(len(everything), 'instance')}, too few to hold some out; give 10."
        )
    order = np.random.default_rng(0).permutation(len(everything))
    shuffled = [everything[i] for i in order]
    task = lra_task(task_of(head))
    return Lesson(task, name, task.length, tuple(shuffled[held:]), tuple(shuffled[:held]))


def padded(texts: list[np.ndarray]) -> Tensor:
    """Return tokens ``(B, N)`` of texts, with zeros behind the shorter ones."""
    out = np.zeros((len(texts), max(map(len, texts))), dtype=np.int64)
    for row, text in zip(out, texts, strict=True):
        row[: len(text)] = text
    return torch.from_numpy(out)


def answer(policy: nn.Module, examples: list[tuple[np.ndarray, ...]]) -> Tensor:
    """Return the logits ``(B, classes)`` of texts, or pairs of texts."""
    device = next(policy.parameters()).device
    logits: Tensor = policy(*(padded(list(column)).to(device) for column in zip(*examples, strict=True)))
    return logits


class LRALearner:
    """Draws batches and returns the loss on them.

    Parameters
    ----------
    policy
        The classifier.
    studied
        Task and, where it is read, the training instances.
    batch, seed
        Sequences per update; of the draws.
    """

    def __init__(self, policy: nn.Module, studied: Lesson, batch: int, seed: int) -> None:
        self.extra = nn.ModuleDict()
        self.policy, self.studied, self.batch, self.seed = policy, studied, batch, seed
        self.drawn = 0
        self.examples = self._examples(0)

    def loss(self, step: int, fraction: float) -> Loss:
        """Draw the next batch and return the loss on it."""
        drawn = [next(self.examples) for _ in range(self.batch)]
        self.drawn += self.batch
        logits = answer(self.policy, [texts for texts, _ in drawn])
        labels = torch.tensor([label for _, label in drawn], device=logits.device)
        loss = functional.cross_entropy(logits.float(), labels)
        return Loss(loss, loss, len(drawn))

    def _examples(self, session: int) -> Iterator[Example]:
        """Yield examples without end; a resumed session draws from a stream of its own."""
        if self.studied.pool is not None:
            return _repeated(self.studied.pool, np.random.default_rng((self.seed, session)))
        if self.studied.task.name == "lra-listops":
            made = expressions(self.studied.n, self.seed, 1 + session)
            return (((tokens,), value) for tokens, value in made)
        return _symmetric(self.seed, 1 + session)

    def position(self) -> dict[str, Any]:
        """Return data, seed and how many examples were drawn."""
        return {"data": self.studied.name, "seed": self.seed, "drawn": self.drawn}

    def seek(self, position: dict[str, Any], *, adopt: bool = False) -> None:
        """Go on after a saved position, with examples that were not drawn before.

        Raises
        ------
        ResultsError
            When it belongs to other data or another seed.
        """
        for key in ("data", "seed"):
            if position.get(key) != self.position()[key] and not adopt:
                raise ResultsError(
                    f"This training was of {key} {position.get(key)}, not {self.position()[key]}; choose another folder."
                )
        self.drawn = int(position["drawn"])
        self.examples = self._examples(self.drawn)


def _repeated(pool: tuple[LRAInstance, ...], rng: np.random.Generator) -> Iterator[Example]:
    while True:
        for index in rng.permutation(len(pool)):
            yield pool[index].texts, pool[index].label


def _symmetric(seed: int, purpose: int) -> Iterator[Example]:
    for drawing in pathfinder.drawings(seed, purpose):
        image = pathfinder.render(drawing)
        for turned in range(8):
            shown = np.rot90(image if turned < 4 else image.T, turned)
            yield (pathfinder.tokens(np.ascontiguousarray(shown)),), drawing.label


@torch.inference_mode()
def accuracy(policy: nn.Module, instances: tuple[LRAInstance, ...]) -> Measure:
    """Return the share of right answers in percent."""
    training = policy.training
    policy.eval()
    right = 0
    for start in range(0, len(instances), VALIDATION_BATCH):
        part = instances[start : start + VALIDATION_BATCH]
        said = answer(policy, [i.texts for i in part]).argmax(1).tolist()
        right += sum(int(s == i.label) for s, i in zip(said, part, strict=True))
    policy.train(training)
    share, count = right / len(instances), len(instances)
    width = 1.96 * math.sqrt(share * (1 - share) / count)
    return Measure(100 * share, 100 * width, count, "validation_accuracy", "%", higher_is_better=True)


def prepare(assignment: Assignment) -> Prepared:
    """Make classifier, learner and measure for the task that ``--data`` names; raises as `lesson` and for wrong sizes."""
    recipe, studied = assignment.recipe, lesson(assignment)
    task = studied.task
    sizes = {"width": recipe.width, "layers": recipe.layers, "heads": recipe.heads}
    config = lra_config(assignment.model, task.name, task.vocabulary, task.classes, task.texts, **sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(assignment.seed)
        policy = LRAClassifier(config).to(assignment.device)
    share = np.bincount([i.label for i in studied.held_out]).max() / len(studied.held_out)

    def manifest(trainer: Trainer, name: str) -> Manifest:
        return _manifest(trainer, name, studied, float(share))

    return Prepared(
        policy=policy,
        learner=LRALearner(policy, studied, recipe.batch, assignment.seed),
        validate=lambda trainer: accuracy(trainer.policy, studied.held_out),
        manifest=manifest,
        identity={
            "model": assignment.model,
            "problem": task.name,
            "data": studied.name,
            "seed": assignment.seed,
        },
    )


def _manifest(trainer: Trainer, name: str, studied: Lesson, majority: float) -> Manifest:
    found, pool = accuracy(trainer.policy, studied.held_out), studied.pool
    instances = trainer.progress.samples if pool is None else len(pool)
    return manifest_of(
        trainer,
        name,
        TrainingData("uniform" if pool is None else "train", 0, instances, "exact labels", studied.name),
        notes=(
            f"Weights after the last update. On {found.instances} held-out instances: accuracy {found.value:.1f} % "
            f"+- {found.ci95:.1f}; their most frequent class {100 * majority:.1f} %."
        ),
        digits=5,
    )


COURSE = Course("lra", LRARecipe, prepare)
