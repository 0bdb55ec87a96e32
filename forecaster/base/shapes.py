"""The legend of letters used in shapes, and the array types annotated with them.

    B  batch                 L  queries               P  past length (look-back)
    H  heads                 S  keys                  T  horizon
    E  width of one head     N  rows of a series      C  columns of a series
    D  width of the model    U  sampled keys          F  known features

Capitals are sizes only. The tests check annotations at run time (jaxtyping and beartype);
in production they cost nothing.
"""

from jaxtyping import Bool, Float, Int, Shaped

__all__ = ["Bool", "Float", "Int", "Shaped"]
