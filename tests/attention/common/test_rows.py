import torch

from forecaster.attention.common.rows import block_size


def test_a_thread_computes_what_stays_in_its_cache() -> None:
    x = torch.zeros(1)
    threads = torch.get_num_threads()
    assert block_size(x, 256, 64, 64, False) == (threads * 16, 64)
    assert block_size(x, 256, 8192, 8192, False) == (threads, 64)
    assert block_size(x, 256, 2048, 2048, True) == (threads, 128)
    assert block_size(x, 2, 16, 16, False) == (2, 16)
