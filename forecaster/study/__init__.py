"""Which attention pays. It may import every room but the commands.

`compare` trains grids of cells that differ in the attention alone, `advise` names one for data that
resemble a studied regime, and `bench` measures the functions by themselves. Begin reading with
`compare.grid`.
"""
