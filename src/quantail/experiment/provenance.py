"""Where a result comes from: versions, machine, data, seeds."""

import hashlib
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final

import numpy as np

from quantail.config_file import write_config
from quantail.experiment.config import RunConfig
from quantail.market.dataset import Dataset

_PACKAGES: Final = (
    "quantail", "torch", "numpy", "numba", "pandas", "stable-baselines3", "gymnasium",
)  # fmt: skip

_ROLES: Final = {"train": 0, "validation": 1, "test": 2, "agent": 3}


def role_seed(seed: int, role: str, split: int = 0) -> int:
    """Return the seed of one role: what is drawn for it is drawn for no other."""
    mixed = np.random.SeedSequence((seed, _ROLES[role], split))
    return int(mixed.generate_state(1, np.uint32)[0])


def fingerprint(config: RunConfig, dataset: Dataset | None) -> str:
    """Return what identifies the data: of the bars, or of the problem's own configuration."""
    if dataset is not None:
        return dataset.bars.fingerprint()
    return hashlib.sha256(write_config(config.environment).encode()).hexdigest()


def provenance(config: RunConfig, dataset: Dataset | None) -> dict[str, Any]:
    """Return everything that tells one run from another, as plain values."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version()} | {p: version(p) for p in _PACKAGES},
        "machine": {"system": platform.platform(), "processor": platform.machine()},
        "data_fingerprint": fingerprint(config, dataset),
        "config_fingerprint": hashlib.sha256(write_config(config).encode()).hexdigest(),
        "seed": config.seed,
        "seeds": {role: role_seed(config.seed, role) for role in _ROLES},
    }
