"""The options of a debiased lasso's fit, and which of them go with which kind of fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from privinf.errors import ArgumentError, NotAvailableError
from privinf.lasso.plan import Accounting, Center, Targets
from privinf.typing import Multipliers, Precision, Trust
from privinf.validation import check_choice, shown

Variant = Literal["default", "paper"]
FitKind = Literal["joint", "heterogeneous", "paper", "secure"]


@dataclass(frozen=True, slots=True)
class LassoOptions:
    """What `DebiasedLasso.fit` was asked for; the first six go with every kind of fit."""

    epsilon: float
    delta: float | None
    sparsity: int | Literal["auto"]
    targets: Targets
    precision_sparsity: int | None
    shares: Mapping[str, float] | None
    max_sparsity: int | None = None
    shared_sparsity: int | None = None
    accounting: Accounting = "joint"
    precision: Precision = "pooled"
    iterations: int | None = None
    clip: float | None = None
    refit: bool | None = None
    center: Center = "declared"
    bootstrap_draws: int | None = None
    bootstrap_multipliers: Multipliers = "rademacher"
    restricted_eigenvalues: bool = False
    noise_variance: bool = False
    bias_bound: bool = False
    extra_shares: Mapping[str, float] | None = None
    paper_options: Mapping[str, Any] | None = None
    max_colluding: int = 0

    @property
    def every(self) -> bool:
        """Whether all columns are targets."""
        return isinstance(self.targets, str) and self.targets == "all"

    def kind(self, variant: Variant, heterogeneous: bool, trust: Trust = "server") -> FitKind:
        """Return which kind of fit is asked for.

        Raises
        ------
        ArgumentError, NotAvailableError
            An option does not go with this kind of fit: nothing is accepted and ignored.
        """
        check_choice(self.accounting, Accounting, "accounting")
        check_choice(self.precision, Precision, "precision")
        paper = check_choice(variant, Variant, "variant") == "paper"
        kind: FitKind = "paper" if paper else "heterogeneous" if heterogeneous else "joint"
        if trust == "secure-sum":
            kind = self._secure(kind)
        if kind == "joint" and self.accounting == "per-interval":
            raise NotAvailableError(
                "the scores of all targets are one release, whose noise serves every interval: "
                "accounting='per-interval' is offered with heterogeneous=True and with variant='paper'"
            )
        for option in fields(self)[6:]:
            if getattr(self, option.name) != option.default and option.name not in OPTIONS[kind]:
                homes = " or ".join(WORDS[home] for home, names in OPTIONS.items() if option.name in names)
                raise ArgumentError(
                    f"{option.name}= has no place in a fit with {WORDS[kind]}: it goes with {homes}"
                )
        return kind

    def _secure(self, kind: FitKind) -> FitKind:
        """Return the kind of fit on secure sums, if there is one."""
        if kind != "joint":
            raise NotAvailableError(
                f"a fit with {WORDS[kind]} peels un-noised sums, or sums of one party: that needs a trusted "
                "server; trust='secure-sum' goes with variant='default' and heterogeneous=False"
            )
        if isinstance(self.targets, str):
            raise ArgumentError(
                f"targets={shown(self.targets)}: on secure sums the targets are a list of columns, named "
                "before the data are seen. All columns are too many for one Gaussian release of their "
                "products with all columns, p^2 numbers, and selected ones are those that its noise favours"
            )
        return "secure"


OPTIONS: Mapping[FitKind, set[str]] = {
    "joint": {
        "max_sparsity", "iterations", "clip", "center", "bootstrap_draws", "bootstrap_multipliers",
        "restricted_eigenvalues", "noise_variance", "bias_bound", "extra_shares",
    },
    "heterogeneous": {"shared_sparsity", "accounting", "precision"},
    "paper": {"shared_sparsity", "accounting", "iterations", "clip", "refit", "paper_options"},
    "secure": {
        "max_sparsity", "iterations", "clip", "center", "noise_variance", "extra_shares", "max_colluding",
    },
}  # fmt: skip
WORDS: Mapping[FitKind, str] = {
    "joint": "variant='default', heterogeneous=False and trust='server'",
    "heterogeneous": "variant='default' and heterogeneous=True",
    "paper": "variant='paper'",
    "secure": "trust='secure-sum'",
}
