"""Which attention to take: by a budget of time and memory, or by what your data are like."""
