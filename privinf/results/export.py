"""Results for other programs: tidy tables, and JSON that anything can read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from privinf.doors import doors
from privinf.errors import NotAvailableError, NotPositiveDefiniteError
from privinf.results.provenance import DescribedResults
from privinf.sealed import save_text
from privinf.typing import AnyPath, IntervalMethod
from privinf.validation import check_fraction

FORMAT, VERSION = "privinf-result", 1


@doors
class PortableResults(DescribedResults):
    """A result that leaves as tables and texts; all of it post-processes what the fit released."""

    def tidy(self, alpha: float = 0.05, method: IntervalMethod = "wald") -> pd.DataFrame:
        """Return one row a coefficient, as R's ``broom::tidy`` and ``marginaleffects`` have it.

        Parameters
        ----------
        alpha : float
        method : {"wald", "score"}
            Kind of the intervals; see `conf_int`.

        Returns
        -------
        DataFrame
            Columns ``term``, ``estimate``, ``std_error`` (sampling and privacy noise), ``std_error_sampling``
            (what the same data would have had without noise), ``statistic``, ``p_value``, ``conf_low``,
            ``conf_high``, and ``weak``: whether the noise left too little signal for normal intervals. What
            there is not is nan.

        Warns
        -----
        WeakIdentificationWarning
            Normal intervals are told and should not be trusted.
        """
        check_fraction(alpha, "alpha")
        size = len(self.names)
        table = {"term": list(self.names), "estimate": self.params.to_numpy()}
        columns: dict[str, Callable[[], Any]] = {
            "std_error": lambda: self.bse,
            "std_error_sampling": lambda: self.bse_sampling,
            "statistic": lambda: self.tvalues,
            "p_value": lambda: self.pvalues,
        }
        for name, read in columns.items():
            table[name] = np.asarray(_known(read, np.full(size, np.nan)), dtype=np.float64)
        ends = np.asarray(_known(lambda: self.conf_int(alpha, method), np.full((size, 2), np.nan)))
        weak = [_known(lambda: self.identification.weak, self._estimate.cov is None)] * size
        return pd.DataFrame(table | {"conf_low": ends[:, 0], "conf_high": ends[:, 1], "weak": weak})

    def glance(self) -> pd.DataFrame:
        """Return one row on the whole fit: its size, measures of fit, strength and privacy.

        Columns ``model``, ``response``, ``nobs``, ``df_resid``, ``r_squared``, ``sigma``, ``cov_type``,
        ``target``, ``identification``, ``weak``, ``epsilon``, ``delta``, ``mu``, ``rho``, ``unit``,
        ``relation``, ``trust``, ``secure``. What there is not is nan.
        """
        report, delta = self.privacy, self.privacy.default_delta
        facts: dict[str, Callable[[], Any]] = {
            "df_resid": lambda: self.df_resid,
            "r_squared": lambda: self.rsquared,
            "sigma": lambda: math.sqrt(self.scale),
            "identification": lambda: self.identification.statistic,
            "weak": lambda: self.identification.weak,
            "epsilon": lambda: report.epsilon(delta),
            "mu": lambda: report.mu,
            "rho": lambda: report.rho,
        }
        told = {name: _known(read, math.nan) for name, read in facts.items()}
        words = {"cov_type": self.cov_type, "target": self.target, "delta": delta}
        words |= {"unit": report.unit, "relation": report.relation, "trust": report.trust}
        row = {"model": self.model.name, "response": self.model.endog_names, "nobs": self.nobs}
        whole = row | told | words | {"secure": report.secure}
        order = (
            "model", "response", "nobs", "df_resid", "r_squared", "sigma", "cov_type", "target",
            "identification", "weak", "epsilon", "delta", "mu", "rho", "unit", "relation", "trust", "secure",
        )  # fmt: skip
        return pd.DataFrame([whole], columns=list(order))

    def to_dict(self, alpha: float = 0.05) -> dict[str, Any]:
        """Return all that `summary` says as plain numbers and texts, for JSON.

        The keys are ``format``, ``version``, ``fit`` (`glance`), ``alpha``, ``coefficients`` (one `tidy` row
        each), ``covariance`` (None where the noise leaves none), ``privacy`` (totals, ``stamp``,
        ``assumptions`` and one entry a release) and ``notes``, the warnings and footnotes of the summary.
        What there is not is None, and infinite ends are ``"inf"`` and ``"-inf"``.
        """
        cov = self._estimate.cov
        report = self.privacy
        privacy = {"epsilon": report.epsilon(), "delta": report.default_delta, "stamp": report.stamp}
        privacy |= {"assumptions": list(report.assumptions), "releases": _records(report.releases)}
        told = {
            "format": FORMAT,
            "version": VERSION,
            "fit": _records(self.glance())[0],
            "alpha": alpha,
            "coefficients": _records(self.tidy(alpha)),
            "covariance": None if cov is None else cov.tolist(),
            "privacy": privacy,
            "notes": self.summary(alpha=alpha).plain_notes,  # type: ignore[attr-defined]
        }
        plain = _plain(told)
        assert isinstance(plain, dict)
        return plain

    def to_json(self, path: AnyPath | None = None, *, alpha: float = 0.05, overwrite: bool = False) -> str:
        """Return `to_dict` as JSON; with `path`, also write it to a file.

        Raises ArgumentError if there is such a file, and `overwrite` does not say that it may be replaced.
        """
        text = json.dumps(self.to_dict(alpha), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
        if path is not None:
            save_text(path, text, overwrite=overwrite)
        return text


def _known(read: Callable[[], Any], otherwise: Any) -> Any:
    """Return what is there, and something else where the noise or the model leaves none."""
    try:
        return read()
    except (NotAvailableError, NotPositiveDefiniteError):
        return otherwise


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _plain(value: Any) -> Any:
    """Return numbers of Python, None for nan, texts for infinities."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float) and not math.isfinite(plain):
        return None if math.isnan(plain) else ("inf" if plain > 0 else "-inf")
    return plain
