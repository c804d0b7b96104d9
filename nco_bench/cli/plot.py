"""``nco-bench plot tour|pareto|anytime|scaling|laws|training|scatter|attention|calibration|sightedness|features``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nco_bench.cli.options import (
    DEFAULT_FOLDERS,
    DEFAULT_INSTANCES,
    DEFAULT_RESULTS,
    Instances,
    ResultFolders,
    Results,
)
from nco_bench.errors import counted

if TYPE_CHECKING:
    from nco_bench.datasets.dataset import Dataset
    from nco_bench.reports.frame.result_frame import ResultFrame

group = typer.Typer(help="Plots as PNG, PDF or SVG.", no_args_is_help=True)


def _picture(context: typer.Context, value: Path) -> Path:
    """Check the file's ending, before records are read and networks run for minutes; raises `BadInputError`."""
    if not context.resilient_parsing:
        from nco_bench.reports.figures.style import checked_target

        checked_target(value)
    return value


Out = Annotated[Path, typer.Option("--out", help="File that ends in .png, .pdf or .svg.", callback=_picture)]
Data = Annotated[list[str] | None, typer.Option("--data", help="Only these datasets; repeatable.")]
Solvers = Annotated[list[str] | None, typer.Option("--solver", help="Only these solvers; repeatable.")]


@group.command()
def tour(
    data: Annotated[str, typer.Option("--data", help="Dataset name or file.")],
    out: Out,
    solver: Annotated[
        str | None,
        typer.Option("--solver", help="Draw this solver's stored solution; 'reference' draws the reference."),
    ] = None,
    decoding: Annotated[str | None, typer.Option("--decoding", help="Of this decoding.")] = None,
    instance: Annotated[int, typer.Option("--instance", help="Which instance, counted from 1.", min=1)] = 1,
    results: Results = DEFAULT_RESULTS,
    instances: Instances = DEFAULT_INSTANCES,
) -> None:
    """Draw an instance, and a solution of it."""
    from nco_bench.cli.output import say
    from nco_bench.datasets.load import Places, load_dataset
    from nco_bench.reports.figures.solutions import draw_solution

    dataset = load_dataset(data, Places.from_environment(instances))
    say(f"written to {draw_solution(dataset, instance - 1, solver, decoding, results, out)}")


@group.command()
def packing(
    data: Annotated[str, typer.Option("--data", help="Dataset name or file of bpp3d instances.")],
    solver: Annotated[
        str,
        typer.Option("--solver", help="Draw this solver's stored packing; 'reference' draws the reference."),
    ],
    out: Out,
    decoding: Annotated[str | None, typer.Option("--decoding", help="Of this decoding.")] = None,
    instance: Annotated[int, typer.Option("--instance", help="Which instance, counted from 1.", min=1)] = 1,
    results: Results = DEFAULT_RESULTS,
    instances: Instances = DEFAULT_INSTANCES,
) -> None:
    """Draw a packing of boxes in three dimensions."""
    from nco_bench.cli.output import say
    from nco_bench.datasets.load import Places, load_dataset
    from nco_bench.reports.figures.solutions import draw_solution

    dataset = load_dataset(data, Places.from_environment(instances))
    say(f"written to {draw_solution(dataset, instance - 1, solver, decoding, results, out)}")


@group.command()
def pareto(
    out: Out,
    data: Data = None,
    solver: Solvers = None,
    results: ResultFolders = DEFAULT_FOLDERS,
    instances: Instances = DEFAULT_INSTANCES,
) -> None:
    """Gap against time."""
    from nco_bench.cli.output import say
    from nco_bench.reports.figures import plots

    say(f"written to {plots.pareto(_frame(results, instances, data, solver), out)}")


@group.command(short_help="Mean gap against time, for solvers that improve.")
def anytime(
    out: Out,
    data: Data = None,
    solver: Solvers = None,
    results: ResultFolders = DEFAULT_FOLDERS,
    instances: Instances = DEFAULT_INSTANCES,
) -> None:
    """Mean gap against time, for solvers that improve their solution (rrc, prc)."""
    from nco_bench.cli.output import say
    from nco_bench.reports.figures.anytime import anytime_curves
    from nco_bench.reports.figures.plots import anytime as draw

    frame = _frame(results, instances, data, solver)
    say(f"written to {draw(anytime_curves(frame), out, frame.solvers)}")


@group.command()
def scaling(
    out: Out,
    data: Data = None,
    solver: Solvers = None,
    results: ResultFolders = DEFAULT_FOLDERS,
    instances: Instances = DEFAULT_INSTANCES,
) -> None:
    """Gap against instance size."""
    from nco_bench.cli.output import say
    from nco_bench.reports.figures import plots

    say(f"written to {plots.scaling(_frame(results, instances, data, solver), out)}")


