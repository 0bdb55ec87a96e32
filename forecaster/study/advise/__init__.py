"""Advice on which attention to take, by a budget of time and memory or by your data."""
