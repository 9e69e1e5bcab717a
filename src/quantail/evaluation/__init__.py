"""After training: how good is a policy on bars it has not seen, and is that more than luck?

==================  ==============================================================
module              what it holds
==================  ==============================================================
record              what an evaluation found; record_file saves and loads it
policies            who can be judged; agent_policy wraps a trained agent
backtest            a policy over whole windows of a market
problem_run         a policy in many instances of a problem with a known answer
measures            one pure function for each measure; periods: bars per year
baselines           rules on the same bars, with the same costs
bootstrap           intervals and tests for time series
overfitting         deflated Sharpe ratio, probability of overfitting
calibration         the critic's predicted law against what came
tables, verdict     measures with intervals, comparisons, the result in a sentence
evaluate_market     all of it for a market
evaluate_problem    all of it for a problem
==================  ==============================================================

Conventions: docs/measures.md.
"""
