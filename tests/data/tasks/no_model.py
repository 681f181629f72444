"""No Model."""


def get_inputs():
    return []
