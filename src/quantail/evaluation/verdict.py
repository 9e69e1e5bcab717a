"""The result in one sentence, never kinder than the numbers."""

from collections.abc import Sequence

from quantail.evaluation.record import Comparison, Estimate, OptimumFraction, Verdict


def market_verdict(comparisons: Sequence[Comparison], role: str) -> Verdict:
    """Judge an agent on a market.

    Evidence of skill needs both: more than nothing (against no position), and more than what the
    market paid for the agent's average position. Each must hold at the stated level, so that an
    agent without skill passes less often than that.

    Args:
        comparisons: With the baselines ``flat`` and ``average_position`` among them.
        role: validation or test.
    """
    by_name = {comparison.baseline: comparison for comparison in comparisons}
    flat, timing = by_name["flat"], by_name["average_position"]
    gain, skill = flat.annual_difference, timing.annual_difference
    numbers = {
        "annual_gain": gain.value,
        "annual_timing": skill.value,
        "p_value": max(flat.p_value, timing.p_value),
        "confidence": flat.confidence,
    }
    if "buy_and_hold" in by_name:
        numbers["annual_versus_buy_and_hold"] = by_name["buy_and_hold"].annual_difference.value
    for name, estimate in (("annual_gain", gain), ("annual_timing", skill)):
        if estimate.low is not None and estimate.high is not None:
            numbers[f"{name}_low"], numbers[f"{name}_high"] = estimate.low, estimate.high
    figures = (
        f"net return {_range(gain)} a year over all {role} bars, of which {_range(skill)} by timing"
    )
    if flat.is_better and timing.is_better:
        return Verdict(f"Evidence of skill: {figures}.", "skill", True, numbers)
    if flat.is_worse:
        sentence = (
            f"No evidence of skill: the agent lost money, beyond chance: {figures}. Doing nothing "
            "would have been better."
        )
        return Verdict(sentence, "worse", False, numbers)
    if flat.mean_difference.low is None:
        sentence = f"No evidence of skill: too few bars to tell skill from chance ({figures})."
    elif flat.is_better:
        sentence = (
            "No evidence of skill: the gain is no larger than what its average position earned by "
            f"itself ({figures}; the interval of the timing includes zero)."
        )
    else:
        sentence = f"No evidence of skill: the interval includes zero ({figures})."
    return Verdict(sentence, "no_evidence", False, numbers)


def problem_verdict(comparison: Comparison, optimum: OptimumFraction | None) -> Verdict:
    """Judge an agent on a problem with a known answer.

    Args:
        comparison: With the base policy, which is the best simple one.
        optimum: The fraction reached; None where the optimum is no better than the base.
    """
    gain, base = comparison.mean_difference, comparison.baseline.replace("_", " ")
    numbers = {
        "gain": gain.value,
        "p_value": comparison.p_value,
        "confidence": comparison.confidence,
    }
    reached = ""
    if optimum is not None:
        fraction = optimum.fraction
        numbers["fraction"] = fraction.value
        if fraction.low is not None and fraction.high is not None:
            numbers["fraction_low"], numbers["fraction_high"] = fraction.low, fraction.high
            reached = (
                f"the agent reaches {fraction.value:.3f} of the known optimum "
                f"[{fraction.low:.3f}, {fraction.high:.3f}]"
            )
    versus = f"{_rewards(gain)} per step more than the {base} rule"
    if comparison.is_better:
        middle = f"{reached} and earns" if reached else "the agent earns"
        return Verdict(f"Evidence of skill: {middle} {versus}.", "skill", True, numbers)
    if comparison.is_worse:
        sentence = (
            f"No evidence of skill: the agent does worse than the {base} rule, beyond chance: "
            f"{_rewards(gain)} per step."
        )
        return Verdict(sentence, "worse", False, numbers)
    sentence = f"No evidence of skill: the agent earns {versus}; the interval includes zero."
    return Verdict(sentence, "no_evidence", False, numbers)


def _range(estimate: Estimate) -> str:
    """Write a yearly rate with its interval."""
    if estimate.low is None or estimate.high is None:
        return f"{100 * estimate.value:+.1f}%"
    low, high = 100 * estimate.low, 100 * estimate.high
    return f"{100 * estimate.value:+.1f}% [{low:+.1f}%, {high:+.1f}%]"


def _rewards(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:+.4f}"
    return f"{estimate.value:+.4f} [{estimate.low:+.4f}, {estimate.high:+.4f}]"
