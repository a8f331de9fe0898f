"""Two fits at once: of two models at the same sites, and of one model in one checkpoint."""

import pytest
from glm_sites import NAMES, SCHEMA, model_of, sites_of

import privinf as pi
from privinf.errors import StorageError
from privinf.federation import InProcessFederation

THREE = NAMES[:3]
FIT = {"epsilon": 8.0, "delta": 1e-5, "optimizer": pi.Newton(rounds=1), "rng": 0}


class Between:
    """A federation that does something else before its third sum."""

    def __init__(self, inner, other):
        self.inner, self.other, self.sums, self.sites = inner, other, 0, inner.sites

    def ask(self, query, sites=None):
        self.sums += query.op.startswith("glm")
        if self.sums == 3 and self.other is not None:
            other, self.other = self.other, None
            other()
        return self.inner.ask(query, sites)


def moments_of(federation, trust):
    return pi.MomentOLS.from_formula("v ~ u", federation, schema=SCHEMA, trust=trust)


@pytest.mark.parametrize("trust", ["server", "secure-sum"])
def test_a_second_models_design_does_not_end_the_first_ones_fit(trust):
    expected = model_of(InProcessFederation(sites_of(THREE)), trust).fit(**FIT)
    sites, second = sites_of(THREE), []

    def other():
        fit = moments_of(InProcessFederation(sites), trust).fit(epsilon=8.0, delta=1e-5, rng=1)
        second.append(len(fit.privacy.entries))

    fit = model_of(Between(InProcessFederation(sites), other), trust).fit(**FIT)
    assert fit.params.to_numpy().tobytes() == expected.params.to_numpy().tobytes()
    for site in sites.values():
        assert len(site.ledger) == len(fit.privacy.entries) + second[0]


@pytest.mark.parametrize("trust", ["server", "secure-sum"])
@pytest.mark.parametrize("kind", ["glm", "moments"])
def test_a_second_run_in_one_checkpoint_is_refused_before_it_charges(trust, kind, tmp_path):
    """It was charged, and one of the two ended at a file that the other had removed."""
    sites, refused = sites_of(THREE), []
    settings = {**FIT, "rng": None, "checkpoint": tmp_path / "fit"}
    if kind == "moments":
        settings = {name: settings[name] for name in ("epsilon", "delta", "checkpoint")} | {"cov_type": "HC0"}

    class Asked:
        sites = tuple(THREE)

        def __init__(self):
            self.inner = InProcessFederation(sites)

        def ask(self, query, asked=None):
            if query.op not in ("describe", "design") and not refused:
                refused.append(None)
                before = {name: len(site.ledger) for name, site in sites.items()}
                with pytest.raises(StorageError, match="another run is using the checkpoint folder"):
                    fitted(InProcessFederation(sites))
                assert {name: len(site.ledger) for name, site in sites.items()} == before
            return self.inner.ask(query, asked)

    def fitted(federation):
        return {"glm": model_of, "moments": moments_of}[kind](federation, trust).fit(**settings)

    fit = fitted(Asked())
    assert refused
    for site in sites.values():
        assert len(site.ledger) == len(fit.privacy.entries)
    again = fitted(InProcessFederation(sites))  # the folder is free again, and all is in it
    assert again.params.to_numpy().tobytes() == fit.params.to_numpy().tobytes()
    for site in sites.values():
        assert len(site.ledger) == len(fit.privacy.entries)


def test_a_run_that_ended_in_an_error_leaves_the_folder_free(tmp_path):
    class Gone(BaseException):
        pass

    class Ending(Between):
        def __init__(self, inner):
            super().__init__(inner, self.end)

        def end(self):
            raise Gone

    sites, settings = sites_of(THREE), {**FIT, "rng": None, "checkpoint": tmp_path / "fit"}
    with pytest.raises(Gone) as kept:  # its traceback keeps the run alive
        model_of(Ending(InProcessFederation(sites)), "server").fit(**settings)
    fit = model_of(InProcessFederation(sites), "server").fit(**settings)
    assert kept is not None
    for site in sites.values():
        assert len(site.ledger) == len(fit.privacy.entries)
