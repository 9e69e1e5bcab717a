"""Which of the agents tried on validation data are kept: the best ones, by a declared metric."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from quantail.errors import DataError
from quantail.experiment.folder import SELECTION, RunFolder
from quantail.sb3.agent import DistributionalPPO


@dataclass(frozen=True, slots=True)
class Trial:
    """An agent that was tried on validation data."""

    step: int
    score: float
    """Higher is better."""
    file: str
    """Under the run's folder."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The agents on file, best first, out of all that were tried."""

    metric: str
    n_tried: int = 0
    kept: tuple[Trial, ...] = ()

    @property
    def best(self) -> Trial:
        """The agent with the highest score."""
        return self.kept[0]

    def with_trial(self, trial: Trial, keep: int) -> "Selection":
        """Return the selection after one more trial; of equals the earlier one stays ahead."""
        ranked = sorted((*self.kept, trial), key=lambda kept: (-kept.score, kept.step))
        return Selection(self.metric, self.n_tried + 1, tuple(ranked[:keep]))


def keep_if_good(
    folder: RunFolder,
    selection: Selection,
    agent: DistributionalPPO,
    trial: Trial,
    keep: int,
) -> Selection:
    """Save the agent if it is among the best, then forget those that are so no longer.

    The list is written after the new file is whole and before an old one is removed, so that it
    never names a file that is not there.
    """
    after = selection.with_trial(trial, keep)
    if trial in after.kept:
        agent.save(folder.path / trial.file)
    place = str(Path(trial.file).parent / SELECTION)
    folder.write_json(place, _plain(after))
    for dropped in set(selection.kept) - set(after.kept):
        (folder.path / dropped.file).unlink()
    return after


def read_selection(folder: RunFolder, place: str) -> Selection:
    """Read which agents were kept.

    Args:
        folder: The run's folder.
        place: Folder of the agents, under the run's folder.

    Raises:
        DataError: No agent was kept.
    """
    name = f"{place}/{SELECTION}"
    plain = folder.read_json(name)
    try:
        kept = tuple(Trial(**trial) for trial in plain["kept"])
        selection = Selection(plain["metric"], plain["n_tried"], kept)
    except (KeyError, TypeError) as error:
        raise DataError(f"{folder.path / name} is damaged: {error}. Train again.") from error
    if not kept:
        raise DataError(f"{folder.path / name} lists no agent. Train longer.")
    return selection


def _plain(selection: Selection) -> dict[str, Any]:
    return asdict(selection)
