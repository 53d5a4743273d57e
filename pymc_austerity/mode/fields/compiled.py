"""Functions of `kernels.fields` that Python calls."""

from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.kernels.fields import decisions, held, law, state, tree

factorise, selected_inverse = entry(tree.factorise), entry(tree.selected_inverse)
write_elements, write_precision = entry(state.write_elements), entry(state.write_precision)
write_state, write_levels = entry(state.write_state), entry(decisions.write_levels)
log_marginal, mean_log_marginal = entry(state.log_marginal), entry(state.mean_log_marginal)
hold, held_log_density, write_right = entry(held.hold), entry(held.held_log_density), entry(held.write_right)
from_score, score = entry(law.from_score), entry(law.score)
to_theta, to_zeta = entry(law.to_theta), entry(law.to_zeta)
