"""``train --executor slurm``: one job trains a model, or one job per network of a campaign; watching and collecting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nco_bench.cards import first_name
from nco_bench.datasets.places import Places
from nco_bench.errors import BadInputError
from nco_bench.nn.device import CPU, CUDA, kind, on_cpu
from nco_bench.runs.cluster.profile import Profile
from nco_bench.runs.cluster.running import announce
from nco_bench.runs.cluster.state import read, result_of
from nco_bench.runs.cluster.status import troubles, wait
from nco_bench.runs.cluster.submitting import Order, submit
from nco_bench.runs.cluster.work import Call
from nco_bench.runs.records import record_key
from nco_bench.training.campaign import chosen_stages
from nco_bench.training.campaign_file import Stage, planned, read_campaign
from nco_bench.training.job import as_document
from nco_bench.training.options import refuse_own_name
from nco_bench.training.run import checked, refuse_taken, weights_path

JOB = "nco_bench.training.job"
ONE_PROCESS = {"processes": 1, "nodes": 1}


@dataclass(frozen=True)
class Trained:
    """What became of jobs that train.

    Attributes
    ----------
    submissions
        Their ids; none where another command's jobs do it.
    results
        What each job came to, as `TrainResult.as_dict` or `CampaignResult.as_dict` say; none of those that run still.
    troubles
        A line for each job that failed or is lost.
    """

    submissions: tuple[str, ...]
    results: tuple[dict[str, Any], ...] = ()
    troubles: tuple[str, ...] = ()


def train_on_slurm(
    arguments: Mapping[str, Any], profile: Profile, tell: Callable[[str], None], *, detach: bool, command: str
) -> Trained:
    """Submit one training, and wait for it unless `detach`.

    Parameters
    ----------
    arguments
        Of `run.train`; ``budget_s`` is the time of all its jobs together.
    profile, tell, command
        What jobs ask for, who is told, and the command as it was given.

    Raises
    ------
    NcoBenchError
        For what can be refused before anything is submitted, and in SLURM's own words.
    """
    model, out = arguments["model"], weights_path(arguments["out"], arguments["model"])
    budget = arguments["budget_s"]
    _, options, _, recipe = checked(
        model, arguments["data"], arguments["config"], budget, arguments["validation"]
    )
    if not arguments["resume"]:
        refuse_own_name(out, first_name(model), options)
    call, gpu = _for_device(arguments["device"], profile)
    launch = {"processes": profile.processes or max(1, profile.gpus if gpu else 1), "nodes": profile.nodes}
    values = {**arguments, "out": str(out.resolve()), "places": as_document(arguments["places"]), **call}
    values |= {key: arguments[key] and str(arguments[key]) for key in ("tensorboard", "branch")}
    values["validation"] = [str(path) for path in arguments["validation"]]
    if budget is not None:
        values |= {"total_s": budget, "planned_s": None if recipe.steps else budget}
    one = Call(
        f"{JOB}:train_model", {**values, "launch": launch}, record_key({"trained": str(out.resolve())}),
        f"train {model}", recipe.steps, profile.nodes,
    )  # fmt: skip
    order = Order(out.parent, command, profile, profile.parallel, calls=((one, gpu),))

    def refuse() -> None:
        if not arguments["resume"]:
            refuse_taken(out)

    return _run(order, tell, detach=detach, refuse=refuse)


def campaign_on_slurm(
    file: Path,
    folder: Path,
    data: Sequence[str],
    only: Sequence[str],
    settings: tuple[str, int, Places],
    profile: Profile,
    tell: Callable[[str], None],
    *,
    detach: bool,
    command: str,
) -> Trained:
    """Submit a campaign: a job per network, which takes its slices one after the other.

    A stage that begins with another's weights follows it in the same job. One process trains, with one GPU at most.

    Parameters
    ----------
    file, folder, data, only
        As `run_campaign` takes them.
    settings
        Device, seed and places.
    profile, tell, command
        As for `train_on_slurm`.
    """
    stages = chosen_stages(read_campaign(file), only)
    device, seed, places = settings
    if profile.nodes > 1 or (profile.processes or 1) > 1:
        raise BadInputError(
            f"{file}: networks of a campaign are trained by one process each; leave nodes and processes out."
        )
    profile = replace(profile, gpus=min(1, profile.gpus))
    chosen, gpu = _for_device(device, profile)
    planned([replace(one, data=one.data or tuple(data)) for one in stages])
    calls = []
    for chain in chains(stages):
        names = [stage.name for stage in chain]
        arguments = {
            "file": str(file.resolve()), "folder": str(folder.resolve()), "data": [str(one) for one in data],
            "seed": seed, "places": as_document(places), "only": names, "launch": ONE_PROCESS, **chosen,
        }  # fmt: skip
        claim = record_key({"trained": str(folder.resolve()), "stage": names[0]})
        turns = sum(stage.turns for stage in chain)
        calls.append(
            (Call(f"{JOB}:train_campaign", arguments, claim, "train " + ", ".join(names), turns), gpu)
        )
    return _run(Order(folder, command, profile, profile.parallel, calls=tuple(calls)), tell, detach=detach)


def chains(stages: Sequence[Stage]) -> list[list[Stage]]:
    """Return stages in groups that do not need each other; one that begins with another's weights is in its group."""
    groups: list[list[Stage]] = []
    of: dict[str, list[Stage]] = {}
    for stage in stages:
        group = of.get(stage.start or "")
        if group is None:
            group = []
            groups.append(group)
        group.append(stage)
        of[stage.name] = group
    return groups


def _for_device(device: str, profile: Profile) -> tuple[dict[str, str], bool]:
    """Return the device that jobs train on, and whether they ask for the profile's GPUs; there may be none here."""
    if on_cpu(device) or not profile.gpus:
        if kind(device) == CUDA:
            raise BadInputError(f"--device {device}: the profile has no GPUs; add --slurm gpus=1.")
        return {"device": CPU}, False
    return {"device": CUDA}, True


def _run(
    order: Order, tell: Callable[[str], None], *, detach: bool, refuse: Callable[[], None] = lambda: None
) -> Trained:
    done = submit(order, tell, refuse)
    announce(done, tell)
    folders = [one for one in (done.own, *done.others) if one is not None]
    names = tuple(folder.name for folder in folders)
    if detach:
        return Trained(names)
    ended = wait(folders, tell)
    wanted = {call.claim for call, _ in order.calls}
    found = [
        result_of(folder, index)
        for folder in folders
        for index, task in enumerate(read(folder).tasks)
        if task.call is not None and task.call.claim in wanted
    ]
    lines = [line for one in ended for line in troubles(one)]
    return Trained(names, tuple(one for one in found if one is not None), tuple(lines))
