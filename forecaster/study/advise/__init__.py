"""Advice on which attention to take, by your data."""
