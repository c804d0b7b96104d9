"""Intervals, paired tests and outliers against SciPy and hand calculations."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from run_folders import Results, make_cell, make_records

from nco_bench.errors import BadInputError, MissingRecordsError, ResultsError, UnknownNameError
from nco_bench.reports.frame import statistics
from nco_bench.reports.frame.aggregate import summarise
from nco_bench.reports.frame.compare import compare, outlying_instances, sentence
from nco_bench.reports.frame.load import load_frame
from nco_bench.reports.frame.statistics import bootstrap_interval, interval_of_mean, outliers, wilcoxon_p


def test_interval_agrees_with_scipy_bootstrap() -> None:
    values = np.random.default_rng(0).gamma(2.0, 1.5, 200)
    theirs = scipy.stats.bootstrap(
        (values,), np.mean, n_resamples=50_000, method="percentile", random_state=1
    ).confidence_interval
    assert bootstrap_interval(values) == pytest.approx((theirs.low, theirs.high), rel=0.01)


def test_interval_of_a_large_sample_is_that_of_many_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skewed gaps (exponential): the expansion against 20,000 resamples of the same 3,000 values."""
    values = np.random.default_rng(1).exponential(1.0, 3000)
    low, high = bootstrap_interval(values) or (0.0, 0.0)
    monkeypatch.setattr(statistics, "EXACT_UP_TO", 10_000)
    assert bootstrap_interval(values, resamples=20_000) == pytest.approx((low, high), abs=0.02 * (high - low))


def test_the_expansion_agrees_with_the_whole_bootstrap_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whole numbers it is known: that of their sum is their histogram convolved with itself, here 40 times."""
    values = np.rint(-100 * np.log1p(-(np.arange(40) + 0.5) / 40)).astype(int)
    sums = np.ones(1)
    for _ in values:
        sums = np.convolve(sums, np.bincount(values) / len(values))
    ends = np.interp([0.025, 0.975], np.cumsum(sums), np.arange(len(sums)) + 0.5) / len(values)
    monkeypatch.setattr(statistics, "EXACT_UP_TO", 39)
    assert bootstrap_interval(values.astype(float)) == pytest.approx(tuple(ends), abs=5e-4 * np.ptp(ends))


def test_interval_is_the_same_every_time_and_none_for_one_value() -> None:
    values = np.array([1.0, 2.0, 4.0])
    assert bootstrap_interval(values) == bootstrap_interval(values)
    assert bootstrap_interval(values[:1]) is None


def test_interval_of_equal_values_is_a_point() -> None:
    assert bootstrap_interval(np.full(5, 2.5)) == (2.5, 2.5)
    assert bootstrap_interval(np.full(5000, 2.5)) == (2.5, 2.5)


@pytest.mark.parametrize("n", [2, 5, 29])
def test_the_interval_of_few_values_is_student_s(n: int) -> None:
    values = np.random.default_rng(n).gamma(2.0, 1.5, n)
    low, high = scipy.stats.t.interval(0.95, n - 1, values.mean(), scipy.stats.sem(values))
    assert interval_of_mean(values) == pytest.approx((low, high))
    assert interval_of_mean(values[:1]) is None


def test_the_interval_of_many_values_is_the_bootstrap_s() -> None:
    values = np.random.default_rng(0).gamma(2.0, 1.5, 30)
    assert interval_of_mean(values) == bootstrap_interval(values)


def test_wilcoxon_by_hand() -> None:
    """Five positive differences: all 2^5 sign patterns are equally likely, two of them as extreme."""
    assert wilcoxon_p(np.array([1.0, 2.0, 3.0, 4.0, 5.0])) == pytest.approx(2 / 32)
    assert wilcoxon_p(np.zeros(4)) is None


def test_wilcoxon_of_many_ties_is_exact_over_the_few_differences() -> None:
    """Five wins among 128 instances: the signs of five coins, 2 of 2^5, where the normal approximation says 0.025."""
    assert wilcoxon_p(np.array([-1.0, -2.0, -3.0, -4.0, -5.0] + [0.0] * 123)) == pytest.approx(2 / 32)
    # Ranks 1, 2.5, 2.5, 4 of 0, -1, 1, 2: the positive ones sum to 6.5, or more in 3 of 2^3 patterns.
    assert wilcoxon_p(np.array([0.0, -1.0, 1.0, 2.0])) == pytest.approx(2 * 3 / 8)


def test_wilcoxon_agrees_with_scipy_where_that_is_exact_and_beyond() -> None:
    values = np.random.default_rng(0).normal(0.3, 1.0, 200)
    assert wilcoxon_p(values[:50]) == pytest.approx(scipy.stats.wilcoxon(values[:50], method="exact").pvalue)
    assert wilcoxon_p(values) == pytest.approx(scipy.stats.wilcoxon(values).pvalue)


def test_zeros_among_many_differences_are_ranked_as_among_few() -> None:
    """Where SciPy's normal approximation counts, too: Pratt's treatment, not Wilcoxon's, which leaves them out before."""
    values = np.concatenate([np.random.default_rng(0).normal(0.3, 1.0, 60), np.zeros(40)])
    theirs = {way: scipy.stats.wilcoxon(values, zero_method=way).pvalue for way in ("pratt", "wilcox")}
    assert wilcoxon_p(values) == pytest.approx(theirs["pratt"])
    assert wilcoxon_p(values) != pytest.approx(theirs["wilcox"], rel=0.01)


