"""What is said about a limit that is not kept, whatever it limits."""

from dataclasses import dataclass

from quantail.risk.config import DualConfig


@dataclass(frozen=True, slots=True)
class Limit:
    """How a limit is spoken of."""

    name: str
    """Of the setting."""
    value: float
    measure: str
    """What is limited."""
    dual: DualConfig
    settings: str
    """Where ``dual`` is found, such as ``risk``."""
    loosen: str
    """What gives it more room, such as ``lower cvar_limit``."""

    def infeasible(self, measured: float) -> str:
        """Say that the limit stayed broken at the largest multiplier."""
        return (
            f"{self.name} = {self.value} was not met in {self.dual.patience} updates at the "
            f"largest multiplier ({self.dual.cap}); {self.measure} is {measured:.4g}. It may be "
            "infeasible: training goes on at the cap. "
            f"{self.loosen.capitalize()}, or raise {self.settings}.dual.cap"
        )

    def broken(self, measured: float, error: float) -> str:
        """Say that training ends with the limit broken."""
        return (
            f"training ends with {self.name} = {self.value} broken: {self.measure} of the last "
            f"episodes is {measured:.4g} ± {error:.2g}. Train longer, raise "
            f"{self.settings}.dual.integral or {self.settings}.dual.start, or {self.loosen}"
        )
