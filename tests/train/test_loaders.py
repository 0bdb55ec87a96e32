from itertools import chain

import pytest
import torch

from forecaster.train.loaders import EpochOrder, in_order, loader
from tests.train.small import TRAIN

SIZES = [(1, 1, 1), (2, 32, 1), (33, 32, 1), (64, 32, 1), (101, 8, 7), (10, 4, 16), (7801, 64, 2)]


def epoch(order: EpochOrder, number: int) -> list[list[int]]:
    order.set_epoch(number)
    return [batch.tolist() for batch in order]


@pytest.mark.parametrize(("windows", "batch", "stride"), SIZES)
def test_an_epoch_uses_each_chosen_window_once(windows: int, batch: int, stride: int) -> None:
    order = EpochOrder(windows, batch, stride, seed=3)
    offsets = set()
    for number in range(5):
        batches = epoch(order, number)
        assert len(batches) == len(order)
        used = sorted(chain(*batches))
        offsets.add(used[0])
        assert used == [*range(used[0], windows, order.stride)]
        sizes = [len(x) for x in batches]
        assert max(sizes) - min(sizes) <= 1
        if windows > 1:
            assert min(sizes) >= min(batch, 2)
            assert max(sizes) < 2 * batch + stride
    assert offsets <= set(range(order.stride))
    assert len(offsets) > 1 or order.stride == 1


def test_the_order_is_a_function_of_seed_and_epoch_alone() -> None:
    torch.manual_seed(1)
    first = epoch(EpochOrder(100, 8, 3, seed=5), 2)
    late = EpochOrder(100, 8, 3, seed=5)
    for number in (0, 1, 4):
        epoch(late, number)
    torch.manual_seed(2)
    assert epoch(late, 2) == first
    assert epoch(late, 3) != first
    assert epoch(EpochOrder(100, 8, 3, seed=6), 2) != first


def test_the_order_stays_what_it_was() -> None:
    """Otherwise a bundle would be reproduced differently, and a training resumed differently."""
    assert epoch(EpochOrder(8, 4, 1, seed=5), 2) == [[5, 2, 3, 6], [1, 0, 7, 4]]


@pytest.mark.parametrize(
    ("windows", "most"), [(100, 7), (99, 98), (3, 1), (100_000_000, 500), (1, 1)]
)
def test_so_many_windows_at_most(windows: int, most: int) -> None:
    order = EpochOrder(windows, 8, 1, seed=3, most=most)
    used = []
    for number in range(2):
        batches = epoch(order, number)
        assert len(batches) == len(order)
        chosen = torch.tensor(sorted(chain(*batches)))
        assert min(map(len, batches)) >= min(2, windows)
        assert min(windows, most) // 2 <= len(chosen) <= max(most, 3)  # batch norm needs two
        assert 0 <= chosen[0] <= chosen[-1] < windows
        assert torch.equal(chosen // order.stride, torch.arange(len(chosen)))  # one of each
        used.append(chosen)
    assert windows < 10 or not torch.equal(*used)
    checks = torch.cat(in_order(windows, 16, 1, most))
    assert 0 < len(checks) <= most
    assert (checks.diff() > 0).all()
    assert checks[-1] < windows


def test_checks_take_windows_in_order() -> None:
    assert torch.equal(torch.cat(in_order(101, 16, 3)), torch.arange(0, 101, 3))


def test_the_loader_gives_whole_batches_and_draws_nothing() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    order = EpochOrder(len(TRAIN), 16, 1, seed=0)
    batches = list(loader(TRAIN, order))
    assert torch.equal(torch.get_rng_state(), state)
    for got, index in zip(batches, order, strict=True):
        assert all(map(torch.equal, got[:4], TRAIN.batch(index)[:4]))