def test_values_that_differ_by_rounding_are_no_outliers() -> None:
    """An exact solver's gaps: 0 up to float64, whose quartiles are equal, and one instance that it missed."""
    values = np.array([0.0] * 9 + [2e-14, -1e-14, 0.3])
    assert outliers(values).tolist() == [11, 9, 10]
    assert outliers(values, least=5e-5).tolist() == [11]


def test_outliers_beyond_three_interquartile_ranges() -> None:
    values = np.array([1.0, 1.1, 1.2, 1.3, 1.4, 9.0, -20.0])
    assert outliers(values).tolist() == [6, 5]


def paired(results: Results, a: list[float | str], b: list[float | str]) -> None:
    """Records of solvers a and b; references are 10."""
    one, two = make_cell(0, "a", "tsp100"), make_cell(1, "b", "tsp100")
    refs = [10.0] * len(a)
    results.run("r1", (one, make_records(one, a, refs)), (two, make_records(two, b, refs)))


def test_comparison_is_paired_by_instance(results: Results) -> None:
    """Gaps of a: 10 20 30 40, of b: 20 20 20 60; differences -10 0 10 -20, of ranks 2.5 1 2.5 4."""
    paired(results, [11.0, 12.0, 13.0, 14.0], [12.0, 12.0, 12.0, 16.0])
    found = compare(load_frame(results.folder), "a", "b", "tsp100")
    assert (found.wins, found.ties, found.losses) == (2, 1, 1)
    assert found.difference == pytest.approx(-5.0)
    assert (found.mean_a, found.mean_b) == pytest.approx((25.0, 30.0))
    assert found.p_value == pytest.approx(0.75)  # the positive ones sum to 2.5 or less in 3 of 2^3 patterns
    assert "2 wins, 1 tie, 1 loss of a" in sentence(found)


def test_what_differs_by_rounding_ties_at_any_size_and_a_millionth_does_not(results: Results) -> None:
    """Gaps of the same tours differ in their last digits, whose signs no test of ranks may count."""
    a, b = [1e6, 1e6, 1e-4, 3.0], [1e6 + 1e-4, 1e6 + 1, 1e-4 + 1e-10, 3.0 + 1e-12]
    cells = [make_cell(i, solver, "tsp100") for i, solver in enumerate("ab")]
    parts = zip(cells, (a, b), strict=True)
    results.run("r1", *((cell, make_records(cell, costs, [1e6, 1e6, 1e-4, 3.0])) for cell, costs in parts))
    found = compare(load_frame(results.folder), "a", "b", "tsp100")
    assert (found.wins, found.ties, found.losses) == (2, 2, 0)
    assert found.p_value == pytest.approx(2 / 4)  # two differences of one sign: 2 of 2^2


def test_repeats_are_averaged_before_two_solvers_are_compared(results: Results) -> None:
    """Means 11 and 12 of a, whose first repeats are the worse ones, against 11.5 and 12.5."""
    one, two = make_cell(0, "a", "tsp100", repeats=2), make_cell(1, "b", "tsp100")
    first, second = (make_records(one, [12 - 2 * i, 13 - 2 * i], [10.0] * 2, repeat=i) for i in range(2))
    results.run("r1", (one, first + second), (two, make_records(two, [11.5, 12.5], [10.0] * 2)))
    found = compare(load_frame(results.folder), "a", "b", "tsp100")
    assert (found.wins, found.losses, found.mean_a, found.mean_b) == (
        2,
        0,
        pytest.approx(15),
        pytest.approx(20),
    )


def test_instances_that_one_solver_failed_are_not_compared(results: Results) -> None:
    paired(results, [11.0, "failed", 13.0, 14.0], [12.0, 12.0, "oom", "failed"])
    found = compare(load_frame(results.folder), "a", "b", "tsp100")
    assert (found.instances, found.only_a, found.only_b) == (1, 2, 1)
    assert (found.low, found.p_value) == (None, None)


