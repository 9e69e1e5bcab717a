"""Agents that earlier runs tried on the same bars: they count when a result is judged."""

from quantail.errors import DataError
from quantail.experiment.folder import CONFIG, PROVENANCE, SELECTION, RunFolder


def earlier_trials(folder: RunFolder, task: str) -> int:
    """Return how many agents the runs beside this one had tried before on the same bars.

    Who runs thirty configurations and reports the best has made thirty times as many trials. Runs
    are known by their folders: those with the same parent, the same fingerprint of the data and an
    earlier start. A repetition of a run with the very same configuration is no new trial.

    Args:
        folder: The run that is judged.
        task: Name of the split; earlier agents count for the split of the same name.
    """
    own = folder.read_json(PROVENANCE)
    others = (path for path in folder.path.resolve().parent.iterdir() if (path / CONFIG).is_file())
    found: dict[str, int] = {}
    for path in others:
        other = RunFolder(path)
        try:
            known = other.read_json(PROVENANCE)
            tried = other.read_json(f"checkpoints/{task}/{SELECTION}")["n_tried"]
            same = known["data_fingerprint"] == own["data_fingerprint"]
            earlier = known["started"] < own["started"]
            settings = known["config_fingerprint"]
        except (DataError, KeyError, TypeError):
            continue  # a run that was stopped before it tried anything, or is damaged
        if same and earlier and settings != own["config_fingerprint"] and isinstance(tried, int):
            found[settings] = max(tried, found.get(settings, 0))
    return sum(found.values())
