"""Tail risk: CVaR and what makes the policy feel it."""
