"""A model by a function that defines its variables."""

from functools import wraps

import pymc as pm


def as_model(define):
    """Decorator: the function is called in the context of a new model, which is what it returns then."""

    @wraps(define)
    def build(*args, **kwargs):
        with pm.Model() as model:
            define(*args, **kwargs)
        return model

    return build
