"""Two processes charge one ledger file: the limit holds, and an overtaken fit stops with an error."""

import numpy as np
import pytest

import privinf as pi
from privinf.accounting.files import FileAccount
from privinf.errors import BudgetExceededError


def test_a_fit_that_another_process_overtakes_stops_and_the_limit_holds(tmp_path, monkeypatch):
    """Each process has an account of its own, which reads the file at every charge."""
    place = tmp_path / "study.ledger"
    ours = pi.LedgerFile.create(place, pi.Budget(mu=1.0))
    theirs = pi.LedgerFile(place)
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, 4000)
    y = np.clip(x + rng.normal(0.0, 0.3, 4000), -2.0, 2.0)
    model = pi.OLS(y, x[:, None], bounds=[(-1.0, 1.0)], y_bounds=(-2.0, 2.0), ledger=ours)
    record = FileAccount.record
    overtaken = []

    def recorded(self, *args, **options):
        record(self, *args, **options)
        if self is ours._account and not overtaken:  # after the first release of the fit
            overtaken.append(True)
            pi.stats.mean(y, bounds=(-2.0, 2.0), mu=0.6, rng=0, ledger=theirs)

    monkeypatch.setattr(FileAccount, "record", recorded)
    with pytest.raises(BudgetExceededError, match=r"would exceed the limit.*is left"):
        model.fit(mu=0.9, rng=0)
    assert overtaken
    spent = sum(entry.loss.mu**2 for entry in ours.entries)
    assert 0.36 < spent <= 1.0
    assert [entry.id for entry in ours.entries] == [entry.id for entry in theirs.entries]
    pi.stats.mean(y, bounds=(-2.0, 2.0), mu=np.sqrt(1.0 - spent) * 0.999, rng=0, ledger=theirs)
    with pytest.raises(BudgetExceededError):
        pi.stats.mean(y, bounds=(-2.0, 2.0), mu=0.1, rng=0, ledger=ours)
