"""Test sets from the authors' public files: a small catalogue, served by a real server on this machine."""

from __future__ import annotations

import csv
import hashlib
import io
import pickle
import re
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from nco_bench.cli.app import run
from nco_bench.datasets import catalog, testsets
from nco_bench.datasets.dataset import content_sha256
from nco_bench.datasets.formats.reading import write_npz
from nco_bench.datasets.libraries import resolve_library
from nco_bench.datasets.pull import pull, verify
from nco_bench.datasets.sites import SITES
from nco_bench.problems import problem
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.tsp import TSPInstance

COMMIT = "0" * 40
COORDS = np.random.default_rng(0).random((3, 6, 2))
TOURS = [[0, 1, 2, 3, 4, 5], [0, 2, 1, 3, 4, 5], [0, 5, 4, 3, 2, 1]]
ROUTES = [[1, 2, 3, 0, 4, 5, 6], [6, 5, 4, 0, 3, 2, 1], [1, 0, 2, 3, 4, 0, 5, 6]]
WORSE = [[1, 4, 0, 2, 5, 0, 3, 6], [6, 1, 0, 5, 2, 0, 4, 3], [6, 1, 0, 3, 5, 0, 2, 4]]
TOO_MUCH = [[1, 2, 3, 4, 5, 6]] * 3


@dataclass(frozen=True)
class Place:
    """A catalogue of three sets and a server that has their files."""

    served: Path
    instances: Path
    address: str

    def file(self, path: str) -> Path:
        return self.served / "someone" / "sets" / COMMIT / path


def tsp_costs(tours: list[list[int]]) -> list[float]:
    return [
        problem("tsp").score(TSPInstance("x", c), np.array(t)) for c, t in zip(COORDS, tours, strict=True)
    ]


def customers() -> list[CVRPInstance]:
    """Three instances of six customers; a vehicle carries three."""
    return [CVRPInstance("x", np.array([0.5, 0.5]), c, np.full(6, 2), 6.0) for c in COORDS]


def cvrp_costs(routes: list[list[int]]) -> list[float]:
    return [problem("cvrp").score(i, np.array([0, *r, 0])) for i, r in zip(customers(), routes, strict=True)]


def lines(tours: list[list[int]]) -> bytes:
    """The authors' form of a TSP set with tours."""
    out = []
    for coords, tour in zip(COORDS, tours, strict=True):
        nodes = " ".join(str(node + 1) for node in (*tour, tour[0]))
        out.append(" ".join(repr(float(x)) for x in coords.ravel()) + f" output {nodes}\n")
    return "".join(out).encode()


