"""Likelihoods as PyMC's graphs spell them, and by hand: the same, or equally small, scalar expressions."""

import math

import mpmath
import numpy as np
import pytest

from pymc_austerity.bounds.expressions.evaluate import evaluate as values
from pymc_austerity.bounds.expressions.forms import (
    absolute,
    add,
    divide,
    equal,
    erf,
    erfc,
    erfcx,
    exp,
    expm1,
    finished,
    gammaln,
    greater,
    less,
    less_equal,
    log,
    log1mexp,
    log1p,
    log_ndtr,
    log_ndtr_between,
    logaddexp,
    maximum,
    minimum,
    multiply,
    negative,
    power,
    reciprocal,
    select,
    sigmoid,
    softplus,
    sqrt,
    square,
    subtract,
    tanh,
)
from pymc_austerity.bounds.expressions.node import Expression, constant, data, predictor
from tests.bounds.expressions import evaluate, operations
from tests.bounds.spellings import (
    BINARY,
    COUNT,
    ETA,
    NEVER,
    ONE,
    ROOT_2,
    TIME,
    TWO,
    XI,
    ZERO,
    ZETA,
    Y,
    bernoulli,
    beta,
    betaln,
    logsumexp,
    negative_binomial,
    normal,
    normal_cdf,
    ordered_probabilities,
    picked,
    poisson_rows,
    student,
    weibull,
    zero_inflated,
)


def same_values(a: Expression, b: Expression, n_predictors: int = 5) -> None:
    rng = np.random.default_rng(1)
    for _ in range(12):
        point = rng.normal(size=n_predictors)
        point[1:] = np.sort(point[1:])
        row = [rng.normal(), rng.integers(6), rng.integers(2), rng.integers(5), rng.uniform(0.1, 0.9), 1.3]
        row = [float(x) for x in row]
        assert mpmath.almosteq(evaluate(a, point, row), evaluate(b, point, row), 1e-12, 1e-12)


def test_a_bernoulli_variable_is_one_softplus_however_it_is_spelled():
    found = finished(bernoulli(sigmoid(ETA)))
    assert operations(found) == ["softplus"]
    assert found is finished(bernoulli(reciprocal(add(ONE, exp(negative(ETA))))))
    assert found is finished(bernoulli(divide(exp(ETA), add(ONE, exp(ETA)))))
    assert found is finished(select(BINARY, log(sigmoid(ETA)), log1p(negative(sigmoid(ETA)))))
    assert found is finished(bernoulli(exp(log(sigmoid(ETA)))))
    same_values(found, subtract(multiply(BINARY, ETA), softplus(ETA)))


def test_negative_binomials_by_mean_and_by_probability_are_one_expression():
    alpha, mu = exp(ZETA), exp(ETA)
    by_p = negative_binomial(alpha, sigmoid(subtract(ZETA, ETA)))
    assert by_p is negative_binomial(alpha, sigmoid(subtract(log(alpha), log(mu))))
    assert by_p is negative_binomial(alpha, divide(alpha, add(mu, alpha)))
    proper = by_p.args[2] if by_p.op == "select" else by_p
    assert operations(proper) == ["exp", "rising_exp", "softplus", "softplus"]


def test_the_guard_of_a_negative_binomial_is_the_only_condition():
    alpha, mu = exp(ZETA), exp(ETA)
    found = finished(negative_binomial(alpha, divide(alpha, add(mu, alpha))))
    assert found.op == "select"
    assert found.args[0].op == "positive"
    assert operations(found.args[1]) == ["exp"]


def test_student_has_one_square_of_one_product_of_one_exponential():
    found = student(exp(XI), ETA, exp(ZETA))
    assert operations(found) == ["exp", "exp", "log1p", "rising", "square"]
    by_hand = student_by_hand()
    assert found is by_hand
    same_values(found, by_hand)


def student_by_hand() -> Expression:
    half = multiply(constant(0.5), exp(XI))
    z2 = square(multiply(subtract(Y, ETA), exp(subtract(negative(ZETA), multiply(constant(0.5), XI)))))
    scale = add(ZETA, multiply(constant(0.5), XI), constant(0.5 * math.log(math.pi)))
    top = subtract(gammaln(add(half, constant(0.5))), gammaln(half))
    return subtract(subtract(top, scale), multiply(add(half, constant(0.5)), log1p(z2)))


