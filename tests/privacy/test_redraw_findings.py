"""Known redraws of noise through public functions: these tests fail on the code before keyed noise."""

import os
from dataclasses import replace

import numpy as np
import pytest
from redraws import BUDGET, Keeping, model_of, over, repeats

import privinf as pi
from privinf.errors import BudgetExceededError, StorageError


@pytest.mark.parametrize("rng", [None, 3], ids=["secure", "seeded"])
def test_a_repeat_is_the_same_answer(rng):
    """Finding 2."""
    answers, lines = repeats(60, rng)
    assert (len(answers), lines) == (1, 1)


@pytest.mark.audit
def test_restored_questions_give_the_same_answers(tmp_path):
    """Finding 3: the last three questions brought back, the answers deleted, again and again."""
    where, kept = tmp_path / "fit", tmp_path / "kept"
    where.mkdir()
    kept.mkdir()
    model = model_of()
    model._rows = replace(model._rows, federation=Keeping(model._rows.federation, where, kept))
    fit = model.fit(**BUDGET, checkpoint=where)
    estimates = {fit.params.to_numpy().tobytes()}
    for _ in range(4):
        for path in sorted(kept.glob("*.npz"))[-3:]:
            (where / path.name).write_bytes(path.read_bytes())
        for path in sorted(where.glob("?????.npz"))[-3:]:
            path.unlink()
        estimates.add(over(model, model.ledger).fit(**BUDGET, checkpoint=where).params.to_numpy().tobytes())
    assert len(estimates) == 1
    assert len(model.ledger) == len(fit.privacy.entries)


def test_a_foreign_file_does_not_switch_the_check_off(tmp_path):
    """Finding 5."""
    np.savez(tmp_path / "notes.npz", a=np.zeros(2))
    model = model_of(ledger=pi.Ledger(pi.Budget(epsilon=1.0, delta=1e-6)))
    with pytest.raises(BudgetExceededError):
        model.fit(**BUDGET, checkpoint=tmp_path)
    assert len(model.ledger) == 0
    assert os.listdir(tmp_path) == ["notes.npz"]


def test_a_foreign_file_under_a_name_of_ours_is_refused_before_a_charge(tmp_path):
    np.savez(tmp_path / "00003.npz", a=np.zeros(2))
    model = model_of()
    with pytest.raises(StorageError):
        model.fit(**BUDGET, checkpoint=tmp_path)
    assert len(model.ledger) == 0
