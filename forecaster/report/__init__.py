"""One self-contained HTML file (`page`), here about trained models (`runs`).

`tables` makes the tables of a record for every face: terminal, MLflow, report and Python. It reads
`evaluate`, `forecast`, `record`, `model` and `base`. Begin reading with `tables`.
"""

from forecaster.report.page import Chart, Page, Section, Table, render, write

__all__ = ["Chart", "Page", "Section", "Table", "render", "write"]