def test_a_poisson_variable_is_affine_but_for_one_exponential():
    assert operations(finished(poisson_rows(exp(ETA)))) == ["exp"]


def test_beta_by_mean_and_precision():
    mean, kappa = sigmoid(ETA), exp(ZETA)
    found = beta(multiply(mean, kappa), multiply(subtract(ONE, mean), kappa))
    assert operations(found) == ["exp", "gammaln", "gammaln", "gammaln", "sigmoid", "sigmoid"]
    assert found is beta(multiply(mean, kappa), subtract(kappa, multiply(mean, kappa)))


def test_weibull_has_one_exponential_of_a_product():
    found = weibull(exp(ZETA), exp(ETA))
    assert operations(found) == ["exp", "exp"]
    z = multiply(exp(ZETA), subtract(log(TIME), ETA))
    slope = multiply(subtract(exp(ZETA), ONE), subtract(log(TIME), ETA))
    assert found is subtract(add(subtract(ZETA, ETA), slope), exp(z))


def test_ordered_logistic_has_two_functions_of_two_predictors():
    found = finished(log(picked(ordered_probabilities())))
    # At the ends one softplus, of what the data pick; between, one function of two affine values.
    assert operations(found) == ["log1mexp", "softplus", "softplus", "softplus"]
    by_log = finished(picked([log(p) for p in ordered_probabilities()]))
    assert found is by_log
    same_values(found, log(picked(ordered_probabilities())))


def test_categorical_by_softmax_has_no_maximum_and_one_function():
    etas = [ETA, ZETA, XI]
    largest = maximum(maximum(ETA, ZETA), XI)
    shifted = [exp(subtract(eta, largest)) for eta in etas]
    softmax = [divide(x, add(*shifted)) for x in shifted]
    found = finished(log(picked(softmax)))
    assert operations(found) == ["softplus", "softplus"]
    assert found is finished(picked([subtract(eta, logsumexp(*etas)) for eta in etas]))
    assert found is finished(log(picked([divide(exp(e), add(*map(exp, etas))) for e in etas])))


def test_categorical_with_a_fixed_class():
    etas = [ZERO, ETA, ZETA]
    found = finished(log(picked([divide(exp(e), add(*map(exp, etas))) for e in etas])))
    assert operations(found) == ["softplus", "softplus"]
    assert found is finished(picked([subtract(e, logsumexp(*etas)) for e in etas]))


def test_zero_inflation_keeps_its_two_cases():
    found = finished(zero_inflated(sigmoid(ZETA), exp(ETA)))
    assert found.op == "select"
    condition, at_zero, above = found.args
    assert condition is equal(COUNT, ZERO)
    assert operations(at_zero) == ["exp", "softplus", "softplus"]
    assert operations(above) == ["exp", "softplus"]
    by_hand = log(add(subtract(ONE, sigmoid(ZETA)), multiply(sigmoid(ZETA), exp(negative(exp(ETA))))))
    assert at_zero is by_hand


def test_a_mixture_of_normals_is_one_softplus_of_the_difference():
    def parts(weight: Expression) -> list[Expression]:
        logs = [log(weight), log(subtract(ONE, weight))]
        return [add(w, normal(mu, exp(XI))) for w, mu in zip(logs, (ETA, ZETA), strict=True)]

    found = logsumexp(*parts(sigmoid(predictor(3))))
    assert operations(found) == ["exp", "softplus", "softplus", "square", "square"]
    assert found is logaddexp(*parts(sigmoid(predictor(3))))
    assert found is log(add(*(exp(part) for part in parts(sigmoid(predictor(3))))))


def test_normal_with_a_free_scale():
    found = normal(ETA, exp(ZETA))
    assert operations(found) == ["exp", "square"]
    z = multiply(subtract(Y, ETA), exp(negative(ZETA)))
    half = constant(0.5 * math.log(2.0 * math.pi))
    assert found is subtract(subtract(multiply(constant(-0.5), square(z)), ZETA), half)


def test_the_two_branches_of_a_normal_distribution_function_are_one():
    z = divide(subtract(Y, ETA), exp(ZETA))
    assert normal_cdf(z) is log_ndtr(z)
    assert normal_cdf(negative(z)) is log_ndtr(negative(z))


