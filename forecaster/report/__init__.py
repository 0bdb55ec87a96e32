"""One self-contained HTML file about trained models (`runs`) or about a grid (`grid`)."""

from forecaster.report.page import Chart, Page, Section, Table, render, write

__all__ = ["Chart", "Page", "Section", "Table", "render", "write"]