def test_no_common_instance_is_an_error(results: Results) -> None:
    paired(results, [11.0, "failed"], ["oom", 12.0])
    with pytest.raises(ResultsError, match="no instance that both a and b solved"):
        compare(load_frame(results.folder), "a", "b", "tsp100")


def test_without_references_costs_are_compared(results: Results) -> None:
    one, two = make_cell(0, "a", "tsp100"), make_cell(1, "b", "tsp100")
    refs = [None, None]
    results.run("r1", (one, make_records(one, [3.0, 4.0], refs)), (two, make_records(two, [1.0, 5.0], refs)))
    found = compare(load_frame(results.folder), "a", "b", "tsp100")
    assert (found.unit, found.difference) == ("cost", pytest.approx(0.5))


def test_scores_are_compared_as_tables_print_them(results: Results) -> None:
    """Load rates 0.7 and 0.8 against 0.6 and 0.6: a is better by 0.15, and no mean is below 0."""
    facts = {"problem": "bpp3d", "objective": "max", "convention": "load"}
    one, two = (make_cell(i, solver, "bpp3d20", **facts) for i, solver in enumerate("ab"))
    refs = [None, None]
    results.run("r1", (one, make_records(one, [0.7, 0.8], refs)), (two, make_records(two, [0.6, 0.6], refs)))
    found = compare(load_frame(results.folder), "a", "b", "bpp3d20")
    assert (found.unit, found.wins, found.losses) == ("score", 2, 0)
    assert (found.mean_a, found.mean_b, found.difference) == pytest.approx((0.75, 0.6, 0.15))
    assert "a 0.7500, b 0.6000; difference +0.1500, higher is better" in sentence(found)


def test_a_name_that_fits_two_rows_must_be_made_clear(results: Results) -> None:
    cells = [make_cell(i, "net", "tsp100", decoding=d) for i, d in enumerate(("greedy", "beam:16"))]
    results.run("r1", *((c, make_records(c, [8.0], [8.0])) for c in cells))
    frame = load_frame(results.folder)
    with pytest.raises(BadInputError, match="'net greedy'"):
        compare(frame, "net", "net greedy", "tsp100")
    assert compare(frame, "net beam:16", "net greedy", "tsp100").ties == 1


def test_a_pattern_that_fits_two_sets_is_no_damage(results: Results) -> None:
    """It said that one set stands for different data, and to move a run away."""
    for name in ("tsp100", "tsp200"):
        cells = [make_cell(i, solver, name) for i, solver in enumerate("ab")]
        results.run(name, *((c, make_records(c, [8.0], [8.0])) for c in cells))
    frame = load_frame(results.folder)
    with pytest.raises(BadInputError, match=r"'tsp\*' fits several datasets: tsp100.*, tsp200.*name one"):
        compare(frame, "a", "b", "tsp*")
    assert compare(frame, "a", "b", "tsp1*").ties == 1


def test_unknown_names_are_suggested(results: Results) -> None:
    paired(results, [11.0], [12.0])
    frame = load_frame(results.folder)
    with pytest.raises(MissingRecordsError, match="tsp100"):
        compare(frame, "a", "b", "tsp10")
    with pytest.raises(UnknownNameError, match=r"solver 'c'.*nco-bench list solvers"):
        compare(frame, "a", "c", "tsp100")


def test_a_solver_without_records_of_the_set_is_no_unknown_name(results: Results) -> None:
    """It ran elsewhere, or is built in: what is missing are records, and the message says how to make them."""
    paired(results, [11.0], [12.0])
    other = make_cell(0, "mine", "tsp20", decoding="greedy")
    results.run("r2", (other, make_records(other, [3.0], [3.0])))
    frame = load_frame(results.folder)
    with pytest.raises(MissingRecordsError) as error:
        compare(frame, "mine greedy", "b", "tsp100")
    assert str(error.value) == (
        "no records of mine greedy on tsp100; make them with: nco-bench run mine --decoding greedy --data tsp100"
    )
    with pytest.raises(MissingRecordsError, match=r"nco-bench run random-insertion:order=sit --data tsp100$"):
        compare(frame, "a", "random-insertion:order=sit", "tsp100")
    with pytest.raises(MissingRecordsError, match="and the settings that the row names"):
        compare(frame, "a", "sit greedy (logit scale ssmax)", "tsp100")


def test_outlying_instances_carry_their_names(results: Results) -> None:
    cell = make_cell(0, "a", "tsp100")
    costs = [10.1, 10.2, 10.3, 10.2, 10.1, 20.0]
    results.run("r1", (cell, make_records(cell, costs, [10.0] * 6)))
    frame = load_frame(results.folder)
    [worst] = outlying_instances(frame, summarise(frame)[0])
    assert (worst.name, worst.gap_percent) == ("tsp100-5", pytest.approx(100.0))