def test_probit():
    p = multiply(constant(0.5), erfc(divide(negative(ETA), ROOT_2)))
    assert log(p) is log_ndtr(ETA)
    assert log1p(negative(p)) is log_ndtr(negative(ETA))
    q = multiply(constant(0.5), add(ONE, erf(divide(ETA, ROOT_2))))
    assert log(q) is log_ndtr(ETA)
    assert log(subtract(ONE, q)) is log_ndtr(negative(ETA))
    assert operations(finished(bernoulli(p))) == ["log_ndtr"]


@pytest.mark.parametrize(
    ("spelled", "expected"),
    [
        (log(exp(ETA)), ETA),
        (exp(log(add(ETA, constant(9.0)))), add(ETA, constant(9.0))),
        (multiply(ROOT_2, divide(ETA, ROOT_2)), ETA),
        (multiply(exp(ETA), exp(ZETA)), exp(add(ETA, ZETA))),
        (sqrt(exp(ETA)), exp(multiply(constant(0.5), ETA))),
        (power(exp(ETA), Y), exp(multiply(Y, ETA))),
        (divide(exp(ETA), add(exp(ETA), exp(ZETA))), sigmoid(subtract(ETA, ZETA))),
        (log1p(exp(ETA)), softplus(ETA)),
        (log1p(negative(sigmoid(ETA))), negative(softplus(ETA))),
        (log1p(negative(exp(negative(exp(ETA))))), log1mexp(negative(exp(ETA)))),
        (log(negative(expm1(negative(exp(ETA))))), log1mexp(negative(exp(ETA)))),
        (add(sigmoid(ETA), sigmoid(negative(ETA))), ONE),
        (subtract(softplus(ETA), softplus(negative(ETA))), ETA),
        (add(tanh(ETA), ONE), multiply(TWO, sigmoid(multiply(TWO, ETA)))),
        (subtract(multiply(Y, ETA), multiply(ETA, Y)), ZERO),
        (add(multiply(BINARY, ETA), multiply(subtract(ONE, BINARY), ETA)), ETA),
        (multiply(ETA, ETA), square(ETA)),
        (divide(sigmoid(ETA), subtract(ONE, sigmoid(ETA))), exp(ETA)),
        (log(subtract(sigmoid(ETA), sigmoid(ZETA))), None),
        (absolute(exp(ETA)), exp(ETA)),
        (minimum(exp(ETA), ZERO), ZERO),
        (select(greater(exp(ETA), ZERO), ETA, ZETA), ETA),
        (select(equal(exp(ETA), ZERO), ETA, ZETA), ZETA),
        (select(less(COUNT, ZERO), NEVER, ETA), ETA),
    ],
)
def test_spellings(spelled, expected):
    if expected is None:
        assert operations(spelled) == ["log1mexp", "softplus", "softplus"]
    else:
        assert spelled is expected


def test_differences_of_normal_distribution_functions_have_one_spelling():
    """As PyMC writes them: for two numbers above zero, for two below it, and for one on either side."""
    a, b = (divide(x, ROOT_2) for x in (ETA, ZETA))
    expected = log_ndtr_between(ZETA, subtract(ETA, ZETA))
    assert operations(expected) == ["log_ndtr_between"]
    assert add(log_ndtr(ETA), log1mexp(subtract(log_ndtr(ZETA), log_ndtr(ETA)))) is expected
    between = log(multiply(constant(0.5), subtract(erf(a), erf(b))))

    def in_a_tail(x, y):
        apart = multiply(exp(subtract(square(x), square(y))), erfcx(y))
        return subtract(log(multiply(constant(0.5), subtract(erfcx(x), apart))), square(x))

    assert between is expected
    assert in_a_tail(b, a) is expected
    assert in_a_tail(negative(a), negative(b)) is expected
    mirrored = subtract(log_ndtr(negative(ETA)), log_ndtr(negative(ZETA)))
    assert add(log_ndtr(negative(ZETA)), log1mexp(mirrored)) is expected
    # Their probabilities add up, and one is positive where the numbers are in order.
    assert add(exp(expected), exp(log_ndtr(ZETA)), exp(log_ndtr(negative(ETA)))) is ONE
    difference = subtract(erfcx(b), multiply(exp(subtract(square(b), square(a))), erfcx(a)))
    assert greater(difference, ZERO) is greater(ETA, ZETA)
    assert equal(expected, constant(-math.inf)) is equal(ETA, ZETA)


