from .bernoulli import bernoulli as bernoulli
from .bernoulli import bernoulli_variance as bernoulli_variance
from .bernoulli import exponential_variance as exponential_variance
from .bernoulli import inverse_weights as inverse_weights
from .bernoulli import quadratic_variance as quadratic_variance
from .bernoulli import response_variances as response_variances
from .series import choose_truncation as choose_truncation
from .series import logistic_derivatives as logistic_derivatives
from .series import truncation_bias as truncation_bias

__all__ = [
    "bernoulli",
    "bernoulli_variance",
    "choose_truncation",
    "exponential_variance",
    "inverse_weights",
    "logistic_derivatives",
    "quadratic_variance",
    "response_variances",
    "truncation_bias",
]
