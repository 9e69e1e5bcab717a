import math

import pytest

from quantail.report.numbers import interval, number


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (0.0, "ratio", "0"),
        (1.0, "ratio", "1.00"),
        (-1.234, "ratio", "−1.23"),
        (0.2309, "ratio", "0.231"),
        (0.99961, "ratio", "1.00"),
        (0.05123, "ratio", "0.0512"),
        (38.24, "ratio", "38.2"),
        (9.999, "ratio", "10.0"),
        (12345.6, "ratio", "12,346"),
        (2.0e7, "ratio", "2.00e+07"),
        (-1.2e-6, "ratio", "−1.20e−06"),
        (0.1234, "percent", "12.3%"),
        (-0.0014, "percent", "−0.14%"),
        (-0.0004, "percent", "−0.040%"),
        (-1e-9, "percent", "0.000%"),
        (22.66, "percent", "2,266%"),
        (0.05, "signed_percent", "+5.0%"),
        (-0.05, "signed_percent", "−5.0%"),
        (0.0, "signed_percent", "0.0%"),
        (819200, "count", "819,200"),
        (2.6, "count", "3"),
        (math.nan, "percent", "–"),
        (None, "ratio", "–"),
        (math.inf, "ratio", "∞"),
        (-math.inf, "percent", "−∞"),
    ],
)
def test_a_number_reads_as_people_write_it(value, kind, text):
    assert number(value, kind) == text


def test_an_interval_needs_both_ends():
    assert interval(-0.1, 0.25, "signed_percent") == "[−10.0%, +25.0%]"
    assert interval(-0.005, -0.00086, "percent") == "[−0.50%, −0.09%]"
    assert interval(0.02, 2.5) == "[0.02, 2.50]"
    assert interval(-0.01, 0.05) == "[−0.0100, 0.0500]"
    assert interval(-math.inf, 0.25) == "[−∞, 0.250]"
    assert interval(math.nan, 1.0) == interval(0.0, math.nan) == "–"
