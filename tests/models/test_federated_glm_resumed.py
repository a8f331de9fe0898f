"""A fit that was stopped goes on from its folder: the same result, no line charged twice."""

import numpy as np
import pytest
from scipy.special import expit

import privinf as pi
from privinf.errors import StorageError
from privinf.federation import TrustedServer

DP = pi.DPSGD(epochs=2, batches=4, step=1.0)


class Killed(Exception):
    pass


def model_of(ledger=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (6000, 3))
    y = (rng.uniform(size=6000) < expit(X @ [1.0, -0.5, 0.0])).astype(float)
    sites = [(y[i::3], X[i::3]) for i in range(3)]
    return pi.FederatedGLM.from_arrays(sites, bounds=[(-1, 1)] * 3, family="binomial", ledger=ledger)


def killed_after(rounds, monkeypatch):
    """Let the coordinator die in round `rounds` before anybody is asked."""
    asked, real = [], TrustedServer.vector_sum

    def dying(self, *given, **named):
        if len(asked) == rounds:
            raise Killed
        asked.append(1)
        return real(self, *given, **named)

    monkeypatch.setattr(TrustedServer, "vector_sum", dying)
    return asked


@pytest.mark.parametrize("optimizer", [pi.Newton(), DP], ids=["Newton", "DPSGD"])
@pytest.mark.parametrize("same_process", [True, False])
def test_a_stopped_fit_goes_on(optimizer, same_process, tmp_path, monkeypatch):
    settings = {"epsilon": 2.0, "delta": 1e-6, "optimizer": optimizer, "checkpoint": tmp_path / "fit"}
    budget = pi.Budget(epsilon=2.0, delta=1e-6)
    model = model_of(pi.Ledger(budget))
    with monkeypatch.context() as patch:
        killed_after(5, patch)
        with pytest.raises(Killed):
            model.fit(**settings, rng=0)
    spent = model.ledger.entries
    assert len(spent) == 5
    again = model if same_process else model_of(pi.Ledger(budget))
    with monkeypatch.context() as patch:
        asked = killed_after(10**6, patch)
        fit = again.fit(**settings, rng=1)
        assert len(asked) == len(fit.privacy.entries) - 5
    assert fit.privacy.entries[:5] == spent
    assert again.ledger.entries == fit.privacy.entries
    assert len({entry.id for entry in fit.privacy.entries}) == len(fit.privacy.entries)
    assert fit.privacy.mu == pytest.approx(budget.mu, rel=1e-9)
    # all of it can be read back: another noise would give another fit
    read = again.fit(**settings, rng=2)
    np.testing.assert_array_equal(read.params, fit.params)
    np.testing.assert_array_equal(read.cov_params(), fit.cov_params())
    assert len(again.ledger) == len(fit.privacy.entries)


def test_the_scopes_of_batches_come_back(tmp_path):
    settings = {"epsilon": 2.0, "delta": 1e-6, "optimizer": DP, "checkpoint": tmp_path}
    first = model_of().fit(**settings, rng=0)
    ledger = pi.Ledger().scope("federated study")
    again = model_of(ledger).fit(**settings, rng=0)
    assert again.privacy.mu == pytest.approx(first.privacy.mu)
    assert ledger.total().mu == pytest.approx(first.privacy.mu)


def test_another_fit_and_damaged_files_are_refused(tmp_path):
    model_of().fit(epsilon=2.0, delta=1e-6, checkpoint=tmp_path, rng=0)
    for changed in ({"epsilon": 3.0}, {"optimizer": DP}):
        with pytest.raises(StorageError, match="another fit"):
            model_of().fit(**{"epsilon": 2.0} | changed, delta=1e-6, checkpoint=tmp_path, rng=0)
    (tmp_path / "00003.npz").write_bytes(b"damaged")
    with pytest.raises(StorageError, match="not a stored release"):
        model_of().fit(epsilon=2.0, delta=1e-6, checkpoint=tmp_path, rng=0)
