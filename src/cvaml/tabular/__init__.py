"""Finite MDPs, low-rank models and how they are fitted."""
