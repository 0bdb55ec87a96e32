import pytest
import torch


@pytest.fixture
def float64():
    """Everything that the test builds is float64, including constants."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)
