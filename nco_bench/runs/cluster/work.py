"""What a job has to do: shares of instances, or a call of a function; as JSON values and back."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from nco_bench.datasets.load import Places
from nco_bench.runs.request import RunRequest


@dataclass(frozen=True)
class Share:
    """Instances ``first .. last - 1`` of one solver on one dataset, as a request of its own.

    Attributes
    ----------
    claim
        Identity of solver, settings, dataset and seed: no two live jobs hold one instance of one claim.
    title
        What people call it.
    batch
        Instances that the solver takes at once.
    seconds
        Expected, None where nobody knows.
    """

    request: RunRequest
    claim: str
    title: str
    first: int
    last: int
    batch: int = 1
    seconds: float | None = None

    @property
    def solves(self) -> int:
        """Solutions to find: instances times repeats."""
        return (self.last - self.first) * self.request.repeats


@dataclass(frozen=True)
class Call:
    """Work that is no share of instances, such as training: a function that the job calls.

    Attributes
    ----------
    function
        ``module:name``; takes the arguments and the job's `Caller`, returns JSON values, which the job stores.
    arguments
        JSON values.
    claim, title
        As of a `Share`.
    total
        Units of work, such as updates; 0 where nobody knows.
    nodes
        That the job takes.
    """

    function: str
    arguments: dict[str, Any]
    claim: str
    title: str
    total: int = 0
    nodes: int = 1


@dataclass(frozen=True)
class Task:
    """What one job has to do: shares of instances, or a call."""

    shares: tuple[Share, ...] = ()
    gpu: bool = False
    call: Call | None = None

    @property
    def total(self) -> int:
        """Units of work: solutions to find, updates."""
        return sum(share.solves for share in self.shares) if self.call is None else self.call.total

    @property
    def title(self) -> str:
        """What people call it."""
        if self.call is not None:
            return self.call.title
        more = f" and {len(self.shares) - 1} more" if len(self.shares) > 1 else ""
        return f"{self.shares[0].title} {self.shares[0].first + 1}-{self.shares[0].last}{more}"

    @property
    def claims(self) -> tuple[tuple[str, int, int], ...]:
        """What no other live job may have: claims, each with its first instance and the one behind the last."""
        if self.call is not None:
            return ((self.call.claim, 0, 1),)
        return tuple((share.claim, share.first, share.last) for share in self.shares)

    def as_document(self) -> dict[str, Any]:
        """Return JSON values."""
        shares = [_document(share) for share in self.shares]
        return {"gpu": self.gpu, "shares": shares, "call": None if self.call is None else asdict(self.call)}

    @staticmethod
    def from_document(document: dict[str, Any]) -> Task:
        """Return the task behind what `as_document` gave."""
        call = document["call"]
        shares = tuple(_share(one) for one in document["shares"])
        return Task(shares, document["gpu"], None if call is None else Call(**call))

    @property
    def nodes(self) -> int:
        """Nodes of the job; what solves instances uses one."""
        return 1 if self.call is None else self.call.nodes


def _document(share: Share) -> dict[str, Any]:
    values = {one.name: getattr(share.request, one.name) for one in fields(RunRequest)}
    places = share.request.places
    values["places"] = {"instances": str(places.instances), "mirror": places.mirror and str(places.mirror)}
    values["slurm"] = dict(share.request.slurm)
    return {
        "request": {**values, "results": str(share.request.results), "params": dict(share.request.params)},
        **{one.name: getattr(share, one.name) for one in fields(Share) if one.name != "request"},
    }


def _share(document: dict[str, Any]) -> Share:
    values = dict(document["request"])
    places = values["places"]
    values["places"] = Places(Path(places["instances"]), Path(places["mirror"]) if places["mirror"] else None)
    values["results"] = Path(values["results"])
    for key in ("solvers", "datasets", "decodings", "limit", "asked"):
        values[key] = None if values[key] is None else tuple(values[key])
    return Share(**{**document, "request": RunRequest(**values)})


def as_request(request: RunRequest) -> RunRequest:
    """Return a request whose folders are found from everywhere."""
    places = Places(
        request.places.instances.resolve(), request.places.mirror and request.places.mirror.resolve()
    )
    return replace(request, results=request.results.resolve(), places=places)
