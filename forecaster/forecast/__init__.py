"""From a bundle and a history to a forecast.

`bundle` is a trained model at rest. `question` is what it is asked, from JSON or from the tables
that `history` reads; `predictor` answers it through `served`, the module between units that is also
exported (`export/`), with `quantiles` of its `intervals`; `answer` writes JSON, CSV and tables.
`unusual` finds what stands out and `notices` names it, `golden` holds forecasts that a bundle must
repeat, `batch` forecasts many files, `historical` past origins. It may import `plan`, `config`,
`parts`, `record`, `datasets`, `base`. Begin reading with `predictor`.
"""
