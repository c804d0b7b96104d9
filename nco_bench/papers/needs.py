"""What an open cell needs before it can run here, weights or the coordinate scale of a size, with the command for it."""

from __future__ import annotations

from nco_bench.datasets.libraries import select
from nco_bench.datasets.names import stream_of
from nco_bench.papers.preset import CellPreset
from nco_bench.papers.reproducing import problem_of

FACTORS = 20
"""About how many factors ``nco-bench calibrate`` tries at a size."""
HELD_OUT = 32
"""Instances that it solves with each."""


def weights_needed(preset: CellPreset, size: float | None, paper: str = "") -> str:
    """Name the command that gets a cell's weights, and the git blob hash of the file where the authors publish one.

    Weights that a preset calls by a name that no published file has are a network of the paper's campaign. Empty where the
    weights are shipped, pulled, or in the mirror, and for solvers without any; nothing is imported.
    """
    from nco_bench.cards import card, official_weights, weights_owner
    from nco_bench.weights.choice import at_hand, campaign_training, default_weights, how_to_get, lra_training
    from nco_bench.weights.pulling import in_mirror

    solver, owner = (name := preset.solver.partition(":")[0]), weights_owner(name)
    problem = problem_of(preset)
    info, table = card(solver), official_weights()
    if info.kind != "neural" or "random" in preset.weights:
        return ""
    if info.problems == ("lra",):
        tasks = [name.partition(":")[0] for name in (*preset.data[:1], *preset.mean_of)]
        return next((lra_training(solver, task) for task in tasks if not at_hand(f"{solver}-{task}")), "")
    if not preset.weights and problem not in info.problems:
        return ""  # networks of one task find their own
    if problem == "bpp3d" and not preset.weights:
        return "" if at_hand(solver) else how_to_get(solver, problem).command
    wanted = preset.weights or (default_weights(solver, problem, round(size or 100)),)
    full = [n for one in wanted for n in (one, f"{solver}-{one}", f"{owner}-{one}")]
    if any(at_hand(name) or (name in table and in_mirror(table[name])) for name in full):
        return ""
    named = next((table[name] for name in full if name in table), None)
    if named is None and preset.weights and paper:
        return campaign_training(paper, preset.weights[0])
    same = (one for one in table.values() if (one.model, one.problem) == (owner, problem))
    found = named or next(same, None)
    if found is not None:
        return f"nco-bench weights pull {found.name} (git blob {found.git_blob_sha1})"
    advice = how_to_get(solver, problem)
    return f"{advice.before}, then {advice.command}" if advice.before else advice.command


def calibration_needed(preset: CellPreset, size: float | None) -> str:
    """Name the command that calibrates a cell's weights for its sizes; empty where they are, or nothing asks for it."""
    from nco_bench.errors import BadWeightsError
    from nco_bench.weights.calibration import calibrate_command, read_calibration
    from nco_bench.weights.choice import find

    if preset.coordinate_scale != "auto" or size is None:
        return ""
    solver, weights = preset.solver.partition(":")[0], next(iter(preset.weights), "")
    try:
        known = read_calibration(find(weights or solver, solver, problem_of(preset)))
    except BadWeightsError:
        return ""  # those are missing first
    low, high = _ends(next(iter(preset.data), ""), size)
    if known and known[0].n <= low and high <= known[-1].n:
        return ""
    return f"{calibrate_command(solver, weights or None)} --sizes {','.join(str(n) for n in sorted({low, high}))}"


def _ends(name: str, size: float) -> tuple[int, int]:
    """The smallest and the largest size of a dataset by its name."""
    if stream_of(name) is None and name.startswith(("tsplib", "cvrplib")):
        sizes = [entry.n for entry in select(name)]
        return min(sizes), max(sizes)
    return round(size), round(size)


def program_needed(preset: CellPreset, size: float | None) -> str:
    """Say that the package through which a classical solver runs here takes no instances of this size; else empty."""
    from nco_bench.cards import card
    from nco_bench.solvers.classical.native import ChildSolver
    from nco_bench.solvers.protocol import SolverOptions
    from nco_bench.solvers.registry import choose, create

    if card(preset.solver.partition(":")[0]).kind == "neural":
        return ""
    solver, problem = create(choose(preset.solver, SolverOptions())), problem_of(preset)
    if not isinstance(solver, ChildSolver):
        return ""
    backend, most = solver.backend(problem), solver.MAX_N.get(problem)
    if backend is None or backend.kind == "executable" or most is None or (size or 0) <= most:
        return ""
    return f"{solver.NAME} with {backend} takes at most {most:,} nodes; {solver.info.install}"
