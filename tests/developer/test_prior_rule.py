"""The rule of the page works as it stands there, and its check notices a wrong one."""

import pytest

from pymc_austerity.model.field import priors
from pymc_austerity.model.field.priors import NoField

from .test_family_skeleton import blocks, imported  # noqa: F401 - a fixture

PAGE = "new_prior_rule.md"


@pytest.fixture
def skeleton(imported, monkeypatch):  # noqa: F811
    """A function that imports the modules of the page; rules that they register are forgotten."""
    monkeypatch.setattr(priors, "RULES", dict(priors.RULES))
    rule, check = blocks(PAGE)
    return lambda change=lambda source: source: imported(
        seasonal_effects=change(rule), check_seasonal_effects=check
    )


def test_seasonal(skeleton):
    skeleton()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("sums.T @ sums", "2.0 * sums.T @ sums"),
        ("** -2.0", "** -1.0"),
        ("np.arange(n) < 11", "np.arange(n) < 12"),
    ],
)
def test_a_wrong_rule_is_noticed(skeleton, right, wrong):
    """Planted fault: a precision that is doubled; a scale in place of its square; one more first month."""

    def change(source):
        assert source.count(right) == 1
        return source.replace(right, wrong)

    with pytest.raises(NoField, match="the prior of 'u' differs from its rule"):
        skeleton(change)
