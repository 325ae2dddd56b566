"""Hindsight-Divergence Localization (HDL) in JAX: rollouts that branch where knowing the outcome changes the policy."""

__version__ = "0.1.0"
