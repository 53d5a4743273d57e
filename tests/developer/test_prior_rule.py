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
        gumbel_effects=change(rule), check_gumbel_effects=check
    )


def test_gumbel(skeleton):
    skeleton()


@pytest.mark.parametrize(
    ("right", "wrong"), [('Step("scale", scale)', 'Step("scale", 2.0 * scale)'), ("gumbel_r", "gumbel_l")]
)
def test_a_wrong_rule_is_noticed(skeleton, right, wrong):
    """Planted fault: a scale that is doubled; a distribution that is turned round."""

    def change(source):
        assert source.count(right) == 1
        return source.replace(right, wrong)

    with pytest.raises(NoField, match="the prior of 'u' differs from its rule"):
        skeleton(change)
