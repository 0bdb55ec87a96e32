import torch

from forecaster.attention import relu_squared_attention


def test_products_that_overflow_half_precision_do_not_before_they_are_divided() -> None:
    q = torch.full((1, 1, 64, 64), 40.0, dtype=torch.float16)  # q·k = 102400, q·k / n = 1600
    v = torch.full((1, 1, 64, 1), 1e-5, dtype=torch.float16)
    out = relu_squared_attention(q, q, v)
    torch.testing.assert_close(out.float(), torch.full((1, 1, 64, 1), 1638.4), rtol=0.01, atol=0)
