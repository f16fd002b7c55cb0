"""Runs of agents as workflows of an engine that the user already runs: DBOS or Temporal.

Input: the arguments of a run of `agent`. Output: the output of the run, and its events meanwhile.
"""
