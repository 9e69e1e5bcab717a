import re

import pytest

from quantail.report.style import DARK, LIGHT, style_sheet

THEMES = {"light": LIGHT, "dark": DARK}
TEXTS = ("text", "muted")
SERIES = ("agent", "series-a", "series-b", "series-c", "series-d", "series-e", "reference", "flat")


def luminance(color: str) -> float:
    """Relative luminance of WCAG 2."""
    parts = [int(color[i : i + 2], 16) / 255.0 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_measure_of_contrast_knows_black_on_white():
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_text_and_lines_are_readable_in_both_themes(theme):
    for ground in ("page", "card"):
        for name in TEXTS:
            assert contrast(theme[name], theme[ground]) >= 4.5, (name, ground)
        for name in SERIES:
            assert contrast(theme[name], theme[ground]) >= 3.0, (name, ground)
    for name in ("good", "warn", "calm"):
        assert contrast(theme[name], theme[f"{name}-soft"]) >= 4.5
        assert contrast(theme["text"], theme[f"{name}-soft"]) >= 4.5


def test_both_themes_name_the_same_roles():
    assert set(LIGHT) == set(DARK)


def test_every_color_in_a_rule_is_a_role():
    used = set(re.findall(r"var\(--([a-z-]+)\)", style_sheet()))
    assert used <= set(LIGHT)
    assert {"agent", "text", "page"} <= used
