"""DIFUSCO's tree search, `tsp_mcts` of its repository, compiled here with its own `-O3` and called from Python.

It stops by the clock after 0.1 s per city. Here the clock counts how often it is asked, so that both sides make the same
search from the same random numbers: as many restarts, 2-opt moves, sampled actions and exchanges.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nco_bench.solvers.edges.mcts import Budget, Heat, begin, prepare, stages, tour_of
from nco_bench.solvers.edges.merge import edge_map
from official.engine import Pair, same_rows

SHARE = {500: 0.02, 1000: 0.01}
"""Of all pairs that the official scripts keep of a heat map, by size; 0.12 where they have none, as in our fixture."""
ASKED = 2
"""How often the clock is asked, per city, before time is up."""
SEED = 489663920
"""The official one."""

PROGRAM = """
#include <ctime>
static long asked, most;
static clock_t counted() { return asked++ <= most ? 0 : (clock_t)4e15; }
#define clock counted
#include "TSP_IO.h"
#include "TSP_Basic_Functions.h"
#include "TSP_Init.h"
#include "TSP_2Opt.h"
#include "TSP_MCTS.h"
#include "TSP_Markov_Decision.h"

// What Solve_One_Instance does, from arrays in place of files.
extern "C" void search(int n, const double *points, const double *heat, long checks, int *tour)
{
    srand(Random_Seed);
    asked = 0, most = checks;
    Current_Instance_Begin_Time = (double)clock();
    Current_Instance_Best_Distance = Inf_Cost;
    City_Num = Virtual_City_Num = Temp_City_Num = n;
    Start_City = 0, Salesman_Num = 1;
    Allocate_Memory(n);
    for (int i = 0; i < n; i++)
        Coordinate_X[i] = points[2 * i] * Magnify_Rate, Coordinate_Y[i] = points[2 * i + 1] * Magnify_Rate;
    Calculate_All_Pair_Distance();
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            Edge_Heatmap[i][j] = (heat[i * n + j] + heat[j * n + i]) / 2;
    Identify_Candidate_Set();
    Markov_Decision_Process();
    for (int i = 0, city = 0; i < n; i++, city = All_Node[city].Next_City)
        tour[i] = city;
    Release_Memory(n);
}
"""


def compiled(code: Path) -> ctypes.CDLL:
    """Compile the official headers, unchanged, with the program above."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "search.cpp", Path(folder) / "search.so"
        source.write_text(PROGRAM)
        command = ["g++", "-O3", "-fPIC", "-shared", "-w", f"-I{code}", str(source), "-o", str(library)]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(library))


def searched(coords: NDArray[np.float64], scores: NDArray[np.float64], checkout: Path) -> Pair:
    """Prepare both sides for one heat map: from its prepared edges to the best tour."""
    n, checks = len(coords), ASKED * len(coords)
    heat = prepare(edge_map(coords, scores.astype(np.float32)), SHARE.get(n, 0.12))
    matrix = np.zeros((n, n))
    matrix[heat.first, heat.second] = heat.share
    library = compiled(checkout / "tsp_mcts" / "code")
    points = np.ascontiguousarray(coords)

    def theirs() -> list[list[int]]:
        tour = np.zeros(n, dtype=np.intc)
        given, heated, found = (ctypes.c_void_p(one.ctypes.data) for one in (points, matrix, tour))
        library.search(n, given, heated, ctypes.c_long(checks), found)
        return [tour.tolist()]

    return Pair([theirs], lambda: [counted(coords, heat, checks).tolist()], same_rows)


def counted(coords: NDArray[np.float64], heat: Heat, checks: int) -> NDArray[np.int64]:
    """Search until the clock has been asked so often."""
    asked = 0

    def early() -> bool:
        nonlocal asked
        asked += 1
        return asked <= checks

    search = begin(coords, heat, SEED)
    for _ in stages(search, Budget(early, early, lambda: False)):
        pass
    return tour_of(search.best)
