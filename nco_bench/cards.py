"""Cards: all that is known of a solver without running it. Reading them imports neither torch nor any solver.

A card is a TOML file beside the code, ``solvers/FAMILY/NAME.toml``; what a whole family shares stands in its
``family.toml``, and a card of several solvers names them in ``[variants.NAME]`` with what differs. Installed packages bring
cards of their own through the entry point ``nco_bench.solvers``, whose value is a package with cards (or one class,
``module:Class``, which then has no card). Keys are the attributes of `Card`; besides:

- ``solver`` and ``network`` name ``module:Class`` and ``module`` in the card's own folder;
- ``family``, in cards of other packages, names the family whose defaults they take;
- ``[[official]]`` describes one official weights file; see `OfficialFile`;
- ``[recipes.LEARNER.NAME]`` holds a recipe: fields of the learner's recipe that differ from its defaults or from those of
  the recipe that it is ``like``; ``source`` says which paper states it, ``ours`` what in it is our choice. The first is the
  default.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from nco_bench.errors import BadInputError, UnknownNameError

ROOMS = Path(__file__).parent / "solvers"
ENTRY_POINTS, FAMILY = "nco_bench.solvers", "family.toml"
FAMILIES = ("classical", "stepwise", "path", "divide", "edges", "packing", "sequences")
"""In the order in which lists show them; those of other packages follow."""
KINDS = ("exact", "metaheuristic", "heuristic", "neural", "external")
RAW = "https://raw.githubusercontent.com/{repository}/{commit}/{path}"


@dataclass(frozen=True)
class OfficialFile:
    """One official weights file: where it is, and the git blob hash that it must have.

    Attributes
    ----------
    name, model, problem
        What ``--weights`` takes, the solver whose card names it, and what it solves.
    repository, commit, path
        On GitHub.
    git_blob_sha1
        Under which git stores its content.
    size_bytes
        0 where it is not known.
    note
        What it was trained on, and whatever else a reader should know.
    """

    name: str
    model: str
    problem: str
    repository: str
    commit: str
    path: str
    git_blob_sha1: str
    size_bytes: int = 0
    note: str = ""

    @property
    def url(self) -> str:
        """Address of the file at its commit."""
        return RAW.format(repository=self.repository, commit=self.commit, path=self.path)


@dataclass(frozen=True)
class Card:
    """What is known about a solver without importing it.

    Attributes
    ----------
    name
        What ``run`` takes; also its label in tables.
    target
        ``module:Class`` of the solver.
    problems
        What it solves.
    kind
        One of `KINDS`.
    paper, venue
        Title, authors and year of the source.
    repository
        Official code, ``owner/name`` on GitHub; empty where none is public.
    note
        What a reader of a table should know about it.
    network
        Module of its network, with ``config_for``, ``build`` and, for official checkpoints, ``from_official``; or empty.
    family
        Room that it lives in, or takes its defaults from.
    graph
        What it looks at: ``complete``, ``knn``, ...; empty where it does not apply.
    parameters
        Published number of weights by problem (or by what the network's size depends on), as exactly as the paper or its
        code gives it; of PENS, which prints two different ones, that of our network (see its note).
    glimpse
        Whether a decoder attends to what its encoder made; ``--logit-scale NAME:at=PLACE`` chooses between the two.
    decodings
        Those it understands, the default first; empty for classical solvers.
    version
        Bumped whenever its solutions change; part of every record's key.
    same_as
        By problem, older versions whose solutions are those of this one, where a bump was for other problems.
    packages
        Importable modules it needs; any alternative within a tuple is enough.
    licence, install
        Licence of the program or package behind it, and the one command that installs it.
    params
        Its parameters with their meaning and default.
    deterministic
        Whether the same seed gives the same solution when no time limit is set.
    clock
        What a time limit counts: ``wall`` time, or the ``processor`` time of programs that measure so themselves.
    alias_of
        Solver that this is another name of.
    weights
        Named by ``problem`` (``NAME``, ``NAME-PROBLEM``), ``task`` (``NAME-TASK...``) or ``any`` (what manifests say).
    weights_of
        Solver whose weights it runs with, where it is that network with another scale of logits.
    weights_from, weights_are
        Where the authors keep theirs, if outside of their repository, and what is downloaded there: ``FILE`` or ``FOLDER``.
    config_before
        What stored configurations without these fields had before there were such fields.
    official
        The official weights files.
    learners, learners_if_asked
        Ways to train it, the first that its data fit being the default; those that only ``learner=NAME`` brings.
    recipes
        By learner and name, as they stand in the file; see `recipe_of`.
    budget
        By learner: samples of the paper's own training, by problem or by problem and size (``tsp``, ``tsp1000``, ``any``).
    growth
        Power of the size by which its time grows in the end, where that is known; 0 where it is not.
    facts
        What only its family asks for.
    """

    name: str
    target: str
    problems: tuple[str, ...]
    kind: str
    paper: str = ""
    venue: str = ""
    repository: str = ""
    note: str = ""
    network: str = ""
    family: str = ""
    graph: str = ""
    parameters: Mapping[str, int] = field(default_factory=dict)
    glimpse: bool = False
    decodings: tuple[str, ...] = ()
    version: str = "1"
    same_as: Mapping[str, Sequence[str]] = field(default_factory=dict)
    packages: tuple[tuple[str, ...], ...] = ()
    licence: str = "MIT"
    install: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    deterministic: bool = True
    clock: str = "wall"
    alias_of: str = ""
    weights: str = "problem"
    weights_of: str = ""
    weights_from: str = ""
    weights_are: str = "FILE"
    config_before: Mapping[str, Any] = field(default_factory=dict)
    official: tuple[OfficialFile, ...] = ()
    learners: tuple[str, ...] = ()
    learners_if_asked: tuple[str, ...] = ()
    recipes: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    budget: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    growth: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """Name of the network that it runs: its own, or that of the solver that it is another name of."""
        return self.alias_of or self.name

    @property
    def size(self) -> int | None:
        """Number of weights for its first problem; of the task networks with three features per token, as printed."""
        return self.parameters.get(next(iter(self.problems), ""), self.parameters.get("features=3"))

    def paper_samples(self, learner: str, problem: str, size: int = 0) -> int | None:
        """Return the samples of the paper's own training, None where they are not known."""
        known = self.budget.get(learner, {})
        return next((known[key] for key in (f"{problem}{size}", problem, "any") if key in known), None)


OWN_KEYS = {f.name for f in fields(Card)} - {"name", "target"} | {"solver", "variants"}
MERGED = ("recipes", "facts")
"""Tables that a card adds to its family's, key by key; any other value replaces it."""


@cache
def cards() -> Mapping[str, Card]:
    """Return all cards by name: without networks first, then by family, kind and file.

    Raises
    ------
    BadInputError
        For a card that cannot be read, an unknown or missing key, or two solvers of one name.
    """
    found: dict[str, Card] = {}
    for file, package in (*_files(), *_installed()):
        for card in _read(file, package):
            if card.name in found:
                raise BadInputError(f"{file}: a solver {card.name!r} is there already; choose another name.")
            found[card.name] = card
    rooms = {name: place for place, name in enumerate(FAMILIES)}

    def place(one: Card) -> tuple[bool, int, int]:
        return one.kind == "neural", rooms.get(one.family, 99), KINDS.index(one.kind)

    return {card.name: card for card in sorted(found.values(), key=place)}


def card(name: str) -> Card:
    """Return one card; raises `UnknownNameError`.

    Only files that mention the name are read: parsing all takes a tenth of a second, and every run and child asks.
    """
    found = find(name)
    if found is None:
        raise UnknownNameError("solver", name, cards(), hint="See 'nco-bench list solvers'.")
    return found


@cache
def find(name: str) -> Card | None:
    """Return one card, None where there is none of that name."""
    naming = (
        f for f in _files() if f[0].stem == name or f"variants.{name}]" in f[0].read_text(encoding="utf-8")
    )
    found = next((one for file in naming for one in _read(*file) if one.name == name), None)
    return found or cards().get(name)


def networks() -> dict[str, Card]:
    """Return the cards with a network, without second names of one."""
    return {name: known for name, known in cards().items() if known.network and not known.alias_of}


def network_card(name: str) -> Card:
    """Return the card of a network, also by a second name; raises `UnknownNameError`."""
    known = find(name)
    if known is None or not known.network:
        raise UnknownNameError("model", name, networks(), "See 'nco-bench list models'.")
    return card(known.alias_of) if known.alias_of else known


def first_name(name: str) -> str:
    """Return the name of what this is a second name of (``invit`` of ``invit-3v``); any other as it is."""
    known = find(name)
    return name if known is None else known.alias_of or name


def trained_by(learner: str) -> dict[str, Card]:
    """Return the cards of the networks that a way to learn can train."""
    return {n: c for n, c in networks().items() if learner in (*c.learners, *c.learners_if_asked)}


def weights_owner(name: str) -> str:
    """Return whose weights a model runs with: its own name, or that of the model that it is but for a logit scale."""
    known = find(name)
    return (known.weights_of or known.model) if known else name


@cache
def official_weights() -> Mapping[str, OfficialFile]:
    """Return the official files by name, such as ``am-official-tsp100``."""
    return {file.name: file for known in cards().values() if not known.alias_of for file in known.official}


def _files() -> Iterator[tuple[Path, str]]:
    """Yield the files of the built-in cards with the package that their modules live in."""
    for room in FAMILIES:
        for file in sorted((ROOMS / room).glob("*.toml")):
            if file.name != FAMILY:
                yield file, f"nco_bench.solvers.{room}"


def _installed() -> Iterator[tuple[Path, str]]:
    """Yield the cards of installed packages: those of the folder of every package that an entry point names."""
    from importlib import metadata, util  # slow to import

    for point in metadata.entry_points(group=ENTRY_POINTS):
        spec = util.find_spec(point.value) if ":" not in point.value else None
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            yield from ((file, point.value) for file in sorted(Path(folder).glob("*.toml")))


@cache
def family_values(name: str) -> Mapping[str, Any]:
    """Return what all cards of a family share; nothing for a family of another package."""
    file = ROOMS / name / FAMILY
    return _toml(file) if name in FAMILIES and file.is_file() else {}


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInputError(f"{file}: no readable card ({error}); restore the file.") from error


@cache
def _read(file: Path, package: str) -> tuple[Card, ...]:
    """Return the cards of a file: one per variant, or one of the file's own name."""
    content, found = _toml(file), []
    family = file.parent.name if file.is_relative_to(ROOMS) else content.pop("family", "")
    variants = content.pop("variants", {}) or {file.stem: {}}
    for name, own in variants.items():
        merged = dict(family_values(family))
        for layer in (content, own):
            if unknown := sorted(set(layer) - OWN_KEYS):
                raise BadInputError(f"{file}: {name}: unknown key {unknown[0]!r}; see nco_bench.cards.Card.")
            merged = {**merged, **layer, **{key: _merged(merged, layer, key) for key in MERGED}}
        if "alias_of" in own:  # has all that the other has
            merged = {**merged, **variants[own["alias_of"]], "alias_of": own["alias_of"]}
        found.append(_built(name, family, merged, package, file))
    return tuple(found)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Join a table of tables of two layers; entries of the upper one follow, or replace, those of the lower one."""
    lower, upper = below.get(key, {}), above.get(key, {})
    both = {k for k in lower if k in upper and isinstance(lower[k], dict)}
    return {**lower, **upper, **{k: {**lower[k], **upper[k]} for k in both}}


def _built(name: str, family: str, values: Mapping[str, Any], package: str, file: Path) -> Card:
    values = dict(values)
    solver = str(values.pop("solver", ""))
    if missing := sorted({"problems", "kind"} - set(values)) or ([] if solver else ["solver"]):
        raise BadInputError(f"{file}: {name}: the key {missing[0]!r} is missing.")
    if values["kind"] not in KINDS:
        raise BadInputError(f"{file}: {name}: kind {values['kind']!r}; expected one of {', '.join(KINDS)}.")
    # The class of a family's adapter lives with the family, that of a card's own solver beside the card.
    shared = solver == family_values(family).get("solver")
    files = tuple(
        OfficialFile(model=name, repository=entry.pop("repository", values.get("repository", "")), **entry)
        for entry in map(dict, values.pop("official", ()))
    )
    for key in ("problems", "decodings", "learners", "learners_if_asked"):
        values[key] = tuple(values.get(key, ()))
    values["packages"] = tuple(map(tuple, values.get("packages", ())))
    if values.get("network"):
        values["network"] = f"{package}.{values['network']}"
    package = f"nco_bench.solvers.{family}" if shared else package
    return Card(name=name, target=f"{package}.{solver}", family=family, official=files, **values)