def zipped(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def sets() -> dict[str, tuple[dict[str, object], list[tuple[str, str, str, str, bytes]]]]:
    """Name -> row of the catalogue, and its files: part, path, member, form, content."""
    tsp = content_sha256("tsp", [TSPInstance("x", c) for c in COORDS])
    cvrp = content_sha256("cvrp", customers())
    rows = [([[0.5, 0.5]], c.tolist(), [2] * 6, 6) for c in COORDS]

    def labels(routes: list[list[int]]) -> bytes:
        return pickle.dumps([(0.0, row) for row in routes])

    return {
        "zipped": (
            {"problem": "tsp", "mean_cost": np.mean(tsp_costs(TOURS)), "content_sha256": tsp},
            [("instances", "a.zip", "a.txt", "concorde-line", zipped("a.txt", lines([TOURS[1]] * 3)))],
        ),
        "solved": (
            {"problem": "tsp", "mean_cost": np.mean(tsp_costs(TOURS)), "content_sha256": tsp},
            [("solved", "data/b c.txt", "", "concorde-line", lines(TOURS))],
        ),
        "labelled": (
            {"problem": "cvrp", "mean_cost": np.mean(cvrp_costs(ROUTES)), "content_sha256": cvrp},
            [
                ("instances", "c.pkl", "", "kool", pickle.dumps(rows)),
                ("labels", "hgs_c.pkl", "", "pickle", labels([ROUTES[0], WORSE[1], TOO_MUCH[2]])),
                ("labels", "lkh_c.pkl", "", "pickle", labels([WORSE[0], ROUTES[1], ROUTES[2]])),
            ],
        ),
    }


def write_rows(path: Path, rows: list[dict[str, object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    folder = tmp_path / "catalogue"
    folder.mkdir()
    entries: list[dict[str, object]] = []
    files: list[dict[str, object]] = []
    common = {"n": 6, "count": 3, "distribution": "uniform", "convention": "euclidean", "solver": "by hand"}
    served = tmp_path / "served"
    for name, (row, parts) in sets().items():
        row = row | {"mean_cost": f"{row['mean_cost']:.6f}", "npz_sha256": "f" * 64, "no_address": ""}
        entries.append({"name": name, **common, "proven": "no", "source": "someone/sets", **row})
        for part, path, member, form, content in parts:
            target = served / "someone" / "sets" / COMMIT / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            facts = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            where = {"repository": "someone/sets", "commit": COMMIT, "path": path, "member": member}
            files.append({"name": name, "part": part, **where, "form": form, **facts})
    entries.append({**entries[0], "name": "page-only", "no_address": "page: https://example.org/sets"})
    write_rows(folder / "testsets.csv", entries)
    write_rows(folder / "testset_files.csv", files)
    write_npz(folder / "testset_costs.npz", {"zipped": np.array(tsp_costs(TOURS))})
    monkeypatch.setattr(catalog, "FOLDER", folder)
    catalog.testsets.cache_clear()
    monkeypatch.delenv("NCO_BENCH_MIRROR", raising=False)
    serve = partial(QuietHandler, directory=str(served))
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{http.server_port}"
        monkeypatch.setitem(SITES, "testsets", address)
        yield Place(served, tmp_path / "instances", address)
        http.shutdown()
    catalog.testsets.cache_clear()


class QuietHandler(SimpleHTTPRequestHandler):
    """Serve a folder; a file REDIRECT holds where its folder's other files are."""

    def do_GET(self) -> None:
        sign = Path(self.translate_path(self.path)).parent / "REDIRECT"
        if not sign.is_file():
            super().do_GET()
            return
        self.send_response(302)
        self.send_header("Location", sign.read_text())
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def left(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_sets_are_made_from_the_authors_files(place: Place) -> None:
    assert run(["instances", "pull", "solved", "--instances", str(place.instances)]) == 0
    assert run(["instances", "pull", "labelled", "--instances", str(place.instances)]) == 0
    solved, labelled = (resolve_library(name, place.instances) for name in ("solved", "labelled"))
    assert solved is not None
    assert labelled is not None
    assert solved.sha256 == content_sha256("tsp", [TSPInstance("y", c) for c in COORDS])
    assert [r and r.cost for r in solved.references] == pytest.approx(tsp_costs(TOURS))
    # The best feasible solution of each instance, whichever file it stands in; one too heavy for the vehicle never.
    assert [r and r.cost for r in labelled.references] == pytest.approx(cvrp_costs(ROUTES))
    assert all(r is not None and r.solution is not None for r in labelled.references)
    assert [r.solver for r in labelled.references if r] == ["by hand"] * 3


def test_a_set_without_published_solutions_has_the_catalogues_costs(place: Place) -> None:
    assert pull("zipped", place.instances).fetched == ("zipped",)
    dataset = resolve_library("zipped", place.instances)
    assert dataset is not None
    # The tours of the file are other ones, in Fu's sets placeholders; they are not taken.
    assert [r and (r.cost, r.solution) for r in dataset.references] == [(c, None) for c in tsp_costs(TOURS)]
    assert pull("zipped", place.instances).present == ("zipped",)
    assert verify("zipped", place.instances) == {"zipped": "ok"}


def test_a_set_with_other_instances_in_its_place_is_refused_and_fetched_again(place: Place) -> None:
    pull("solved", place.instances)
    path = place.instances / "testsets" / "solved.npz"
    write_npz(path, {"coords": COORDS[::-1], "tour": np.array(TOURS)})
    assert "its instances differ" in verify("solved", place.instances)["solved"]
    write_npz(path, {"coords": COORDS, "tour": np.array([TOURS[1]] * 3)})
    assert "on average, the catalogue says" in verify("solved", place.instances)["solved"]
    assert pull("solved", place.instances).fetched == ("solved",)
    assert verify("solved", place.instances) == {"solved": "ok"}


def gone(place: Place) -> None:
    place.file("data/b c.txt").unlink()


def changed(place: Place) -> None:
    file = place.file("data/b c.txt")
    file.write_bytes(file.read_bytes().replace(b"output 1 2", b"output 2 1"))


def too_big(place: Place) -> None:
    with place.file("data/b c.txt").open("ab") as file:
        file.write(b"\n" * 1000)


def cut_off(place: Place) -> None:
    file = place.file("data/b c.txt")
    file.write_bytes(file.read_bytes()[:-100])


def elsewhere(place: Place) -> None:
    place.file("data/REDIRECT").write_text("/someone/other")


def circle(place: Place) -> None:
    place.file("data/REDIRECT").write_text(f"/someone/sets/{COMMIT}/data/b%20c.txt")


def to_a_local_file(place: Place) -> None:
    place.file("data/REDIRECT").write_text(place.file("data/b c.txt").as_uri())


def a_page(place: Place) -> None:
    place.file("data/b c.txt").write_bytes(b"<!DOCTYPE html><html>Sign in</html>")


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (gone, "the source has no someone/sets/0000"),
        (changed, "is not the file of the catalogue"),
        (too_big, "refused, the site"),
        (cut_off, "is not the file of the catalogue"),
        (elsewhere, "the source has no someone/sets/0000"),
        (circle, "answered 302"),
        (to_a_local_file, "answered 302"),
        (a_page, "sent a web page in place of the file"),
    ],
)
def test_what_is_not_the_authors_file_is_one_line_and_status_2(
    place: Place, capsys: pytest.CaptureFixture[str], fault: object, says: str
) -> None:
    assert callable(fault)
    fault(place)
    assert run(["instances", "pull", "solved", "--instances", str(place.instances)]) == 2
    out, err = capsys.readouterr()
    told = [line for line in (out + err).splitlines() if says in line]
    assert len(told) == 1
    assert re.search("NCO_BENCH_MIRROR|nothing was kept", told[0])
    assert left(place.instances) == []


def test_one_missing_file_of_several_leaves_nothing(place: Place) -> None:
    place.file("lkh_c.pkl").unlink()
    assert "the source has no" in dict(pull("labelled", place.instances).failed)["labelled"]
    assert left(place.instances) == []


def test_labels_that_cost_something_else_are_refused_when_read(place: Place) -> None:
    pull("labelled", place.instances)
    path = place.instances / "testsets" / "labelled.npz"
    routes = np.zeros((3, 9), dtype=int)
    for row, nodes in zip(routes, WORSE, strict=True):
        row[1 : len(nodes) + 1] = nodes
    arrays = dict(np.load(path))
    write_npz(path, arrays | {"routes": routes})
    assert not testsets.is_whole(catalog.testsets()[2], place.instances)


def test_a_set_without_an_address_names_its_page_and_the_others_come(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["instances", "pull", "testsets", "--instances", str(place.instances)]) == 1
    out, err = capsys.readouterr()
    assert "page-only: no public address to fetch it from (page: https://example.org/sets)" in out + err
    assert left(place.instances) == [f"testsets/{name}.npz" for name in ("labelled", "solved", "zipped")]


def test_offline_is_one_line_and_status_2(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SITES, "testsets", "http://127.0.0.1:9")
    assert run(["instances", "pull", "solved", "--instances", str(place.instances)]) == 2
    out, err = capsys.readouterr()
    assert "cannot reach http://127.0.0.1:9/someone/sets" in out + err
    assert left(place.instances) == []


def test_an_archive_of_the_authors_files_serves_too(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "by hand"
    folder.mkdir()
    place.file("data/b c.txt").rename(folder / "b c.txt")
    assert pull("solved", place.instances, archive=folder).fetched == ("solved",)
    assert verify("solved", place.instances) == {"solved": "ok"}


def test_a_mirror_has_its_own_file_or_the_authors(place: Place, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    authors = mirror / "instances" / "testsets" / "someone" / "sets" / COMMIT / "data" / "b c.txt"
    authors.parent.mkdir(parents=True)
    place.file("data/b c.txt").rename(authors)
    assert pull("solved", place.instances, mirror=mirror).fetched == ("solved",)
    assert verify("solved", place.instances) == {"solved": "ok"}


def test_every_set_of_the_real_catalogue_has_files_or_says_why_not() -> None:
    for entry in catalog.testsets():
        assert bool(entry.files) != bool(entry.no_address), entry.name
        assert re.fullmatch(r"[0-9a-f]{64}", entry.content_sha256), entry.name
        assert entry.files or "https://" in entry.no_address, entry.name
        for file in entry.files:
            assert re.fullmatch(r"[0-9a-f]{40}", file.commit), file.address
            assert re.fullmatch(r"[0-9a-f]{64}", file.sha256), file.address
            assert 0 < file.size < 20_000_000
    costs = np.load(catalog.FOLDER / "testset_costs.npz")
    unlabelled = {
        e.name for e in catalog.testsets() if e.files and {f.part for f in e.files} == {"instances"}
    }
    assert set(costs.files) == unlabelled
    for entry in catalog.testsets():
        if entry.name in unlabelled:
            assert costs[entry.name].mean() == pytest.approx(entry.mean_cost, abs=6e-7)


def test_the_catalogues_hash_of_the_instances_is_that_of_a_mirrors_set(shared: Path) -> None:
    for entry in catalog.testsets():
        if entry.count * entry.n < 200_000:
            dataset = resolve_library(entry.name, Path("nowhere"), shared)
            assert dataset is not None
            assert dataset.sha256 == entry.content_sha256, entry.name
