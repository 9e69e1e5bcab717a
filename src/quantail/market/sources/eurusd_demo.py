"""Demo: hourly EUR/USD bars of 2017, from the package gym-anytrading."""

from typing import Final, Literal

from quantail.config_class import config
from quantail.market.bars import Bars
from quantail.market.calendars import Weekdays
from quantail.market.sources.csv_file import CsvSource
from quantail.market.sources.stocks_demo import data_file

_FILE: Final = "datasets/data/FOREX_EURUSD_1H_ASK.csv"

FOREX_2017: Final = Weekdays(
    timezone="America/New_York",
    eve_hours=7,  # foreign exchange opens on Sunday at 17:00 in New York and closes on Friday then
    closures=("2017-12-24T22:00/2017-12-24T23:00", "2017-12-25T08:00/2017-12-25T22:00"),
)


@config
class EurUsdDemo:
    """6,225 hourly bars of EUR/USD, ask side (needs the extra ``demo``)."""

    kind: Literal["eurusd_demo"] = "eurusd_demo"

    def load(self) -> Bars:
        """Read the packaged file; its dates are day-first, which is read off the data."""
        file = data_file("gym_anytrading", _FILE)
        rules = CsvSource(path=str(file), symbol="EURUSD", interval="1h", calendar=FOREX_2017)
        return rules.load()
