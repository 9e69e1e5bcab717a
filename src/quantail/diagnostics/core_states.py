"""What the recurrent states of a rollout look like: a dead or exploding memory shows here first."""

from typing import Final

import torch
from torch import Tensor

from quantail.diagnostics.schema import CORE_STATE
from quantail.flow import PolicyState

PARTS: Final = ("h", "c")
"""Names of the parts of a core's state, in order; cores other than the LSTM have ``h`` alone."""


def core_state_metrics(states: PolicyState, episode_starts: Tensor) -> dict[str, float]:
    """Return tag -> value: mean, standard deviation and mean L2 norm of every part and layer.

    Args:
        states: Before each chunk of a rollout: [C, layers, N, H] for each part.
        episode_starts: [C, N] bool; a state that the next row resets is left out, as it belongs to
            an episode that is over.
    """
    kept = ~episode_starts
    found: dict[str, float] = {}
    for core, parts in zip(("actor", "critic"), states, strict=True):
        for part, tensor in zip(PARTS, parts, strict=False):
            for layer in range(tensor.shape[1]):
                rows = tensor[:, layer][kept]
                if rows.numel() == 0:
                    continue
                statistics = {
                    "mean": rows.mean(),
                    "std": rows.std(correction=0),
                    "norm": torch.linalg.vector_norm(rows, dim=-1).mean(),
                }
                for statistic, value in statistics.items():
                    tag = CORE_STATE.tag(core=core, part=part, layer=layer, statistic=statistic)
                    found[tag] = float(value)
    return found
