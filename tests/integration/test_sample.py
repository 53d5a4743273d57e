"""`pm.sample` with its options: cores, starts, warm-up, the same step again."""

import numpy as np
import pytest

from pymc_austerity import AusterityMH, RandomWalk, SubsamplingWarning

from .conftest import MODE

# Whether a chain has settled after so few draws is not the question here.
pytestmark = pytest.mark.filterwarnings("ignore:Tuning ended")
CONTEXTS = ["fork", "forkserver"]
LONG = {"tune": 130, "draws": 30, "initvals": MODE}


class TestCores:
    """One core, forked and freshly started workers give the same draws: see `tests/conformance` too."""

    @pytest.fixture(scope="class")
    @staticmethod
    def expected(line, step, draw):
        return draw(line, step, **LONG)

    def test_more_chains_than_cores(self, line, step, draw, expected):
        found = draw(line, step, cores=2, mp_ctx="fork", chains=3, **LONG)
        assert found.posterior.sizes["chain"] == 3
        alone = draw(line, step, cores=1, chains=3, **LONG)
        np.testing.assert_array_equal(found.posterior["b"], alone.posterior["b"])

    def test_blas_cores_do_not_matter(self, line, step, draw, same, expected):
        found = draw(line, step, cores=2, mp_ctx="forkserver", blas_cores=4, **LONG)
        assert same(found, expected)

    def test_chains_differ(self, expected):
        assert not np.array_equal(expected.posterior["b"][0], expected.posterior["b"][1])

    @pytest.mark.slow("samples in several processes")
    def test_a_user_proposal(self, line, draw, same):
        def propose(q, rng):
            options = dict(scale=0.02)
            return q + options["scale"] * rng.standard_normal(q.shape[0]), 0.0

        with pytest.warns(SubsamplingWarning, match="interpreted"):
            step = AusterityMH(model=line, proposal=propose)
        results = [draw(line, step, initvals=MODE)]
        for mp_ctx in CONTEXTS:
            results.append(draw(line, step, cores=2, mp_ctx=mp_ctx, initvals=MODE))
        assert same(results[0], results[1])
        assert same(results[0], results[2])

    def test_an_error_in_a_worker_is_shown(self, line, step, draw):
        with pytest.raises(Exception, match="(?s)(not finite|sigma|nan|-inf)"):
            draw(line, step, cores=2, mp_ctx="fork", initvals={"sigma": 1e-200})


class TestSameStepAgain:
    def test_as_a_fresh_step(self, line, step, draw, same):
        """With the same seed; another seed gives other draws."""
        other = draw(line, step, random_seed=5, **LONG)
        found = draw(line, step, **LONG)
        assert same(found, draw(line, AusterityMH(model=line, rng=1234), **LONG))
        assert not same(found, other)

    def test_after_an_interrupt(self, line, step, draw, same):
        expected = draw(line, step, **LONG)

        def stop(trace, draw):
            if draw.draw_idx == 140:
                raise KeyboardInterrupt

        interrupted = draw(line, step, callback=stop, **LONG)
        assert interrupted.posterior.sizes["draw"] < 30
        assert same(expected, draw(line, step, **LONG))

    def test_another_number_of_tuning_draws(self, line, step, draw, same):
        draw(line, step, tune=0)
        fresh = AusterityMH(model=line)
        assert same(draw(line, step, **LONG), draw(line, fresh, **LONG))


class TestStarts:
    def test_initvals_for_each_chain(self, line, draw):
        step = AusterityMH(model=line, proposal=RandomWalk(scale=1e-7))
        starts = [{"a": 0.3, "b": 0.4, "sigma": 0.5}, {"a": 0.6}]
        posterior = draw(line, step, tune=0, initvals=starts).posterior
        for chain, start in enumerate(starts):
            for name, value in start.items():
                np.testing.assert_allclose(posterior[name][chain], value, atol=1e-4)

    def test_initial_point_of_the_step_is_not_where_chains_start(self, line, draw, same):
        """It only serves to build the step."""
        point = {"a": np.array(3.0), "b": np.array(0.0), "sigma_log__": np.array(1.0)}
        one = AusterityMH(model=line, initial_point=point)
        two = AusterityMH(model=line)
        assert same(draw(line, one), draw(line, two))


class TestOptions:
    def test_warm_up_is_kept(self, line, step, draw, same):
        """It changes no draw, and after it the scale is frozen."""
        idata = draw(line, step, discard_tuned_samples=False, **LONG)
        assert same(idata, draw(line, step, **LONG))
        assert idata.warmup_posterior.sizes["draw"] == 130
        assert idata.warmup_sample_stats["n_used"].shape == (2, 130)
        assert idata.posterior.sizes["draw"] == 30

        for chain in range(2):
            scale = idata.warmup_sample_stats["scale"][chain].values
            assert len(np.unique(scale)) > 100
            (frozen,) = np.unique(idata.sample_stats["scale"][chain])
            assert frozen == scale[-1] or frozen not in scale[:-2]

    def test_one_chain_of_one_variable_without_tuning(self, line, step, draw):
        idata = draw(line, step, tune=0, chains=1, var_names=["b"])
        assert len(np.unique(idata.sample_stats["scale"])) == 1
        assert idata.posterior.sizes["chain"] == 1
        assert set(idata.posterior.data_vars) == {"b"}

    def test_a_list_of_one_step(self, line, step, draw, same):
        assert same(draw(line, [step]), draw(line, step))

    def test_a_step_that_is_a_class(self, line, draw):
        with pytest.raises(Exception, match="(?i)step"):
            draw(line, AusterityMH)

    def test_multitrace(self, line, step, draw):
        with pytest.warns(Warning, match="return_inferencedata"):
            trace = draw(line, step, return_inferencedata=False)
        assert trace.get_sampler_stats("n_used").shape == (40,)

    def test_does_not_change_the_model(self, line, draw):
        def seen():
            logp = float(line.compile_logp()(line.initial_point()))
            return list(line.basic_RVs), list(line.value_vars), logp

        before = seen()
        draw(line, AusterityMH(model=line))
        assert seen() == before
