"""The functions that the machine knows, of one variable and of two, and their numbers."""

# Derivatives up to this one, divided by their factorials.
LARGEST_ORDER = 5
# In the order of their numbers.
FUNCTIONS = (
    "exp", "log", "log1p", "reciprocal", "sigmoid", "softplus", "log1mexp", "gammaln", "digamma",
    "erf", "erfc", "erfcx", "log_ndtr", "sin", "cos", "arctan", "rising", "rising_exp",
    "power", "log_ndtr_between",
)  # fmt: skip
(
    EXP, LOG, LOG1P, RECIPROCAL, SIGMOID, SOFTPLUS, LOG1MEXP, GAMMALN, DIGAMMA, ERF, ERFC, ERFCX,
    LOG_NDTR, SIN, COS, ARCTAN, RISING, RISING_EXP, POWER,
    LOG_NDTR_BETWEEN,
) = range(len(FUNCTIONS))  # fmt: skip
