"""Pytest plugin: our agent under the names ``PPO`` and ``RecurrentPPO`` before tests are collected.

Loaded by ``python -m tests.conformance`` into a run of the tests that Stable-Baselines3 and
sb3-contrib ship. Tests that do not construct the agent are left out.
"""

import dis
from types import CodeType
from typing import Any

import pytest
import sb3_contrib
import stable_baselines3

from quantail import DistributionalPPO
from tests.conformance.excluded import EXCLUDED

NAMES = {stable_baselines3: "PPO", sb3_contrib: "RecurrentPPO"}


class PPO(DistributionalPPO):
    """Ours under the name that messages and log folders are made of."""


class RecurrentPPO(DistributionalPPO):
    """The same."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the control: the same tests with the agent they were written for."""
    parser.addoption("--original", action="store_true", help="do not swap: test SB3's own agent")


def pytest_configure(config: pytest.Config) -> None:
    """Swap the names; test files are imported later and see ours."""
    if not config.getoption("--original"):
        stable_baselines3.PPO = PPO
        sb3_contrib.RecurrentPPO = RecurrentPPO


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that construct the agent, and skip those that cannot apply."""
    used = [item for item in items if isinstance(item, pytest.Function) and _uses_agent(item)]
    kept = set(map(id, used))
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
    items[:] = used
    if config.getoption("--original"):
        return
    for item in used:
        reason = EXCLUDED.get(f"{item.path.name}::{item.originalname}")
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=f"excluded: {reason}"))


def _uses_agent(item: pytest.Function) -> bool:
    """Say whether a test constructs the agent: by a parameter, or by its own words."""
    agents = {getattr(package, name) for package, name in NAMES.items()}
    params: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    for name in ("model_class", "algo"):
        if name in params:
            return params[name] in agents
    if "model_name" in params:
        return params["model_name"] == "ppo"
    return bool(set(NAMES.values()) & _globals_read(item.function.__code__))


def _globals_read(code: CodeType) -> set[str]:
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    read = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    return read.union(*map(_globals_read, inner))
