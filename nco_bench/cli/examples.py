"""Three examples at the end of every ``--help``; a test parses each as the command line does."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, str, str]] = {
    "": (
        "nco-bench run two-opt decoder-6x128 --data tsp100 --limit 100",
        "nco-bench report --latex --out table.tex",
        "nco-bench reproduce pens --table 2",
    ),
    "generate": (
        "nco-bench generate tsp --n 100 --count 16 --reference lkh3",
        "nco-bench generate cvrp --n 1000 --capacity 250 --count 16",
        "nco-bench generate tsp --n 500 --distribution clustered --seed 7",
    ),
    "run": (
        "nco-bench run two-opt decoder-6x128 --data tsp100 --limit 100",
        "nco-bench run pens-a --data tsplib:1-1000 --decoding beam:16",
        "nco-bench run --config study.toml --dry-run",
    ),
    "report": (
        "nco-bench report --data tsp100",
        "nco-bench report --table gaps --data 'tsp*' --latex --out gaps.tex",
        "nco-bench report --html --out report.html",
    ),
    "runs": (
        "nco-bench runs list --data 'tsp*'",
        "nco-bench runs show 20261122-1042",
        "nco-bench runs export --out records.csv",
    ),
    "runs list": (
        "nco-bench runs list",
        "nco-bench runs list --solver 'pens-*' --data tsp1000",
        "nco-bench runs list --results results/classical --json",
    ),
    "runs show": (
        "nco-bench runs show 20261122-1042",
        "nco-bench runs show '2026*' --results results/cpu",
        "nco-bench runs show 20261122-1042 --json",
    ),
    "runs rm": (
        "nco-bench runs rm 20261122-1042",
        "nco-bench runs rm '20261122*' --yes",
        "nco-bench runs rm '*' --results trial/runs",
    ),
    "runs status": (
        "nco-bench runs status",
        "nco-bench runs status --results all/runs",
        "nco-bench runs status --json",
    ),
    "runs wait": (
        "nco-bench runs wait",
        "nco-bench runs wait --results all/runs",
        "nco-bench runs wait --timeout 3600",
    ),
    "cluster": (
        "nco-bench cluster check",
        "nco-bench cluster check cluster.toml",
        "nco-bench cluster show",
    ),
    "cluster check": (
        "nco-bench cluster check",
        "nco-bench cluster check cluster.toml",
        "nco-bench cluster check --slurm gpus=1 --patience 60",
    ),
    "cluster show": (
        "nco-bench cluster show",
        "nco-bench cluster show cluster.toml",
        "nco-bench cluster show --json",
    ),
    "runs merge": (
        "nco-bench runs merge other/results/runs",
        "nco-bench runs merge gpu/runs cpu/runs --results all/runs",
        "nco-bench runs merge results/cpu/pens.parquet",
    ),
    "runs pack": (
        "nco-bench runs pack --out runs.parquet",
        "nco-bench runs pack '20261122*' --out paper.parquet",
        "nco-bench runs pack --results cpu/runs --results gpu/runs --out all.parquet",
    ),
    "runs unpack": (
        "nco-bench runs unpack runs.parquet",
        "nco-bench runs unpack results/cpu/pens.parquet --results trial/runs",
        "nco-bench runs unpack cpu.parquet gpu.parquet",
    ),
    "runs export": (
        "nco-bench runs export --out records.csv",
        "nco-bench runs export --data 'tsp*' --out tsp.parquet",
        "nco-bench runs export --solver lkh3 --solver 'pens-*' --out some.csv",
    ),
    "compare": (
        "nco-bench compare pens-a decoder-6x128 --data tsp100",
        "nco-bench compare 'lehd greedy' 'lehd rrc:100' --data tsp100",
        "nco-bench compare lkh3 concorde --data tsplib --json",
    ),
    "verify": (
        "nco-bench verify",
        "nco-bench verify --results results/classical",
        "nco-bench verify --json",
    ),
    "reference": (
        "nco-bench reference tsp1000:count=16 --solver lkh3:runs=10",
        "nco-bench reference tsp100 --solver concorde --jobs 8",
        "nco-bench reference cvrp100:count=100 --solver hgs --time-limit 60",
    ),
    "train": (
        "nco-bench train sit --budget 9m --out sit.safetensors",
        "nco-bench train decoder-24x64 --data labels.npz --budget 2h",
        "nco-bench train tropical --data knapsack --config batch=500",
    ),
    "list": (
        "nco-bench list solvers",
        "nco-bench list datasets",
        "nco-bench list weights --json",
    ),
    "show": (
        "nco-bench show lkh3",
        "nco-bench show tsp100",
        "nco-bench show am-official-tsp100",
    ),
    "score": (
        "nco-bench score berlin52.tsp berlin52.opt.tour",
        "nco-bench score X-n101-k25.vrp X-n101-k25.sol --json",
        "nco-bench score berlin52.tsp mine.tour --convention euclidean",
    ),
    "parity": (
        "nco-bench parity lehd-tsp.safetensors",
        "nco-bench parity lehd-tsp.safetensors bq-tsp.safetensors",
        "nco-bench parity am-tsp.safetensors --json",
    ),
    "convert": (
        "nco-bench convert tsp100.npz tsp100.pkl",
        "nco-bench convert test.txt test.npz --from concorde-line",
        "nco-bench convert tsp100.npz first.tsp --instance 1",
    ),
    "calibrate": (
        "nco-bench calibrate pens-a",
        "nco-bench calibrate pens-r --sizes 100,1000",
        "nco-bench calibrate pens-ar --weights mine.safetensors",
    ),
    "test-solver": (
        "nco-bench test-solver my_solver.py",
        "nco-bench test-solver my_solver.py:fast",
        "nco-bench test-solver solver.toml --json",
    ),
    "doctor": (
        "nco-bench doctor",
        "nco-bench doctor --json",
        "NCO_BENCH_LKH=bin/LKH nco-bench doctor",
    ),
    "reproduce": (
        "nco-bench reproduce pens --table 2",
        "nco-bench reproduce sit --scale cpu --markdown --out tables",
        "nco-bench reproduce --list",
    ),
    "instances": (
        "nco-bench instances pull tsplib",
        "nco-bench instances list",
        "nco-bench instances verify tsplib",
    ),
    "instances pull": (
        "nco-bench instances pull tsplib",
        "nco-bench instances pull cvrplib:X",
        "nco-bench instances pull fu_tsp500",
    ),
    "instances list": (
        "nco-bench instances list",
        "nco-bench instances list --json",
        "nco-bench instances list --instances data",
    ),
    "instances verify": (
        "nco-bench instances verify",
        "nco-bench instances verify tsplib",
        "nco-bench instances verify --json",
    ),
    "weights": (
        "nco-bench weights pull am",
        "nco-bench weights import glop checkpoints/",
        "nco-bench weights show pens-a",
    ),
    "weights list": (
        "nco-bench weights list",
        "nco-bench weights list --json",
        "NCO_BENCH_CACHE=cache nco-bench weights list",
    ),
    "weights verify": (
        "nco-bench weights verify",
        "nco-bench weights verify --json",
        "NCO_BENCH_CACHE=cache nco-bench weights verify",
    ),
    "weights import": (
        "nco-bench weights import lehd checkpoint-150.pt",
        "nco-bench weights import lehd epoch-40.pt --problem cvrp",
        "nco-bench weights import difusco tsp500.ckpt --name difusco-tsp500",
    ),
    "weights pull": (
        "nco-bench weights pull am",
        "nco-bench weights pull am-official-tsp100",
        "NCO_BENCH_MIRROR=mirror nco-bench weights pull lehd",
    ),
    "weights show": (
        "nco-bench weights show pens-a",
        "nco-bench weights show am-official-tsp100",
        "nco-bench weights show mine.safetensors --json",
    ),
    "weights export": (
        "nco-bench weights export pens-a --out copy.safetensors",
        "nco-bench weights export lehd --out half.safetensors --precision bf16",
        "nco-bench weights export mine.safetensors --out ship/mine --json",
    ),
    "plot": (
        "nco-bench plot pareto --data tsp100 --out pareto.pdf",
        "nco-bench plot tour --data tsp100 --solver lkh3 --out tour.png",
        "nco-bench plot laws --figure 3 --out laws.svg",
    ),
    "plot tour": (
        "nco-bench plot tour --data tsp100 --solver lkh3 --out tour.png",
        "nco-bench plot tour --data tsplib/berlin52 --solver reference --out b.pdf",
        "nco-bench plot tour --data cvrp100 --instance 3 --out instance.svg",
    ),
    "plot repeats": (
        "nco-bench plot repeats sit --out repeats.png",
        "nco-bench plot repeats sit --data tsp1000:count=16 --limit 16 --out r.pdf",
        "nco-bench plot repeats sit sit:weights=mine.safetensors --out repeats.svg",
    ),
    "plot packing": (
        "nco-bench plot packing --data bpp3d20 --solver extreme-point --out p.png",
        "nco-bench plot packing --data bpp3d20 --solver attend2pack --out p.pdf",
        "nco-bench plot packing --data b.npz --solver attend2pack --out p.svg",
    ),
    "plot pareto": (
        "nco-bench plot pareto --out pareto.pdf",
        "nco-bench plot pareto --data tsp100 --data tsp1000 --out pareto.pdf",
        "nco-bench plot pareto --solver lkh3 --solver pens-a --out pareto.png",
    ),
    "plot anytime": (
        "nco-bench plot anytime --data tsp100 --out anytime.pdf",
        "nco-bench plot anytime --solver lehd --out anytime.png",
        "nco-bench plot anytime --results results/fill --data fu_tsp1000 --out g.svg",
    ),
    "plot scaling": (
        "nco-bench plot scaling --out scaling.pdf",
        "nco-bench plot scaling --solver pens-a --solver lehd --out scaling.png",
        "nco-bench plot scaling --data tsp100 --data tsp1000 --out scaling.svg",
    ),
    "plot laws": (
        "nco-bench plot laws --out laws.pdf",
        "nco-bench plot laws --figure 4a --out compute.png",
        "nco-bench plot laws --results results/neural --out laws.svg",
    ),
    "plot training": (
        "nco-bench plot training sit.csv --out training.png",
        "nco-bench plot training a.csv b.csv --out training.pdf",
        "nco-bench plot training results/training/pens-a.csv --out t.svg",
    ),
    "plot scatter": (
        "nco-bench plot scatter pens-a lehd --data tsp100 --out scatter.png",
        "nco-bench plot scatter lkh3 concorde --data tsplib --out scatter.pdf",
        "nco-bench plot scatter lehd 'lehd rrc:100' --data tsp100 --out s.svg",
    ),
    "plot attention": (
        "nco-bench plot attention pens-a --out attention.png",
        "nco-bench plot attention pens-r --scale 1 --scale 2 --out attention.pdf",
        "nco-bench plot attention tropical --data quickselect --out attention.svg",
    ),
    "plot lengths": (
        "nco-bench plot lengths --data quickselect --out lengths.png",
        "nco-bench plot lengths --data knapsack --n 8 --n 64 --out lengths.pdf",
        "nco-bench plot lengths --data scc --weights seed0 --out lengths.svg",
    ),
    "plot calibration": (
        "nco-bench plot calibration pens-a --out calibration.png",
        "nco-bench plot calibration pens-r --out calibration.pdf",
        "nco-bench plot calibration pens-ar --weights mine.safetensors --out c.svg",
    ),
    "plot sightedness": (
        "nco-bench plot sightedness decoder-6x128 --out sight.png",
        "nco-bench plot sightedness pens-a pens-r --limit 200 --out sight.pdf",
        "nco-bench plot sightedness pens-a --data tsp50 --out sight.svg",
    ),
    "plot features": (
        "nco-bench plot features decoder-6x128 --out features.png",
        "nco-bench plot features decoder-6x128 --kind cosine --out features.pdf",
        "nco-bench plot features pens-a pens-r --step 50 --out features.svg",
    ),
    "site": (
        "nco-bench site build --results results/cpu --out site",
        "nco-bench site build --verify --out site",
        "nco-bench site add submitted --results results/runs",
    ),
    "site build": (
        "nco-bench site build --results results/cpu --results more --out site",
        "nco-bench site build --verify --out site",
        "nco-bench site build --results results/runs --out site --json",
    ),
    "site add": (
        "nco-bench site add submitted --results results/runs",
        "nco-bench site add submitted/one submitted.parquet --results results/runs",
        "nco-bench site add first second --results results/runs --json",
    ),
}
"""By the command's words."""