def test_a_scale_comes_out_of_the_width_between_two_numbers():
    """(a - b) / scale, for what is divided by a scale that moves; and on the other side it is the same."""
    a, b = (multiply(subtract(x, ETA), exp(ZETA)) for x in (constant(2.0), constant(-1.0)))
    found = log(multiply(constant(0.5), subtract(erf(divide(a, ROOT_2)), erf(divide(b, ROOT_2)))))
    assert found.args[1] is multiply(constant(3.0), exp(ZETA))
    assert found is log_ndtr_between(negative(a), found.args[1])
    assert add(exp(found), exp(log_ndtr(b)), exp(log_ndtr(negative(a)))) is ONE


def test_rising_factorials_come_from_differences_of_gamma_functions():
    a = exp(ZETA)
    assert operations(subtract(gammaln(add(a, COUNT)), gammaln(a))) == ["rising_exp"]
    assert operations(subtract(gammaln(a), gammaln(add(a, COUNT)))) == ["rising_exp"]
    # By the argument, where it is no exponential, or the step is no whole number.
    assert operations(subtract(gammaln(add(XI, COUNT)), gammaln(XI))) == ["rising"]
    assert operations(subtract(gammaln(add(a, constant(0.5))), gammaln(a))) == ["exp", "rising"]
    # Nothing is known of the sign of the step.
    assert operations(subtract(gammaln(add(a, Y)), gammaln(a))) == ["exp", "gammaln", "gammaln"]


def test_a_rising_factorial_of_one_step_is_a_logarithm():
    assert subtract(gammaln(add(exp(ZETA), ONE)), gammaln(exp(ZETA))) is ZETA


def test_a_softmax_of_many_classes_is_made_in_little_time():
    etas = [predictor(k) for k in range(30)]
    found = logsumexp(*etas)
    assert operations(found) == ["softplus"] * 29
    assert found is log(add(*map(exp, etas)))


def test_censored_normal_rows_have_three_cases():
    z = divide(subtract(Y, ETA), exp(ZETA))
    limit = constant(3.0)
    inside = select(greater(Y, limit), NEVER, normal(ETA, exp(ZETA)))
    found = finished(select(equal(Y, limit), normal_cdf(negative(z)), inside))
    assert operations(found) == ["exp", "log_ndtr", "square"]


def test_beta_binomial_has_three_rising_factorials():
    a, b, n = exp(ZETA), exp(XI), constant(30.0)
    top = betaln(add(COUNT, a), add(subtract(n, COUNT), b))
    assert operations(subtract(top, betaln(a, b))) == ["rising_exp", "rising_exp", "rising_exp", "softplus"]


def test_conditions_on_parameters_stay_where_they_are():
    huber = select(less_equal(absolute(ETA), ONE), square(ETA), absolute(ETA))
    assert finished(add(huber, ZETA)).op == "sum"
    assert "select" in [x.op for x in (huber, *huber.args)]


def test_beyond_the_largest_number_of_cases_selects_stay_inside():
    xs = [select(data(10 + k, 0.0, 1.0), exp(predictor(k)), square(predictor(k))) for k in range(8)]
    found = finished(add(*xs))
    assert found.op == "sum"
    assert len(found.args) == 8


def test_a_guard_by_data_stays():
    found = finished(select(less(Y, ZERO), NEVER, log(exp(ETA))))
    assert found.op == "select"
    assert NEVER in found.args


def test_a_power_with_an_exponent_of_data_may_be_negative():
    cubed = power(ETA, COUNT)
    assert not cubed.range.low >= 0.0
    assert absolute(cubed) is not cubed
    assert select(greater(cubed, constant(-0.5)), ETA, ZETA) is not ETA
    assert power(exp(ETA), COUNT).range.is_positive


@pytest.mark.parametrize(
    ("yes", "no"), [(1.0, 0.0), (-0.3, 1e300), (math.inf, 2.0), (3.0, -math.inf), (math.nan, 1.0)]
)
@pytest.mark.parametrize("binary", [[0.0, 1.0, 1.0, 0.0], [False, True, True, False], 1.0], ids=str)
def test_one_of_two_numbers_is_picked_exactly(yes, no, binary):
    either = Expression("select", (BINARY, constant(yes), constant(no)), None, BINARY.range)
    found = values(either, [], {BINARY.value: np.asarray(binary)})
    np.testing.assert_array_equal(found, np.where(binary, yes, no))
