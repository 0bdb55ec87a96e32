from forecaster.attention import Place, ProbSparseAttention


def test_seeds_stay_what_they_are_in_bundles_already_made() -> None:
    attention = ProbSparseAttention(Place(6, 2, 23, 31, depth=1, role="decoder"), seed=5)
    assert attention.draw_seed(0, 23, 31, 2) == 9381776553829080924
    assert attention.draw_seed(3, 23, 31, 2) == 8546701181474909992
