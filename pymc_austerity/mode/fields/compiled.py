"""Functions of `kernels.fields` that Python calls, with records packed."""

from pymc_austerity.bounds.jets.compiled import of_records
from pymc_austerity.kernels.fields import decisions, held, law, state, tree

factorise, selected_inverse = of_records(tree.factorise), of_records(tree.selected_inverse)
backward = of_records(tree.backward)
write_elements, write_precision = of_records(state.write_elements), of_records(state.write_precision)
write_state, write_levels = of_records(state.write_state), of_records(decisions.write_levels)
write_eps = of_records(state.write_eps)
log_marginal, mean_log_marginal = of_records(state.log_marginal), of_records(state.mean_log_marginal)
hold, write_right = of_records(held.hold), of_records(held.write_right)
held_log_density = of_records(held.held_log_density)
from_score, score = of_records(law.from_score), of_records(law.score)
to_theta, to_zeta = of_records(law.to_theta), of_records(law.to_zeta)
