import struct

from forecaster.evaluate.drawing import Drawing


def test_a_notebook_gets_a_picture_of_its_size():
    drawing = Drawing(figsize=(4, 3))
    drawing.subplots().plot([0, 1], [0, 1])
    picture = drawing._repr_png_()
    assert picture.startswith(b"\x89PNG")
    assert struct.unpack(">II", picture[16:24]) == (400, 300)
