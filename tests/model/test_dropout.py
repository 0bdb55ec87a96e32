import pytest
import torch
from torch import Tensor

from forecaster.model.dropout import Dropout


def drop(p: float, x: Tensor, seed: int = 0, inplace: bool = False) -> Tensor:
    torch.manual_seed(seed)
    return Dropout(p, inplace).train()(x)


@pytest.mark.parametrize("p", [0.05, 0.2, 0.5, 1e-9])
@pytest.mark.parametrize("size", [(1_000_003,), (7, 11, 1301), (0, 3), (1,)], ids=str)
def test_as_many_are_dropped_as_was_asked_for(p: float, size: tuple[int, ...]) -> None:
    dropped = drop(p, torch.ones(size, dtype=torch.float64))
    kept = max(dropped.unique(), default=torch.zeros(()))
    assert dropped.shape == size
    assert set(dropped.unique().tolist()) <= {0.0, float(kept)}
    if dropped.numel() > 1:
        share = 1 / float(kept)
        assert share == pytest.approx(1 - p, abs=2**-16), "of 65536 parts a whole number"
        assert share * 2**16 == pytest.approx(round(share * 2**16), abs=1e-9)
        six_sigma = 6 * (share * (1 - share) / dropped.numel()) ** 0.5
        assert float((dropped > 0).double().mean()) == pytest.approx(share, abs=six_sigma)


def test_neighbours_are_dropped_apart() -> None:
    kept = (drop(0.5, torch.ones(1 << 20)) > 0).double()
    for apart in (1, 2, 3, 4, 8):
        together = float((kept[apart:] * kept[:-apart]).mean())
        assert together == pytest.approx(0.25, abs=0.003)


def test_the_seed_decides() -> None:
    x = torch.randn(5, 1001)
    assert torch.equal(drop(0.3, x), drop(0.3, x))
    assert not torch.equal(drop(0.3, x), drop(0.3, x, seed=1))
    layer = Dropout(0.3).train()
    assert not torch.equal(layer(x), layer(x)), "drawn anew in each call"


@pytest.mark.parametrize("way", ["apart", "inplace", "beside another"])
def test_the_gradient_is_that_of_what_is_kept(way: str) -> None:
    x, y, given = torch.randn(3, 3, 50, dtype=torch.float64).requires_grad_()
    factor = drop(0.4, torch.ones_like(x))
    torch.manual_seed(0)
    if way == "beside another":  # in one pass
        dropped = Dropout(0.4).train().add(y, x)
        torch.testing.assert_close(dropped, y + x * factor)
        assert Dropout(0.4).train().add(y.float(), x.bfloat16()).dtype == torch.float32
    else:
        dropped = drop(0.4, x * 1, inplace=way == "inplace") + 0 * y
        torch.testing.assert_close(dropped, x * factor)
    gradients = torch.autograd.grad(dropped, (x, y), given)
    wanted = given * factor, given * (way == "beside another")
    torch.testing.assert_close(gradients, wanted)


def test_the_ends() -> None:
    x, y = torch.randn(7), torch.randn(7)
    for layer in (Dropout(0.3).eval(), Dropout(0.0).train()):
        assert torch.equal(layer(x), x)
        assert torch.equal(layer.add(x, y), x + y)
    assert not drop(1.0, torch.ones(9)).any()
    with pytest.raises(ValueError, match="between 0 and 1"):
        Dropout(1.5)
