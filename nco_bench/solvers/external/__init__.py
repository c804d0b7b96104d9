"""Any program as a solver, by lines of JSON; how it is started, limited and reaped stands in `nco_bench.isolation`."""
