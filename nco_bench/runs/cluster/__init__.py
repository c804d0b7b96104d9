"""Runs as SLURM jobs: profiles, shards sized by time, what runs in a job, and what became of it. submitit submits."""
