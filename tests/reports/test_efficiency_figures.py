"""Figures 3, 4 and 6 of decoder scaling: what is printed is read as printed, what is ours is compared like with like."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_folders import Results, make_cell, make_records

from nco_bench.errors import BadInputError
from nco_bench.papers.decoder_scaling.efficiency_figures import (
    compute_lines,
    measured_sweeps,
    printed_slopes,
    published_sweeps,
    published_times,
    read_sample_gaps,
    sample_lines,
)
from nco_bench.papers.decoder_scaling.flops import gigaflops
from nco_bench.reports.frame.load import load_frame


def test_compute_is_that_of_table_17() -> None:
    """Of one layer of width 512, by hand: 2 (13 x 512^2) + 4 x 100 x 512 + 16 x 100 + 7 x 512 operations per token."""
    assert gigaflops(12, 512) == pytest.approx(843.2, abs=0.05)
    assert gigaflops(24, 256) == pytest.approx(434.4, abs=0.05)
    of_layers = 100 * 100 * 12 * (26 * 512**2 + 400 * 512 + 1600 + 7 * 512) / 1e9
    around = 100 * (6 * 100 * 512 + 4 * 512**2) / 1e9
    assert gigaflops(12, 512) == pytest.approx(of_layers + around)


def test_beams_of_table_18_give_two_of_the_three_printed_exponents() -> None:
    """1.34 for 6x512 and 1.71 for 42x128; the 0.82 of 6x128 comes out of no fit of these gaps (1.06 here)."""
    sweeps = {(s.depth, s.width): s for s in published_sweeps()}
    assert len(sweeps) == 12
    assert sweeps[6, 128].beams == (1, 2, 4, 8, 16, 32, 64)
    assert sweeps[42, 512].beams == (1, 2, 4, 8, 16)  # from 32 on the table prints 0.0000%
    fits = [fit for *_, fit in compute_lines([sweeps[6, 512], sweeps[42, 128]]).values()]
    assert [fit.parameters["alpha"] for fit in fits if fit] == pytest.approx([1.34, 1.71], abs=0.06)


def test_printed_times_are_minutes() -> None:
    """Table 12: 0.34m greedy; Table 4: 12m and 2.75h."""
    minutes, gaps, _ = published_times()["paper, D=6, W=128"]
    assert list(minutes) == pytest.approx([0.34, 12, 165])
    assert list(gaps) == [0.464, 0.0127, 0.0059]


def test_printed_exponents_are_slopes_that_end_in_the_final_gap() -> None:
    """Section 4.2: at 0.71, twice the data leave 61 % of the gap; 42x128 ends at 0.070 %."""
    samples, gaps = printed_slopes()["paper, D=42, W=128: exponent 0.71"]
    assert gaps[1] == 0.07
    assert (gaps[1] / gaps[0]) ** (0.693147 / 3.0194) == pytest.approx(
        0.61, abs=0.005
    )  # ln 2 / ln(61.44 / 3)
    assert samples[1] / samples[0] == pytest.approx(20.48)


def test_beams_are_compared_on_the_instances_that_all_solved(results: Results) -> None:
    """Greedy solved eight, beam 4 the first five: only those count, and their times."""
    greedy = make_cell(0, "decoder-6x128", "tsp100", decoding="greedy")
    beam = make_cell(0, "decoder-6x128", "tsp100", decoding="beam:4")
    clustered = make_cell(
        0,
        "decoder-6x128",
        "c",
        decoding="beam:2",
        origin={"distribution": "clustered", "seed": 1, "params": {}},
    )
    results.run("r1", (greedy, make_records(greedy, [11.0] * 5 + [19.0] * 3, [10.0] * 8, seconds=1.0)))
    results.run("r2", (beam, make_records(beam, [10.5] * 5, [10.0] * 5, seconds=4.0)))
    results.run("r3", (clustered, make_records(clustered, [30.0] * 8, [10.0] * 8)))
    (sweep,) = measured_sweeps(load_frame(results.folder))
    assert (sweep.depth, sweep.width, sweep.beams, sweep.instances) == (6, 128, (1, 4), 5)
    assert sweep.gaps == pytest.approx((10.0, 5.0))
    assert sweep.seconds == pytest.approx((1.0, 4.0))


def test_beams_of_two_settings_are_two_sweeps(results: Results) -> None:
    cells = [
        make_cell(
            0, "decoder-6x128", "tsp100", decoding=decoding, options={"logit_scale": scale},
            config_sha256=f"{scale}{decoding}",
        )
        for scale in (None, "ssmax")
        for decoding in ("greedy", "beam:4")
    ]  # fmt: skip
    for index, (cell, cost) in enumerate(zip(cells, (13.0, 12.0, 15.0, 14.0), strict=True)):
        results.run(f"r{index}", (cell, make_records(cell, [cost] * 5, [10.0] * 5)))
    sweeps = measured_sweeps(load_frame(results.folder))
    assert {sweep.name: sweep.gaps for sweep in sweeps} == {
        "D=6, W=128": pytest.approx((30.0, 20.0)),
        "D=6, W=128, logit scale ssmax": pytest.approx((50.0, 40.0)),
    }


def test_exponent_of_a_training_log(tmp_path: Path) -> None:
    """Gaps that halve when samples grow fourfold have the exponent 0.5; a line repeated by a resumed run counts once."""
    log = tmp_path / "mine.csv"
    log.write_text(
        "step,samples,loss,validation_gap\n1,1000000,2,8\n2,2000000,2,\n3,4000000,2,4\n3,4000000,2,4\n4,16000000,2,2\n"
    )
    assert read_sample_gaps(log) == ([1.0, 4.0, 16.0], [8.0, 4.0, 2.0])
    ((name, (*_, fit)),) = sample_lines([log]).items()
    assert fit is not None
    assert fit.parameters["alpha"] == pytest.approx(0.5)
    assert "mine (exponent 0.50)" in name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("step,loss\n1,2\n", "samples and validation_gap"),
        ("step,samples,validation_gap\n1,64,\n", "no validation gap"),
        ("step,samples,validation_gap\n1,x,3\n", "samples and validation_gap"),
    ],
)
def test_log_without_gaps_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    log = tmp_path / "log.csv"
    log.write_text(text)
    with pytest.raises(BadInputError, match=message):
        read_sample_gaps(log)
