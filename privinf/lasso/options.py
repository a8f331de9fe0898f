"""Options of `DebiasedLasso.fit`: the kinds of fit, and which options go with which kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from privinf.errors import ArgumentError, NotAvailableError
from privinf.fitting.model import NO_LEVEL
from privinf.lasso.rows import LassoFamily
from privinf.typing import CovWord, Multipliers, Precision, RngLike, ScoreTarget, Trust
from privinf.validation import check_choice, shown

Targets = Sequence[int | str] | Literal["selected", "all"]
Accounting = Literal["joint", "per-interval"]
Center = Literal["declared", "released"]
Variant = Literal["default", "paper"]
FitKind = Literal["joint", "heterogeneous", "paper", "secure", "binomial"]
OPTIONS: Mapping[FitKind, set[str]] = {
    "joint": {
        "max_sparsity",
        "iterations",
        "clip",
        "center",
        "bootstrap_draws",
        "bootstrap_multipliers",
        "restricted_eigenvalues",
        "noise_variance",
        "bias_bound",
        "extra_shares",
        "target",
    },
    "heterogeneous": {"shared_sparsity", "accounting", "precision", "center", "target"},
    "paper": {"shared_sparsity", "accounting", "iterations", "clip", "refit", "paper_options", "target"},
    "secure": {
        "max_sparsity",
        "iterations",
        "clip",
        "center",
        "noise_variance",
        "extra_shares",
        "max_colluding",
        "target",
    },
    "binomial": {"max_sparsity", "iterations", "clip"},
}
# Options that every kind of fit has.
OF_EVERY_FIT = {
    "sparsity",
    "targets",
    "variant",
    "heterogeneous",
    "epsilon",
    "delta",
    "mu",
    "rho",
    "rng",
    "precision_sparsity",
    "shares",
    "cov_type",
}
WORDS: Mapping[FitKind, str] = {
    "joint": "family='gaussian', variant='default', heterogeneous=False and trust='central' or 'server'",
    "heterogeneous": "variant='default' and heterogeneous=True",
    "paper": "variant='paper'",
    "secure": "trust='secure-sum'",
    "binomial": "family='binomial'",
}
# The option of each kind that a logistic fit does not have.
NOT_LOGISTIC: Mapping[FitKind, str] = {
    "joint": "",
    "heterogeneous": "heterogeneous=True",
    "paper": "variant='paper'",
}

NOT_GAUSSIAN = (
    "mu= is not available with a trusted server, because the noise of the selection of "
    "columns is not Gaussian: pass epsilon= with delta=, or rho=. With trust='secure-sum', "
    "mu= is accepted"
)
PAPER_LEVEL = (
    "the paper's algorithms divide an epsilon and a delta: pass epsilon= and delta=, not mu= or rho="
)
NO_MEAN = (
    "target='mean' is not available with {}: use target='robust', or fit named or selected "
    "targets with variant='default' and heterogeneous=False"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LassoOptions:
    """Options of `DebiasedLasso.fit`, which describes them."""

    sparsity: int | Literal["auto"] = "auto"
    targets: Targets = "selected"
    variant: Variant = "default"
    heterogeneous: bool = False
    epsilon: float | None = None
    delta: float | None = None
    mu: float | None = None
    rho: float | None = None
    rng: RngLike = None
    precision_sparsity: int | None = None
    shares: Mapping[str, float] | None = None
    max_sparsity: int | None = None
    shared_sparsity: int | None = None
    accounting: Accounting = "joint"
    precision: Precision = "pooled"
    iterations: int | None = None
    clip: float | None = None
    refit: bool | None = None
    center: Center | None = None
    target: ScoreTarget | None = None
    bootstrap_draws: int | None = None
    bootstrap_multipliers: Multipliers = "rademacher"
    restricted_eigenvalues: bool = False
    noise_variance: bool = False
    bias_bound: bool = False
    extra_shares: Mapping[str, float] | None = None
    paper_options: Mapping[str, Any] | None = None
    max_colluding: int = 0
    cov_type: CovWord | None = None

    @property
    def all_targets(self) -> bool:
        """Whether all columns are targets."""
        return isinstance(self.targets, str) and self.targets == "all"

    @property
    def score_target(self) -> ScoreTarget:
        """Target of the scores; by default the mean, where it is available."""
        return self.target or ("robust" if self.all_targets else "mean")

    def kind(self, trust: Trust, family: LassoFamily) -> FitKind:
        """Return which kind of fit is requested.

        Raises
        ------
        ArgumentError, NotAvailableError
            An option does not go with this kind of fit: nothing is accepted and ignored.
        """
        check_choice(self.accounting, Accounting, "accounting")
        check_choice(self.precision, Precision, "precision")
        paper = check_choice(self.variant, Variant, "variant") == "paper"
        kind: FitKind = "paper" if paper else "heterogeneous" if self.heterogeneous else "joint"
        if family == "binomial":
            check_logistic("targets='all'" if self.all_targets else NOT_LOGISTIC[kind], trust)
            kind = "binomial"
        elif trust == "secure-sum":
            kind = self._secure(kind)
        check_level(kind, epsilon=self.epsilon, mu=self.mu, rho=self.rho)
        if self.target is not None and check_choice(self.target, ScoreTarget, "target") == "mean":
            alone = "targets='all'" if self.all_targets else WORDS[kind]
            if self.all_targets or kind in ("heterogeneous", "paper"):
                raise NotAvailableError(NO_MEAN.format(alone))
        if kind in {"joint", "binomial"} and self.accounting == "per-interval":
            raise NotAvailableError(
                "accounting='per-interval' is available only with heterogeneous=True or "
                "variant='paper': in other fits, all intervals come from the same release"
            )
        for option in [candidate for candidate in fields(self) if candidate.name not in OF_EVERY_FIT]:
            if getattr(self, option.name) != option.default and option.name not in OPTIONS[kind]:
                homes = ", or with ".join(
                    WORDS[home] for home, names in OPTIONS.items() if option.name in names
                )
                raise ArgumentError(
                    f"{option.name}= cannot be used in a fit with {WORDS[kind]}: use it with {homes}"
                )
        return kind

    def _secure(self, kind: FitKind) -> FitKind:
        """Return the kind of fit on secure sums, if there is one."""
        if kind != "joint":
            raise NotAvailableError(
                f"a fit with {WORDS[kind]} requires a trusted server, which selects columns from sums "
                "without noise. trust='secure-sum' is available with variant='default' and "
                "heterogeneous=False"
            )
        if isinstance(self.targets, str):
            raise ArgumentError(
                f"targets={shown(self.targets)} is not available with trust='secure-sum': pass a list "
                "of columns that was chosen before the data are seen"
            )
        return "secure"


def check_level(kind: str, *, epsilon: float | None, mu: float | None, rho: float | None) -> None:
    """Refuse no level, two, and one that means nothing for this kind of fit."""
    levels = {"epsilon": epsilon, "mu": mu, "rho": rho}
    names = [name for name, level in levels.items() if level is not None]
    if not names:
        raise ArgumentError(NO_LEVEL)
    if len(names) > 1:
        raise ArgumentError(f"pass exactly one of epsilon=, mu= and rho=, not {' and '.join(names)}")
    if kind == "paper" and epsilon is None:
        raise ArgumentError(PAPER_LEVEL)
    if kind != "secure" and mu is not None:
        raise ArgumentError(NOT_GAUSSIAN)


def check_logistic(refused: str, trust: Trust) -> None:
    """Raise NotAvailableError where a logistic fit cannot have `refused`, or lacks trust."""
    if refused:
        raise NotAvailableError(
            f"family='binomial' cannot be used with {refused}: pass variant='default', "
            "heterogeneous=False, and targets='selected' or a list of columns"
        )
    if trust == "secure-sum":
        raise NotAvailableError(
            "family='binomial' needs trust='central' or trust='server', because columns are selected from "
            "sums without noise, which a trusted curator or server must hold. For few columns, pi.Logit(..., "
            "trust='secure-sum') needs no trusted server"
        )