@group.command()
def laws(
    out: Out,
    figure: Annotated[
        str,
        typer.Option(
            "--figure",
            help="2a: one law for all; 2b: per depth; 2c: per width; 3: samples; 4a, 4b: compute by width, by depth; "
            "5: by depth over width; 6: time.",
        ),
    ] = "2a",
    results: Annotated[
        list[Path] | None,
        typer.Option("--results", help="Add our decoders' gaps from these records; repeatable."),
    ] = None,
    log: Annotated[
        list[Path] | None, typer.Option("--log", help="Figure 3: CSV log of a training run; repeatable.")
    ] = None,
    instances: Instances = DEFAULT_INSTANCES,
) -> None:
    """Power laws of decoder scaling, Figures 1 to 6."""
    from nco_bench.cli.output import say
    from nco_bench.papers.decoder_scaling.law_figures import draw_laws
    from nco_bench.reports.frame.load import load_frame

    frame = load_frame(results, instances) if results else None
    say(f"written to {draw_laws(figure, out, frame, log or ())}")


@group.command()
def training(
    log: Annotated[list[Path], typer.Argument(help="CSV logs of training runs.")],
    out: Out,
    level: Annotated[
        list[str] | None,
        typer.Option("--level", help="A line at a value of the measure, such as paper=0.34; repeatable."),
    ] = None,
) -> None:
    """Loss and validation gap against steps."""
    from nco_bench import settings
    from nco_bench.cli.output import say
    from nco_bench.reports.figures import training_curves

    given = settings.pairs("--level", level or [])
    levels = {name: settings.parse(f"--level {name}", text, float) for name, text in given.items()}
    training_curves.training(log, out, levels, tell=say)
    say(f"written to {out}")


@group.command()
def scatter(
    solver_a: Annotated[str, typer.Argument(help="A row of the table, or a solver's name.")],
    solver_b: Annotated[str, typer.Argument(help="The other one.")],
    data: Annotated[str, typer.Option("--data", help="Dataset that both were run on.")],
    out: Out,
    results: ResultFolders = DEFAULT_FOLDERS,
    instances: Instances = DEFAULT_INSTANCES,
) -> None:
    """Gaps of two solvers against each other, a point per instance."""
    from nco_bench.cli.output import say
    from nco_bench.reports.figures import plots

    say(f"written to {plots.scatter(_frame(results, instances), solver_a, solver_b, data, out)}")


@group.command()
def attention(
    solver: Annotated[
        str, typer.Argument(help="pens-a, pens-r, pens-ar, coordns, ...; pens-a:weights=FILE.")
    ],
    out: Out,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            help="Dataset; default: tsp1000 for PENS, whose Figure 6 has 10,000 cities, a task for others.",
        ),
    ] = None,
    instance: Annotated[int, typer.Option("--instance", help="Which instance, counted from 1.", min=1)] = 1,
    scale: Annotated[
        list[float] | None, typer.Option("--scale", help="PENS: coordinate scale; repeatable.", min=1e-6)
    ] = None,
    instances: Instances = DEFAULT_INSTANCES,
) -> None:
    """What a network attends to."""
    from nco_bench.cli.output import say
    from nco_bench.datasets.places import Places
    from nco_bench.papers.attention import draw

    places = Places.from_environment(instances)
    draw(solver, data=data, instance=instance - 1, scales=scale or [1.0, 1.5, 2.0], places=places, out=out)
    say(f"written to {out}")


@group.command(short_help="Score of the task networks against the length.")
def lengths(
    data: Annotated[str, typer.Option("--data", help="Algorithmic task, such as quickselect.")],
    out: Out,
    length: Annotated[
        list[int] | None, typer.Option("--n", help="Length; repeatable. Default: 8 to 1,024.", min=2)
    ] = None,
    count: Annotated[int, typer.Option("--count", help="Instances of each length.", min=1)] = 64,
    weights: Annotated[str | None, typer.Option("--weights", help="seedK, or random.")] = None,
) -> None:
    """Score of the task networks against the length; the numbers go to a CSV file beside the picture."""
    from nco_bench.cli.output import say
    from nco_bench.papers.tropical.attention import draw_lengths
    from nco_bench.reports.figures.attention import numbers_of

    picture = draw_lengths(data, length, count, weights, out)
    say(f"written to {picture} and {numbers_of(picture)}")


