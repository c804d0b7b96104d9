"""Parity of H-TSP (Learning4Optimization-HUST/H-TSP): lower model, upper encoder, every step of complete episodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Normal

from nco_bench.nn.build import load_official
from nco_bench.parity.fixture import Checks, Fixture, ParityResult, result
from nco_bench.parity.trajectories import compare_gradients
from nco_bench.solvers.divide.htsp import LOWER, Htsp, build, config_of, from_official
from nco_bench.solvers.divide.htsp_episode import Episode, Sizes, begin, improve_at, state_of
from nco_bench.solvers.divide.htsp_paths import eight, path_lengths, path_tours, solve_paths
from nco_bench.solvers.stepwise.policy import RouteState


def check(fixture: Fixture) -> ParityResult:
    """Compare what an H-TSP fixture holds."""
    checks = Checks()
    config = replace(config_of(fixture.state_dict, "tsp"), heads=fixture.option("lower")["n_heads"])
    policy = build(config).eval()
    load_official(policy, "h-tsp", fixture.state_dict, str(fixture.path))
    with torch.inference_mode():
        if fixture.wants("low"):
            _check_lower(fixture, policy, checks)
        if fixture.groups(r"step\d+"):
            _check_episodes(fixture, policy, checks)
        if fixture.wants("ppo"):
            _check_actions(fixture, policy, checks)
    if fixture.wants("low_train"):
        _check_training(fixture, policy, checks)
    return result(fixture, "h-tsp", "tsp", checks)


def _check_lower(fixture: Fixture, policy: Htsp, checks: Checks) -> None:
    """Compare the encoder, the probabilities of every decision held, and the best paths."""
    points, first = fixture.input("low.coords"), fixture.input("low.first_nodes")
    seen = eight(points)
    size = seen.shape[1]
    checks.close("low.encoder_output", policy.lower.embed(seen), fixture.wanted("low.encoder_output"))
    source = torch.zeros(len(seen), dtype=torch.int64)
    encoded = policy.lower.encode(seen, source, source + size - 1)
    for name in fixture.groups(r"low\.step\d+"):
        last, mask = fixture.input(f"{name}.last"), fixture.input(f"{name}.mask")
        logits = policy.lower.logits(encoded, RouteState(first.expand(len(seen), -1), last, mask))
        checks.close(f"{name}.probs", logits.softmax(dim=2), fixture.wanted(f"{name}.probs"))
    order, _ = solve_paths(policy.lower, points, first)
    found = path_lengths(points, order[:, None], source[: len(order)], source[: len(order)] + size - 1)[:, 0]
    checks.close("low.best_length", found, fixture.wanted("low.best_length"))
    expected = fixture.wanted("low.best_pi")
    checks.same("low.best_pi", _edges(order), None if expected is None else _edges(expected))


def _edges(tours: Tensor) -> Tensor:
    """Write the edges of closed tours in one order, whatever their start and direction."""
    ends = torch.stack([tours, tours.roll(-1, 1)], dim=2)
    numbers = ends.amin(dim=2) * tours.shape[1] + ends.amax(dim=2)
    return numbers.sort(dim=1).values


def _check_episodes(fixture: Fixture, policy: Htsp, checks: Checks) -> None:
    """Follow complete episodes and the improvement after them, and compare the steps held."""
    sizes = Sizes(fixture.option("frag_len"), fixture.option("max_new_nodes"), fixture.option("k"))
    episodes = [begin(c.numpy(), sizes.neighbours) for c in fixture.input("coords")]
    steps = len(fixture.input("first_nodes"))
    given = fixture.input("improve_actions")
    for step in range(steps):
        name = f"step{step}"
        states = torch.from_numpy(np.stack([state_of(e) for e in episodes]))
        checks.close(f"{name}.state", states, fixture.wanted(f"{name}.state"))
        if step < steps - len(given):
            actions = _check_upper(fixture, policy, checks, name, states)
        else:
            actions = given[step - steps + len(given)]
        checks.close(f"{name}.action", actions, fixture.wanted(f"{name}.action"))
        active = torch.tensor([i for i, e in enumerate(episodes) if step >= steps - len(given) or not e.done])
        checks.same(f"{name}.active", active, fixture.wanted(f"{name}.active"))
        before = torch.tensor([e.length() for e in episodes])
        _check_step(fixture, policy, checks, name, [episodes[i] for i in active], actions[active], sizes)
        tours = torch.from_numpy(_padded([e.tour for e in episodes]))
        checks.same(f"{name}.tours", tours, fixture.wanted(f"{name}.tours"))
        after = torch.tensor([e.length() for e in episodes])
        checks.close(f"{name}.tour_len", after, fixture.wanted(f"{name}.tour_len"))
        checks.close(f"{name}.reward", before - after, fixture.wanted(f"{name}.reward"))


def _check_upper(fixture: Fixture, policy: Htsp, checks: Checks, name: str, states: Tensor) -> Tensor:
    """Compare encoder and critic; return the greedy actions."""
    encoded = policy.encoder(states)
    checks.close(f"{name}.encoder_output", encoded, fixture.wanted(f"{name}.encoder_output"))
    checks.close(f"{name}.critic_value", policy.critic(encoded), fixture.wanted(f"{name}.critic_value"))
    return policy.actor(encoded).tanh()


def _check_step(
    fixture: Fixture,
    policy: Htsp,
    checks: Checks,
    name: str,
    episodes: list[Episode],
    actions: Tensor,
    sizes: Sizes,
) -> None:
    """Take one step and compare the fragments."""
    fragments = improve_at(policy.lower, episodes, actions.double().numpy(), sizes)
    cities = torch.from_numpy(np.stack([f.cities for f in fragments]))
    checks.same(f"{name}.fragments", cities, fixture.wanted(f"{name}.fragments"))
    new = torch.from_numpy(_padded([f.new for f in fragments]))
    checks.same(f"{name}.new_nodes", new, fixture.wanted(f"{name}.new_nodes"))
    anchors = np.stack([e.coords[f.anchor] for e, f in zip(episodes, fragments, strict=True)])
    start = torch.from_numpy(anchors) * 2 - 1
    checks.close(f"{name}.start_city_coord", start, fixture.wanted(f"{name}.start_city_coord"))


def _padded(rows: list[np.ndarray]) -> np.ndarray:
    """Stack rows, -1 behind the shorter ones."""
    width = max(len(row) for row in rows)
    return np.stack([np.pad(row, (0, width - len(row)), constant_values=-1) for row in rows])


def _check_actions(fixture: Fixture, policy: Htsp, checks: Checks) -> None:
    """Compare the terms of PPO at the first step."""
    episodes = [begin(c.numpy(), fixture.option("k")) for c in fixture.input("coords")]
    states = torch.from_numpy(np.stack([state_of(e) for e in episodes]))
    mean = policy.actor(policy.encoder(states))
    normal = Normal(mean, policy.actor.a_std_log.exp().expand_as(mean))
    action = normal.log_prob(fixture.input("ppo.action")).sum(dim=1)
    checks.close("ppo.logprob", action, fixture.wanted("ppo.logprob"))
    checks.close("ppo.neg_entropy", -normal.entropy().mean(), fixture.wanted("ppo.neg_entropy"))
    noise = Normal(torch.zeros_like(mean), 1).log_prob(fixture.input("ppo.noise"))
    old = (noise - policy.actor.a_std_log).sum(dim=1)
    checks.close("ppo.old_logprob", old, fixture.wanted("ppo.old_logprob"))


def _check_training(fixture: Fixture, policy: Htsp, checks: Checks) -> None:
    """Compare a REINFORCE step of the lower model on given decisions, with batch statistics."""
    coords, first = fixture.input("low_train.coords"), fixture.input("low_train.first_nodes")
    source, target = fixture.input("low_train.source_target").unbind(1)
    policy.zero_grad()
    policy.lower.train()
    done = path_tours(policy.lower, coords, source, target, first, fixture.input("low_train.actions"))
    policy.lower.eval()
    reward = -path_lengths(coords, done.tours, source, target)
    spread = reward.std(dim=1, keepdim=True)
    advantage = (reward - reward.mean(dim=1, keepdim=True)) / (spread + 1e-5)
    loss = -(advantage * done.log_prob).mean()
    checks.close("low_train.loss", loss, fixture.wanted("low_train.loss"))
    loss.backward()
    order = [LOWER + key for key in fixture.fact("grad_norm_keys")]
    renamed = replace(fixture, meta={**fixture.meta, "grad_norm_order": order})
    compare_gradients(renamed, policy, from_official, checks, "low_train")
