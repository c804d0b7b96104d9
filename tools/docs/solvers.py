"""A page per solver, from its card, the weights that ship, and what is stored of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tools.docs.markdown import definitions, facts, folded, plain, shell, table, toctree
from tools.docs.pictures import Picture
from tools.docs.records import SHOWN, Stored

if TYPE_CHECKING:
    from nco_bench.cards import Card
    from nco_bench.weights.store import WeightsFile

EXAMPLE = {
    "tsp": "tsp100:count=16", "cvrp": "cvrp100:count=16", "bpp3d": "bpp3d20:120x100:count=4",
    "algorithmic": "knapsack:length-ood", "algorithmic-regression": "fractional-knapsack", "lra": "lra-listops",
}  # fmt: skip
DATA_OF = {"supervised": " --data LABELS", "tasks": " --data knapsack", "lra": " --data lra-listops"}
"""What training needs, by the first way to learn of a card."""

ROOMS = {
    "classical": "Classical solvers",
    "stepwise": "Networks that encode once, or look around, and decode step by step",
    "path": "Networks for the path problem",
    "divide": "Divide and conquer",
    "edges": "Heat maps of edges",
    "packing": "Packing",
    "sequences": "Sequences and algorithmic tasks",
}


def pages(pictures: Mapping[str, Picture], stored: Mapping[str, list[Stored]]) -> dict[str, str]:
    """Return ``solvers/index`` and a page per card, without second names.

    Parameters
    ----------
    pictures, stored
        By solver; see `tools.docs.pictures` and `tools.docs.records`.
    """
    from nco_bench.cards import cards
    from nco_bench.weights.shelf import list_weights
    from nco_bench.weights.store import SHIPPED

    shipped = list_weights((SHIPPED,))
    known = cards()
    made = {}
    for name, one in known.items():
        made[f"solvers/{name}"] = _page(one, shipped, pictures.get(name), stored.get(name, []))
    made["solvers/index"] = _index(known)
    return made


def _index(known: Mapping[str, Card]) -> str:
    parts = [
        "# Solvers\n\nA page each, made from its card: the paper, what it solves, how it decodes, its parameters, recipes, "
        "weights and numbers. `nco-bench show NAME` prints the same.\n",
    ]
    for room, title in ROOMS.items():
        own = {name: one for name, one in known.items() if (one.family or "") == room}
        rows = [
            [f"[{name}]({name}.md)", _problems(one), plain(one.venue or one.kind)]
            for name, one in own.items()
        ]
        parts += [f"## {title}\n", table(["solver", "problems", "from"], rows), toctree(own)]
    return "\n".join(parts)


def _page(known: Card, shipped: list[WeightsFile], picture: Picture | None, stored: list[Stored]) -> str:
    own = [one for one in shipped if one.manifest.model == (known.weights_of or known.model)]
    parts = [f"# {known.name}\n", _lead(known) + "\n"]
    if picture is not None:
        parts.append(
            f"```{{figure}} ../pictures/{picture.file}\n:alt: A solution found by {known.name}\n:figclass: solution\n\n"
            f"{picture.caption}\n```\n"
        )
    parts += [_facts(known), "## Run it\n", _running(known, own)]
    if known.decodings:
        parts += ["## Decodings\n", definitions(_decodings(known))]
    if known.params:
        said = {f"`{name}`": plain(meaning) for name, meaning in known.params.items()}
        parts += [
            "## Parameters\n",
            f"As `{known.name}:NAME=VALUE`; defaults in brackets.\n",
            definitions(said),
        ]
    parts += _weights(known, own)
    parts += _recipes(known)
    parts += _numbers(known, stored)
    parts += ["## Caveats\n", "\n".join(f"- {line}" for line in _caveats(known, own, picture)) + "\n"]
    return "\n".join(parts)


def _problems(known: Card) -> str:
    names = {"tsp": "TSP", "cvrp": "CVRP", "bpp3d": "3D bin packing"}
    return " and ".join(names.get(one, one) for one in known.problems)


def _lead(known: Card) -> str:
    what = {"neural": "A network", "exact": "An exact solver"}.get(known.kind, f"A {known.kind}")
    other = f" Another name of [{known.alias_of}]({known.alias_of}.md)." if known.alias_of else ""
    return f"{what} for {_problems(known)}.{other}"


def _facts(known: Card) -> str:
    sizes = ", ".join(
        f"{count:,}" if len(known.parameters) == 1 else f"{count:,} ({plain(what)})"
        for what, count in known.parameters.items()
    )
    return facts(
        {
            "Paper": plain(known.paper),
            "Its tables": _tables(known),
            "Venue": plain(known.venue),
            "Official code": _repository(known.repository),
            "Weights in the network": sizes,
            "Looks at": plain(known.graph),
            "Licence": plain(known.licence),
            "Needs": f"`{known.install}`" if known.install else "nothing besides nco-bench",
            "Version": f"{known.version}, bumped when its solutions change",
        }
    )


def _repository(named: str) -> str:
    """Return a link to a repository, which a card names by owner and name or by its address."""
    address = named if named.startswith("https://") else f"https://github.com/{named}"
    return f"[{address.removeprefix('https://github.com/')}]({address})" if named else ""


def _tables(known: Card) -> str:
    from nco_bench.papers.published import list_papers

    found = [paper for paper, about in list_papers().items() if about["title"] == known.paper]
    return f"[published and measured](../papers/{found[0]}.md)" if found else ""


def _running(known: Card, own: list[WeightsFile]) -> str:

    lines = [f"nco-bench run {known.name} --data {EXAMPLE[one]}" for one in known.problems if one in EXAMPLE]
    return _first(known, own) + shell(*lines)


def _first(known: Card, own: list[WeightsFile]) -> str:
    """Say where the weights come from, and what has to be done before."""
    from nco_bench.solvers.readiness import readiness

    if known.kind != "neural":
        return ""
    ready = readiness(known)
    lines = "\n".join(ready.commands.values()).splitlines()
    commands = [line for line in dict.fromkeys(lines) if line.startswith("nco-bench")]
    if not commands:
        return "Its weights ship with nco-bench.\n\n"
    ships = (
        "Weights for some of its problems ship; for the rest:"
        if own
        else "No weights of it ship; they come from:"
    )
    before = f"{plain(ready.before)}\n\n" if ready.before else ""
    return f"{ships}\n\n{before}{shell(*commands)}\nThen:\n\n"


def _decodings(known: Card) -> dict[str, str]:
    from nco_bench.solvers.decoding.spec import DECODINGS, X8

    said = {}
    for place, name in enumerate(known.decodings):
        kind = DECODINGS.get(name.partition(":")[0])
        meaning = kind.meaning if kind else X8 if name == "x8" else ""
        said[f"`{name}`"] = plain(meaning) + (" (the default)" if place == 0 else "") or "see the paper"
    return said


def _weights(known: Card, own: list[WeightsFile]) -> list[str]:
    if not own and not known.official:
        return []
    parts = ["## Weights\n"]
    if own:
        if known.weights == "task":
            tasks = sorted({one.manifest.name for one in own})
            parts.append(
                f"{len(tasks)} files ship, one per task and seed; `nco-bench list weights` names them.\n"
            )
        else:
            rows = [_shipped(one) for one in sorted(own, key=lambda one: one.manifest.name)]
            parts += [
                "Shipped, trained by this code:\n",
                table(["name", "samples", "of the paper's", "measured"], rows),
            ]
    if known.official:
        rows = [
            [f"`{one.name}`", one.problem, plain(one.note or "training was not ours")]
            for one in known.official
        ]
        parts += [
            "The authors' own, fetched and verified by `nco-bench weights pull NAME`:\n",
            table(["name", "problem", "trained"], rows),
        ]
    elif known.weights_from:
        parts.append(f"The authors keep theirs elsewhere: {plain(known.weights_from)}\n")
    return parts


def _shipped(one: WeightsFile) -> list[str]:
    manifest = one.manifest
    gap = manifest.validation[0] if manifest.validation else None
    measured = (
        "–" if gap is None or gap.gap_percent is None else f"{gap.gap_percent:.1f} % on {plain(gap.on)}"
    )
    share = "–" if manifest.share_of_paper is None else f"{100 * manifest.share_of_paper:.2g} %"
    return [f"`{manifest.name}`", f"{manifest.samples:,}", share, measured]


def _recipes(known: Card) -> list[str]:
    """Return the recipes by way to learn; each folds up, what is our choice in it stands apart."""
    from nco_bench.training.recipes import recipe_of

    parts: list[str] = []
    for learner, recipes in known.recipes.items():
        if learner not in (*known.learners, *known.learners_if_asked):
            continue
        parts.append(f"### Recipes: {learner}\n")
        for name in recipes:
            values = recipe_of(known, learner, name)
            source, nodes = values.pop("source", ""), values.pop("nodes", 0)
            ours, also = values.pop("ours", {}), values.pop("also", {})
            body = table(["setting", "value"], [[f"`{key}`", f"`{value}`"] for key, value in values.items()])
            labels = f" Labels of {nodes:,} nodes." if nodes else ""
            body = (f"Source: {plain(source)}.{labels}\n\n" if source else "") + body
            if also:
                rest = "; ".join(f"`{key}` {', '.join(map(str, more))}" for key, more in also.items())
                body += f"\nFor other rows of its tables the paper has, too: {rest}.\n"
            if ours:
                body += "\nOur choice, since the paper does not say it or says something else:\n\n"
                body += table(["setting", "why"], [[f"`{key}`", plain(why)] for key, why in ours.items()])
            parts.append(folded(name, body))
    if not parts:
        return []
    return ["## Training\n", *_how_to_train(known), *parts]


def _how_to_train(known: Card) -> list[str]:
    data = DATA_OF.get(next(iter(known.learners), ""), "")
    lines = [f"nco-bench train {known.model}{data} --budget 2h"]
    said = "What is not given below is the default of `nco_bench/training/recipes.py`; see [training](../training.md).\n"
    return [shell(*lines), said]


def _numbers(known: Card, stored: list[Stored]) -> list[str]:
    if not stored:
        return []
    rows = [_number(one) for one in stored[:SHOWN]]
    more = f" {len(stored) - SHOWN} more cells are stored." if len(stored) > SHOWN else ""
    said = (
        f"From the stored records, those with most instances first.{more} Gap: mean over instances, in percent, to the best "
        "reference known, with its 95 % interval. Time: seconds per instance in the batches of that run, on machines that "
        "were often busy; see [protocol](../protocol.md).\n"
    )
    return [
        "## Measured\n",
        said,
        table(["as", "dataset", "instances", "cost", "gap", "time"], rows, right=(2, 3, 4, 5)),
    ]


def _number(one: Stored) -> list[str]:
    gap = "–" if one.gap is None else f"{one.gap:.2f}"
    if one.gap is not None and one.low is not None and one.high is not None:
        gap += f" [{one.low:.2f}, {one.high:.2f}]"
    cost = "–" if one.cost is None else f"{one.cost:.5g}"
    seconds = "–" if one.seconds is None else f"{one.seconds:.2g}"
    name = " ".join(part for part in (one.label, one.decoding) if part)
    return [_breaking(name), _breaking(one.dataset), f"{one.instances:,}", cost, plain(gap), seconds]


def _breaking(name: str) -> str:
    """Let a long name break where its parts meet."""
    return plain(name).replace(":", ":<wbr>")


def _caveats(known: Card, own: list[WeightsFile], picture: Picture | None) -> list[str]:
    lines = [plain(known.note)[:1].upper() + plain(known.note)[1:] + "."] if known.note else []
    if own and any((one.manifest.share_of_paper or 0) < 0.5 for one in own):
        lines.append(
            "The shipped weights are trained far less than the paper's: take them as working examples, not as the paper's "
            "results. See [weights](../weights.md)."
        )
    lines.append(
        "Same version, seed and device: the same solutions, bit for bit on the CPU, without a time limit."
        if known.deterministic
        else "Not deterministic: the same seed may give another solution."
    )
    if known.clock == "processor":
        lines.append("A time limit counts processor time, not wall time.")
    if "academic" in known.licence or "commercial" in known.licence:
        lines.append(f"Licence: {plain(known.licence)}.")
    if picture is None and {*known.problems} & {"tsp", "cvrp", "bpp3d"}:
        lines.append("No picture here: no solution of it is stored, and its weights do not ship.")
    return lines
