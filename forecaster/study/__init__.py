"""Which attention pays: compare, advise, bench."""
