"""In place of NumPy: the shape and the type of an array."""
uint8, float32 = "u8", "f32"


class Array:
    def __init__(self, shape, dtype):
        self.shape, self.dtype = shape, dtype

    def astype(self, dtype):
        return Array(self.shape, dtype)

    def __truediv__(self, number):
        return self


def zeros(shape, dtype):
    return Array(shape, dtype)
