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
    "reader": ("forecaster/datasets/reader/", "datasets/reader/* datasets/facts own_files"),
    "datasets": ("forecaster/datasets/", "datasets/* problem own_files"),
    "train": ("forecaster/train/", "train/*"),
    "intervals": (
        "forecaster/(evaluate/)?intervals",
        "intervals evaluate/intervals evaluate/metrics judge cutoffs",
    ),
    "evaluate": ("forecaster/(evaluate/|judge|cutoffs)", "evaluate/* judge cutoffs"),
    "export": ("forecaster/export/", "export/*"),
    "cli": (
        "forecaster/(cli/|flags)",
        "flags cli/attentions cli/cli cli/data cli/options cli/output cli/serve",
    ),
    "compare": ("forecaster/(compare|advise|bench)/", "advise/* bench/* compare/*"),
    "report": ("forecaster/report/", "report/*"),
    "tracking": ("forecaster/(tracking/|contest)", "contest tracking/*"),
    "client": ("forecaster/client", "client"),
    "experiment": (
        "forecaster/(experiment|problem|config|reproduce|unfinished|finished|resources|estimator"
        "|tune|shares)",
        "config problem shares finished unfinished tune experiment_traps own_files",
    ),
    "bundle": (
        "forecaster/(bundle|predict|golden|frames|schema|remarks|check|pyfunc|notices)",
        "golden frames remarks check predict bundle",
    ),
    "machine": ("forecaster/", "machine batch workers runner signals start"),
    "service": (
        "service/",
        "service/access service/answer* service/app service/bat* service/bod* service/forecasting"
        " service/gauges service/registry service/slots service/routes/*",
    ),
}
