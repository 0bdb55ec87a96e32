"""The rooms of the code: a pattern of the files of each, and the tests that its mutants are run
against, after the test file that mirrors the mutated one: b stands for tests/test_b.py, a/b for
tests/a/test_b.py. The slowest tests that add little are left out."""

ROOMS = {
    "attention": (
        "forecaster/attention/",
        "attention/common/* attention/contract attention/definition",
    ),
    "model": ("forecaster/model/", "model/*"),
    "parts": ("forecaster/parts/", "parts/*"),
    "reader": ("forecaster/datasets/reader/", "datasets/reader/* datasets/seasons own_files"),
    "datasets": ("forecaster/datasets/", "datasets/* plan/* own_files"),
    "train": ("forecaster/train/", "train/*"),
    "intervals": (
        "forecaster/(evaluate/intervals|forecast/(intervals|quantiles))",
        "forecast/intervals forecast/quantiles evaluate/intervals evaluate/metrics evaluate/judge"
        " evaluate/cutoffs",
    ),
    "evaluate": ("forecaster/evaluate/", "evaluate/*"),
    "export": ("forecaster/forecast/export/", "forecast/export/*"),
    "cli": (
        "forecaster/(cli/|config/flags)",
        "config/flags cli/attentions cli/cli cli/data cli/options cli/output cli/serve",
    ),
    "study": ("forecaster/study/", "study/advise/* study/bench/* study/compare/*"),
    "report": ("forecaster/report/", "report/*"),
    "tracking": (
        "forecaster/(tracking/|record/(challenge|folder))",
        "record/challenge record/folder tracking/*",
    ),
    "client": ("forecaster/client", "client"),
    "run": (
        "forecaster/(run/|plan/|config/|base/installation|estimator)",
        "config/run_config plan/* run/resuming run/tune run/train_traps own_files",
    ),
    "forecast": (
        "forecaster/forecast/",
        "forecast/golden forecast/history forecast/question forecast/answer forecast/unusual"
        " forecast/predictor forecast/bundle forecast/batch forecast/runner forecast/served",
    ),
    "base": ("forecaster/", "base/* model/start"),
    "service": (
        "service/",
        "service/access service/middleware service/together service/app service/bat* service/bod*"
        " service/inputs"
        " service/requests service/metrics service/registry service/loading service/routes/*",
    ),
}
