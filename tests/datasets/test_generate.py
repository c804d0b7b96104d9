"""Generated datasets: known identities, prefix stability, names that parse back, nonsense refused."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nco_bench.datasets import generate as generating
from nco_bench.datasets.generate import GENERATOR_VERSION, generate, generate_spec
from nco_bench.datasets.generators import GENERATORS, default_count, generator
from nco_bench.datasets.kool import kool_tsp, kool_vrp
from nco_bench.datasets.names import generated_aliases, parse_generated, specify
from nco_bench.datasets.packing import BINS
from nco_bench.datasets.routing import default_capacity
from nco_bench.errors import BadInputError, NcoBenchError, UnknownNameError
from nco_bench.problems.distributions import DISTRIBUTIONS


def sha256(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


# SHA-256 of the float64 (demand: int64) arrays of 10,000 instances; published by other groups as the same files.
KOOL_TSP = {
    (20, 1234): "04f192096ef8a2425d74d30acbca37bab6ec3924ae0b187c582de3ee0336bb89",
    (50, 1234): "9f2fc1297d3a6d63f6be9dac1024d5205491ea0860f5170dcfd8dcb8b02e46e9",
    (100, 1234): "e16413180f18711fc3adeae6f9528518d447bd9569d9e7910beeda0c76dc3039",
}
KOOL_VRP_CUSTOMERS_AND_DEMAND = {
    20: (
        "a624de24ec4df25f07afb2f7c82e95da12912e11b9bb0f059ec18dd9ffeaf1a9",
        "68d8cc4eba7a042b0147cbbf3c9714151dccdd781f3e6fd3794343abc51d2ba1",
    ),
    50: (
        "bed6203dc0687dddfc2edc89e2319ca41bea4c3299930581d6718e8d9101f8a6",
        "302aeb78e7ca43effbf1aa1fd53b43440feeecce4544734032fef74077fe5de4",
    ),
    100: (
        "2722963443b9cea8c1d3a453e27f0e5d2dd2b681c03d93a167452321db96111b",
        "d9e9143e34e3b2b7a3bd45022f81267ceb9b2b6d80b06b74d64a796b73bf25a2",
    ),
}
KOOL_VRP_DEPOTS = "de838427abccda27b8fad9bdf18a4944697a543a1f588a7179f9e9c8ef7e5e34"


@pytest.mark.parametrize(("n", "seed"), KOOL_TSP)
def test_kool_tsp_has_the_known_hash(n, seed):
    dataset = kool_tsp(n, seed)
    assert sha256(np.stack([i.coords for i in dataset])) == KOOL_TSP[n, seed]


@pytest.mark.parametrize("n", KOOL_VRP_CUSTOMERS_AND_DEMAND)
def test_kool_vrp_has_the_known_hashes(n):
    dataset = kool_vrp(n)
    customers, demand = KOOL_VRP_CUSTOMERS_AND_DEMAND[n]
    assert sha256(np.stack([i.depot for i in dataset])) == KOOL_VRP_DEPOTS
    assert sha256(np.stack([i.customers for i in dataset])) == customers
    assert sha256(np.stack([i.demand for i in dataset])) == demand
    assert {i.capacity for i in dataset} == {{20: 30.0, 50: 40.0, 100: 50.0}[n]}


def test_kool_sets_match_every_entry_of_the_collected_list(shared):
    entries = json.loads((shared / "instances" / "testsets" / "kool.json").read_text())["datasets"]
    assert len(entries) >= 12
    for entry in entries:
        n, seed = entry["n"], entry["seed"]
        if entry["problem"] == "tsp":
            coords = np.stack([i.coords for i in kool_tsp(n, seed)])
            assert sha256(coords) == entry["sha256_float64"]
            assert sha256(coords.astype(np.float32)) == entry["sha256_float32"]
        elif seed != 1234:  # those are pinned above
            dataset = kool_vrp(n, seed)
            assert sha256(np.stack([i.depot for i in dataset])) == entry["depot_sha256_float64"]
            assert sha256(np.stack([i.customers for i in dataset])) == entry["coords_sha256_float64"]
            assert sha256(np.stack([i.demand for i in dataset])) == entry["demand_sha256_int64"]
            assert dataset.instances[0].capacity == entry["capacity"]


def test_kool_tsp_is_prefix_stable_and_kool_vrp_is_not():
    few, many = kool_tsp(20, count=10), kool_tsp(20, count=100)
    assert np.array_equal(few.instances[9].coords, many.instances[9].coords)
    few, many = kool_vrp(20, count=10), kool_vrp(20, count=100)
    assert not np.array_equal(few.instances[0].customers, many.instances[0].customers)
    tsp, vrp = parse_generated("kool-tsp20"), parse_generated("kool-vrp20")
    assert tsp.stream == parse_generated("kool-tsp20:count=10").stream
    assert vrp.stream != parse_generated("kool-vrp20:count=10").stream


def test_published_elg_set_is_kools_stream_for_its_own_count(shared):
    # ELG's and AMDKD's "uniform100_1000_seed1234" are Kool's streams with a count of 1,000.
    with np.load(shared / "instances" / "testsets" / "amdkd_tsp100_uniform.npz") as file:
        published = file["coords"]
    ours = np.stack([i.coords for i in kool_tsp(100, count=len(published))])
    assert np.array_equal(ours, published)


def distributions_of(problem):
    """The distributions that a problem has: point sets for routing, bins for packing, one for the rest."""
    if problem in ("tsp", "cvrp"):
        return list(DISTRIBUTIONS)
    return list(BINS) if problem == "bpp3d" else ["uniform"]


@pytest.mark.parametrize(
    ("problem", "distribution"), [(p, d) for p in GENERATORS for d in distributions_of(p)]
)
def test_shorter_set_is_the_beginning_of_the_longer_one(problem, distribution):
    n = max(30, generator(problem).smallest_n)
    few, many = generate(problem, n, 5, distribution), generate(problem, n, 12, distribution)
    for short, long in zip(few, many, strict=False):
        assert short.name == long.name
        for key, array in short.arrays().items():
            assert np.array_equal(array, long.arrays()[key])
    assert (
        generate(problem, n, 12, distribution).sha256
        == many.sha256
        == generate_spec(parse_generated(many.name)).sha256
    )


def test_the_first_1000_of_10000_are_the_set_of_1000():
    assert (
        generate("tsp", 20, 10000).instances[:1000][-1].coords.tolist()
        == generate("tsp", 20, 1000).instances[-1].coords.tolist()
    )


def test_sets_of_other_seed_size_problem_or_distribution_share_no_coordinate():
    variants = [
        generate("tsp", 50, 20),
        generate("tsp", 50, 20, seed=1235),
        generate("tsp", 51, 20),
        generate("tsp", 50, 20, "explosion"),
        generate("tsp", 50, 20, "implosion"),
        generate("cvrp", 50, 20),
        kool_tsp(50, count=20),
    ]
    values = [
        np.concatenate([np.ravel(i.arrays().get("coords", i.arrays().get("customers"))) for i in d])
        for d in variants
    ]
    everything = np.concatenate(values)
    assert len(np.unique(everything)) == len(everything)


def test_instances_of_one_set_are_uncorrelated():
    coords = np.stack([i.coords.ravel() for i in generate("tsp", 100, 400)])
    correlation = np.corrcoef(coords)[np.triu_indices(400, 1)]
    # Of 79,800 correlations of 200 numbers each, with a standard deviation of 1 / sqrt(200) = 0.0707.
    assert np.std(correlation) == pytest.approx(0.0707, rel=0.03)
    assert np.abs(correlation).max() < 0.38


def test_capacity_changes_neither_points_nor_demands_nor_the_other_way_round():
    small, large = generate("cvrp", 50, 3), generate("cvrp", 50, 3, capacity=75)
    assert small.instances[2].capacity == 40
    assert large.instances[2].capacity == 75
    assert np.array_equal(small.instances[2].customers, large.instances[2].customers)
    assert np.array_equal(small.instances[2].demand, large.instances[2].demand)
    assert small.sha256 != large.sha256


def test_demands_are_uniform_on_1_to_9():
    demand = np.concatenate([i.demand for i in generate("cvrp", 1000, 20)])
    assert demand.dtype == np.int64
    counts = np.bincount(demand, minlength=10)
    assert counts[0] == 0
    assert len(counts) == 10
    assert counts[1:] == pytest.approx(20000 / 9, rel=0.1)


def test_eie_variant_has_real_demands_and_the_larger_square():
    dataset = generate("cvrp", 100, 50, demand="unit", range="-1..1")
    demand = np.concatenate([i.demand for i in dataset])
    customers = np.concatenate([i.customers for i in dataset])
    assert dataset.name == "cvrp100:capacity=10:demand=unit:range=-1..1:count=50"
    assert {i.capacity for i in dataset} == {10.0}
    assert demand.dtype == np.float64
    assert 0 < demand.min() < 0.001
    assert 0.999 < demand.max() <= 1
    assert demand.mean() == pytest.approx(0.5, abs=0.02)
    assert customers.min() == pytest.approx(-1, abs=0.01)
    assert customers.max() == pytest.approx(1, abs=0.01)
    assert np.abs([i.depot for i in dataset]).max() > 0.8


@pytest.mark.parametrize(
    ("n", "capacity"),
    [
        (10, 20), (20, 30), (50, 40), (100, 50), (200, 80), (500, 100), (1000, 250), (5000, 500), (10000, 1000),
        (50000, 2000), (100000, 2000), (1, 20), (99, 40), (7000, 500), (10**6, 2000),
    ],
)  # fmt: skip
def test_capacity_is_the_literatures_or_that_of_the_next_smaller_size(n, capacity):
    assert default_capacity(n) == capacity


@pytest.mark.parametrize(
    ("n", "count"), [(20, 10000), (100, 10000), (101, 128), (1000, 128), (1001, 16), (100000, 16)]
)
def test_usual_counts(n, count):
    assert default_count(n) == count


@pytest.mark.parametrize(
    ("given_name", "canonical"),
    [
        ("tsp100", "tsp100"),
        ("tsp100:uniform:count=10000:seed=1234", "tsp100"),
        ("tsp100:count=1000", "tsp100:count=1000"),
        ("tsp10000:clustered:seed=7:count=16", "tsp10000:clustered:seed=7"),
        ("tsp10000:count=8:seed=7:clustered:std=0.1", "tsp10000:clustered:std=0.1:seed=7:count=8"),
        ("tsp100:range=-1.0..1.0", "tsp100:range=-1..1"),
        ("cvrp1000:capacity=250", "cvrp1000:capacity=250"),
        ("cvrp1000", "cvrp1000:capacity=250"),
        ("cvrp100:capacity=40.0", "cvrp100:capacity=40"),
        ("cvrp100:demand=unit", "cvrp100:capacity=10:demand=unit"),
        ("kool-tsp100", "kool-tsp100"),
        ("kool-cvrp50:seed=1234", "kool-vrp50"),
        ("kool-vrp50:count=1000:seed=4321", "kool-vrp50:seed=4321:count=1000"),
    ],
)
def test_equal_sets_have_one_name(given_name, canonical):
    spec = parse_generated(given_name)
    assert spec.name == canonical
    again = parse_generated(canonical)
    assert (again.name, again.stream, again.count) == (canonical, spec.stream, spec.count)


PARAMETERS = {
    "tsp": {"range": st.just("-1..1")},
    "cvrp": {"range": st.just("-1..1"), "capacity": st.integers(9, 10**6)},
    "bpp3d": {"sides": st.sampled_from(["1..9", "20..20"])},
}
FURTHER_DISTRIBUTIONS = {
    "tsp": ["explosion:radius=0.2", "gaussian-mixture:c=7"],
    "cvrp": ["explosion:radius=0.2", "gaussian-mixture:c=7"],
    "bpp3d": ["1x1", "7x300"],
}


@st.composite
def descriptions(draw):
    """A problem with a size, a distribution and parameters of its own."""
    problem = draw(st.sampled_from(sorted(GENERATORS)))
    n = draw(st.integers(max(2, generator(problem).smallest_n), 10**6))
    own = [*distributions_of(problem), *FURTHER_DISTRIBUTIONS.get(problem, [])]
    params = draw(st.fixed_dictionaries({}, optional=PARAMETERS.get(problem, {})))
    return problem, n, draw(st.sampled_from(own)), params


@settings(deadline=None)
@given(description=descriptions(), count=st.integers(1, 10**6), seed=st.integers(0, 2**32 - 1))
def test_names_parse_back_to_what_they_were_made_of(description, count, seed):
    problem, n, distribution, params = description
    name = specify(problem, n, count, distribution, seed, params).name
    spec = parse_generated(name)
    assert (spec.problem, spec.n, spec.count, spec.distribution, spec.seed) == (
        problem,
        n,
        count,
        distribution,
        seed,
    )
    assert dict(spec.params).items() >= {key: str(value) for key, value in params.items()}.items()
    assert spec.name == name
    # Names become file names by ":" to "_", and back.
    assert parse_generated(name.replace(":", "_").replace("_", ":")) == spec


def test_a_name_without_a_count_means_the_literatures():
    assert parse_generated("tsp100") == parse_generated("tsp100:count=10000")
    assert parse_generated("tsp100:count=16").stream == parse_generated("tsp100").stream == "tsp100"


@pytest.mark.parametrize(
    "name",
    [
        "tsplib",
        "tsplib/berlin52",
        "tsp",
        "cvrplib:X",
        "fu_tsp500",
        "",
        "kool-tsp",
        "kool-op20",
        "TSP100",
        "./tsp100",
    ],
)
def test_other_names_are_left_to_others(name):
    assert parse_generated(name) is None


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("tsp1", BadInputError, "at least 2 nodes"),
        ("tsp0", BadInputError, "at least 2 nodes"),
        ("cvrp0", BadInputError, "at least 1 customer"),
        ("tsp100:foo=3", UnknownNameError, "'foo'"),
        ("tsp100:capacity=50", UnknownNameError, "'capacity'"),
        ("cvrp100:capacty=50", UnknownNameError, "Did you mean 'capacity'"),
        ("tsp100:clusterd", UnknownNameError, "Did you mean 'clustered'"),
        ("tsp100:radius=0.2", UnknownNameError, "'radius'"),
        ("tsp100:explosion:radius=9", BadInputError, "radius of distribution 'explosion'"),
        ("tsp100:explosion:implosion", BadInputError, "at most one distribution"),
        ("tsp100:", BadInputError, "at most one distribution"),
        ("tsp100:seed=1:seed=2", BadInputError, "seed is given twice"),
        ("tsp100:seed=x", BadInputError, "seed is 'x'; expected a whole number"),
        ("tsp100:seed=-1", BadInputError, "seed is -1"),
        ("tsp100:seed=4294967296", BadInputError, "seed is 4294967296"),
        ("tsp100:count=0", BadInputError, "count is 0"),
        ("tsp100:count=-5", BadInputError, "count is -5"),
        ("tsp100:count=1e3", BadInputError, "expected a whole number"),
        ("tsp100:range=1..1", BadInputError, r"expected LO\.\.HI"),
        ("tsp100:range=0..inf", BadInputError, r"expected LO\.\.HI"),
        ("cvrp100:capacity=8", BadInputError, "below the largest possible demand, 9"),
        ("cvrp100:capacity=0.5:demand=unit", BadInputError, "below the largest possible demand, 1"),
        ("cvrp100:capacity=nan", BadInputError, "expected a positive number"),
        ("cvrp100:demand=units", UnknownNameError, "Did you mean 'unit'"),
        ("kool-vrp30", BadInputError, "capacities for 10, 20, 50, 100"),
        ("kool-tsp1", BadInputError, "at least 2 nodes"),
        ("kool-tsp20:clustered", UnknownNameError, "'clustered'"),
        ("kool-tsp20:count=0", BadInputError, "count is 0"),
    ],
)
def test_nonsense_is_refused_in_one_line(name, error, message):
    with pytest.raises(error, match=message) as caught:
        parse_generated(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "tsp1000000:count=10000000",
        "tsp2:count=999999999999999999",
        "kool-tsp100:count=99999999999",
        "tsp999999999999",
    ],
)
def test_what_cannot_fit_into_memory_is_refused_before_it_is_tried(name):
    with pytest.raises(BadInputError, match="GiB are free"):
        generate_spec(parse_generated(name))


def test_unknown_problem_and_parameter_are_refused():
    with pytest.raises(UnknownNameError, match="Did you mean 'cvrp'"):
        generate("cvpr", 10, 1)
    with pytest.raises(UnknownNameError, match="parameter of tsp: 'capacity'"):
        generate("tsp", 10, 1, capacity=30)


@settings(deadline=None)
@given(st.text(alphabet="tspcvrkool-0123456789:=.uniformexplosionradiuscountseed", max_size=40))
def test_no_name_causes_another_exception(name):
    try:
        spec = parse_generated(name)
    except NcoBenchError:
        return
    if spec is not None:
        assert parse_generated(spec.name).name == spec.name


@pytest.mark.parametrize(("problem", "n"), [("tsp", 2), ("tsp", 3), ("cvrp", 1), ("cvrp", 2), ("cvrp", 3)])
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_smallest_sizes_work(problem, n, distribution):
    dataset = generate(problem, n, 3, distribution)
    assert [i.n for i in dataset] == [n] * 3


def test_aliases_name_kools_test_and_validation_sets():
    assert set(generated_aliases()) >= {"kool-tsp20", "kool-vrp100", "kool-tsp50:seed=4321"}
    assert all(parse_generated(alias).name == alias for alias in generated_aliases())


def test_origin_says_how_to_make_the_set_again():
    dataset = generate("cvrp", 20, 4, "clustered:std=0.1", 7, capacity=33)
    origin = dataset.origin
    assert (origin.generator, origin.distribution, origin.seed) == ("nco-bench", "clustered:std=0.1", 7)
    assert origin.params["capacity"] == "33"
    again = generate("cvrp", 20, 4, origin.distribution, origin.seed, **origin.params)
    assert again.sha256 == dataset.sha256
    assert specify("cvrp", 20, 4, origin.distribution, origin.seed, origin.params).name == dataset.name


# Content of generator version 1: whoever changes a number here bumps GENERATOR_VERSION.
PINNED_HASHES = {
    "tsp20:count=3": "c9e71d954e4323135462258bfc7a61386609ca70115117ac8fafbf74527a80f7",
    "cvrp20:capacity=30:count=3": "f3917ebe5d3fe9a073fac06944292d8c6b10866f0070b1b80d5a17ec6d50b52f",
}
PINNED_LAST_POINTS = {
    "uniform": (0.21993594296321917, 0.44669987724406657),
    "clustered": (0.463036981710121, 0.3367511726235058),
    "mixed": (0.23064934433295853, 0.20069507631093664),
    "explosion": (0.06157286173631771, 0.7108735277067006),
    "implosion": (0.020601111009496242, 0.7963722186887012),
    "expansion": (0.4056314898708705, 0.583457827559097),
    "grid": (0.7406923588631218, 0.09708814681763189),
    "rotation": (0.7315018308438659, 0.21818086555274435),
    "gaussian-mixture": (0.3942551819858242, 0.09390161476075755),
    "invit-clustered": (0.013689493549911988, 0.5492659782005164),
    "invit-explosion": (0.08468958787316065, 0.8657331465041831),
    "invit-implosion": (0.2134857604134297, 0.4385287366910549),
}


@pytest.mark.parametrize("name", PINNED_HASHES)
def test_content_of_generator_version_1_stays(name):
    assert GENERATOR_VERSION == "1"
    assert generate_spec(parse_generated(name)).sha256 == PINNED_HASHES[name]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_points_of_generator_version_1_stay(distribution):
    point = generate("tsp", 20, 3, distribution).instances[2].coords[-1]
    assert point == pytest.approx(PINNED_LAST_POINTS[distribution], rel=1e-9)


def test_within_one_command_a_set_is_made_once_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    assert generate("tsp", 20, 3) is not generate("tsp", 20, 3)
    monkeypatch.setattr(generating, "KEPT_BYTES", 3 * (20 * 2 * 8 + generating.INSTANCE_OVERHEAD_BYTES))
    with generating.generated_once():
        first = generate("tsp", 20, 3)
        with generating.generated_once():
            assert generate("tsp", 20, 3) is first
        assert len(generate("tsp", 20, 4)) == 4  # larger than the room: not kept
        assert generate("tsp", 20, 3) is first
        other = generate("tsp", 20, 3, seed=7)  # takes its place
        assert generate("tsp", 20, 3, seed=7) is other
        assert other.sha256 != first.sha256
        assert generate("tsp", 20, 3) is not first
        assert generate("tsp", 20, 3).sha256 == first.sha256
    assert generate("tsp", 20, 3) is not generate("tsp", 20, 3)
