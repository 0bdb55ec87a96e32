import pytest
import torch


@pytest.fixture
def float64():
    """Everything built in the test is float64, constants included."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)