@group.command(short_help="Tour length against coordinate scale.")
def calibration(
    model: Annotated[str, typer.Argument(help="Model, such as pens-a.")],
    out: Out,
    weights: Annotated[str | None, typer.Option("--weights", help="Name or file of the weights.")] = None,
) -> None:
    """Tour length against coordinate scale, as 'nco-bench calibrate' found it, with the quadratic fits."""
    from nco_bench.cli.output import say
    from nco_bench.papers.pens.figure_3 import draw_calibration

    draw_calibration(model, weights, out)
    say(f"written to {out}")


@group.command(short_help="How often a network picks the right node, by its nearness.")
def sightedness(
    solvers: Annotated[list[str], typer.Argument(help="Path models, such as decoder-6x128 or pens-a.")],
    out: Out,
    data: Annotated[
        str, typer.Option("--data", help="TSP instances of one size with reference tours.")
    ] = "tsp100",
    limit: Annotated[int, typer.Option("--limit", help="The first K instances.", min=1)] = 1000,
    instances: Instances = DEFAULT_INSTANCES,
) -> None:
    """How often a network picks the right node, by how near that node is."""
    from nco_bench.cli.output import say
    from nco_bench.datasets.load import Places, load_dataset
    from nco_bench.papers.representations import long_sightedness
    from nco_bench.reports.figures import networks as network_plots

    dataset = load_dataset(data, Places.from_environment(instances))
    lines = [long_sightedness(s, dataset, limit) for s in solvers]
    network_plots.long_sightedness(lines, out, _first_of(dataset, limit))
    say(f"written to {out}")


def _first_of(dataset: Dataset, limit: int) -> str:
    """Say which instances a picture is of."""
    return f"{dataset.name}, {counted(min(limit, len(dataset)), 'instance')}"


@group.command(short_help="Gap of SIT networks against the repeats of the last node.")
def repeats(
    solvers: Annotated[list[str], typer.Argument(help="SIT networks, such as sit:weights=FILE.")],
    out: Out,
    data: Annotated[
        str, typer.Option("--data", help="TSP instances of one size with references.")
    ] = "fu_tsp1000",
    limit: Annotated[int, typer.Option("--limit", help="The first K instances.", min=1)] = 128,
    instances: Instances = DEFAULT_INSTANCES,
) -> None:
    """Greedy gap of SIT networks against how often the last node is repeated (SIT, Figure 3)."""
    from nco_bench.cli.output import say
    from nco_bench.datasets.load import Places, load_dataset
    from nco_bench.papers.sit.figure_3 import gaps_by_repeats
    from nco_bench.reports.figures import networks as network_plots

    dataset = load_dataset(data, Places.from_environment(instances))
    points = gaps_by_repeats(solvers, dataset, limit)
    network_plots.gaps_by_repeats(points, out, _first_of(dataset, limit))
    for point in points:
        say(
            f"{counted(point.repeats, 'repeat')}: gap {point.mean:.3f} +- {point.half_width:.3f} %, n = {len(point.gaps)}"
        )
    say(f"written to {out}")


@group.command(short_help="Features after the last layer: PCA or similarities.")
def features(
    solvers: Annotated[list[str], typer.Argument(help="Path models, such as decoder-6x128.")],
    out: Out,
    kind: Annotated[str, typer.Option("--kind", help="pca or cosine.")] = "pca",
    data: Annotated[str, typer.Option("--data", help="TSP instances with reference tours.")] = "tsp100",
    instance: Annotated[int, typer.Option("--instance", help="Which instance, counted from 1.", min=1)] = 1,
    step: Annotated[
        int,
        typer.Option(
            "--step",
            help="Nodes of the reference tour passed before; at the first, two choices are right.",
            min=1,
        ),
    ] = 1,
    instances: Instances = DEFAULT_INSTANCES,
) -> None:
    """Features of the candidates after the last layer: principal components, or cosine similarities."""
    from nco_bench.cli.output import say
    from nco_bench.datasets.load import Places, load_dataset
    from nco_bench.errors import UnknownNameError
    from nco_bench.papers.representations import candidate_features
    from nco_bench.reports.figures import networks as network_plots

    kinds = {"pca": network_plots.feature_pca, "cosine": network_plots.cosine_maps}
    if kind not in kinds:
        raise UnknownNameError("kind of feature plot", kind, kinds)
    dataset = load_dataset(data, Places.from_environment(instances))
    panels = [candidate_features(s, dataset, instance - 1, step) for s in solvers]
    kinds[kind](panels, out, f"{dataset.name}, instance {instance}, {counted(step, 'node')} passed")
    say(f"written to {out}")


def _frame(
    results: list[Path], instances: Path, data: list[str] | None = None, solver: list[str] | None = None
) -> ResultFrame:
    from nco_bench.reports.frame.load import load_frame

    frame = load_frame(results, instances)
    return frame.select(datasets=data or (), solvers=solver or ()) if data or solver else frame


def add_to(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(group, name="plot")
