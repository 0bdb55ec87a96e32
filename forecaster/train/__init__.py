"""Training, the only package that imports lightning; nothing is imported here.

`fit` trains a model on windows, `module` is what Lightning runs, `loaders` fixes the order of
windows, `checkpoint` and `resume` continue a training, `memory` tells what one will take. It reads
`config`, `model`, `attention`, `datasets` and `base`. Begin reading with `fit`.
"""
