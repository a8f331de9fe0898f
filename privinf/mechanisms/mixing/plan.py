"""MixingPlan: public agreement of the parties of a vertically split table, before any row is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from types import MappingProxyType
from typing import Any, Self

from privinf.accounting import GaussianLoss, Ledger, compose
from privinf.accounting.budget import DEFAULT_DELTA
from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError, StorageError
from privinf.mechanisms.mixing.party import PartyPlan, check_parties, party_designs, plan_columns
from privinf.mechanisms.mixing.party_release import PartyLabels
from privinf.mechanisms.mixing.release import GaussianRows, RandomMixing
from privinf.mechanisms.mixing.theory import (
    DEFAULT_RSQUARED,
    PartyForecast,
    PlanCheck,
    auto_rows,
    default_share,
    identification_forecast,
    paper_rows,
)
from privinf.releases import Release
from privinf.schema import Design
from privinf.schema.table import canonical_digest
from privinf.storage.checksummed import checksummed_json, parse_json, read_text, reads, verified_record
from privinf.typing import (
    Calibration,
    DiameterChoice,
    Imputation,
    MixingKind,
    MixingMethod,
    RngLike,
    RowsRule,
    SourceName,
    Table,
)
from privinf.validation import check_choice, check_count, check_number, check_vacant, shown
from privinf.wire import Formats

FORMAT = Formats.MIXING_PLAN
PLAN_VERSION = 1  # of a plan's file


@error_boundaries
@dataclass(frozen=True, slots=True, kw_only=True)
class MixingPlan:
    """Public plan of a release by several parties, made by `MixingPlan.new` or read from JSON.

    Attributes
    ----------
    parties : mapping of str to PartyPlan
        Released columns and budget of each party, by the name of the party.
    n : int
        Number of people, the same at every party.
    method : {"random-mixing", "gaussian-rows"}
        Method of the release: k mixed rows (`RMGMOLS`), or all n rows with noise (`DGMOLS`, `BGMOLS`).
    k : int
        Number of released rows: the number of mixed rows, or n for "gaussian-rows".
    kind : {"signs", "hadamard", "countsketch"}
        Kind of the random mixing matrix.
    seed : int
        Public seed of the mixing matrix.
    intercept : bool
        Whether the noisy sum over all people (the all-ones row of the mixing matrix) is also released.
    share : float
        Weight of the all-ones row in the mixing matrix, as a share; 0 if there is no all-ones row.
    id : str or None
        Name of the id column. The parties' files are aligned by their ids. None means that the files of all
        parties are already in the same order.
    ids_sha256 : str or None
        SHA-256 digest of the sorted ids, if the parties agreed on a list of people (roster); otherwise None.
    diameter : {"own", "largest"}
        Diameter to which the noise of a party is calibrated: the diameter of the party's own columns, or the
        largest diameter of all parties (d_max of the paper).
    calibration : {"exact", "classic"}
        How the noise of a party is computed from its `epsilon` and `delta`: "exact" is the exact calibration
        of Gaussian noise, and "classic" is the textbook formula.

    Raises
    ------
    SchemaError
        Raised if two parties have columns of the same name, or the id column is one of the released columns.
    ArgumentError
        Raised if a number is out of its range: k is above n, or there are too few mixed rows for the number
        of columns.

    Notes
    -----
    **Privacy.** Costs nothing: no rows are read, and a plan contains only public information.

    Examples
    --------
    >>> import privinf as pi
    >>> plan = pi.MixingPlan.new(
    ...     parties={
    ...         "clinic": pi.PartyPlan(pi.Schema({"age": (18, 90), "bmi": (15, 60)}), 1.0, 1e-6),
    ...         "lab": pi.PartyPlan(pi.Schema({"glucose": (50, 250)}), 1.0, 1e-6),
    ...     },
    ...     n=100_000,
    ... )
    >>> plan.k, pi.MixingPlan.from_json(plan.to_json()) == plan
    (73, True)
    """

    parties: Mapping[str, PartyPlan] = field(hash=False)
    n: int
    method: MixingMethod
    k: int
    kind: MixingKind
    seed: int
    intercept: bool
    share: float
    id: str | None = None
    ids_sha256: str | None = None
    diameter: DiameterChoice = "own"
    calibration: Calibration = "exact"

    def __post_init__(self) -> None:
        check_choice(self.method, MixingMethod, "method")
        check_choice(self.kind, MixingKind, "kind")
        check_choice(self.diameter, DiameterChoice, "diameter")
        check_choice(self.calibration, Calibration, "calibration")
        check_count(self.n, "n")
        check_count(self.seed, "seed", least=0)
        check_parties(self.parties, self.id)
        object.__setattr__(self, "parties", MappingProxyType(dict(self.parties)))
        if self.ids_sha256 is not None and not (
            isinstance(self.ids_sha256, str) and len(self.ids_sha256) == 64
        ):
            raise ArgumentError(
                "ids_sha256= must be the SHA-256 checksum of the roster (the list of the people's "
                "ids), written as 64 hexadecimal digits"
            )
        check_number(self.share, "share", low=0.0, high=0.99)
        if self.method == "gaussian-rows":
            if self.k != self.n or self.share != 0.0:
                raise ArgumentError(
                    "method='gaussian-rows' releases every row with noise: pass k = n, share=0"
                )
            return
        if (self.share > 0.0) != self.intercept:
            raise ArgumentError(
                "share= is the weight of the intercept: pass a positive share= with intercept=True, or "
                "share=0 with intercept=False"
            )
        min_k = self.width + int(not self.intercept)
        if check_count(self.k, "k") < min_k:
            raise ArgumentError(
                f"k={self.k} random linear combinations of rows are too few for {self.width} columns: pass "
                f"at least k={min_k}"
            )
        for name in self.parties:
            self.mechanism(name)

    @classmethod
    def new(
        cls,
        *,
        parties: Mapping[str, PartyPlan],
        n: int,
        method: MixingMethod = "random-mixing",
        k: int | RowsRule = "auto",
        intercept: bool | None = None,
        share: float | None = None,
        rsquared: float | None = None,
        label: str | None = None,
        kind: MixingKind = "countsketch",
        seed: int = 0,
        id: str | None = None,
        ids_sha256: str | None = None,
        diameter: DiameterChoice = "own",
        calibration: Calibration = "exact",
    ) -> MixingPlan:
        """Make a plan, and compute `k`, `intercept` and `share` from public numbers unless they are passed.

        Parameters
        ----------
        parties : mapping of str to PartyPlan
            Released columns and budget of each party, by the name of the party.
        n : int
            Number of people, the same at every party.
        method : {"random-mixing", "gaussian-rows"}
            Whether each party releases k random sums over all people, or every row with noise.
        k : int, "auto" or "paper"
            Number of mixed rows. With "auto" it is computed from n, the noise and the guess of R^2. With
            "paper" it is sqrt(n)/sigma, rounded down, as in the paper, where sigma is the noise per unit of
            sensitivity.
        intercept : bool, optional
            Whether the noisy sum over all people (the all-ones row of the mixing matrix) is also released.
            The default is True for random mixing and False for noisy rows.
        share : float, optional
            Weight of the all-ones row in the mixing matrix, as a share. By default the weight is computed
            from n and the largest noise of a party.
        rsquared : float, optional
            Public guess of the R^2 of the regression, in (0, 1), for ``k="auto"``; default 0.8.
        label : str, optional
            Released column that will be the response of the regression, for ``k="auto"``. By default it is
            not specified, and any released column may be the response.
        kind : {"signs", "hadamard", "countsketch"}
            Kind of the random mixing matrix.
        seed : int
            Public seed of the mixing matrix.
        id : str, optional
            Name of the id column. The parties' files are aligned by their ids. None means that the files of
            all parties are already in the same order.
        ids_sha256 : str, optional
            SHA-256 digest of the sorted ids, if the parties agreed on a list of people (see `roster_digest`).
        diameter : {"own", "largest"}
            Diameter to which the noise of a party is calibrated: the diameter of the party's own columns
            (default), or the largest diameter of all parties (d_max of the paper).
        calibration : {"exact", "classic"}
            How the noise of a party is computed from its `epsilon` and `delta`. The choice "exact" (default)
            is the exact calibration of Gaussian noise. The choice "classic" is the textbook formula; use it
            only to reproduce published results.

        Returns
        -------
        MixingPlan
            The plan, in which `k`, `intercept` and `share` have values.

        Raises
        ------
        ArgumentError
            Raised if a number is out of its range, or if an option is passed that the method or the chosen
            `k` does not use.
        SchemaError
            Raised if two parties have a column of the same name.

        Notes
        -----
        **Privacy.** Costs nothing: no rows are read, and a plan contains only public information.
        """
        check_parties(parties, id)
        mixing = check_choice(method, MixingMethod, "method") == "random-mixing"
        centred = mixing if intercept is None else intercept
        common: dict[str, Any] = {
            "parties": parties,
            "n": check_count(n, "n"),
            "method": method,
            "intercept": centred,
            "kind": kind,
            "seed": seed,
            "id": id,
            "ids_sha256": ids_sha256,
            "diameter": diameter,
            "calibration": calibration,
        }
        if not mixing and (k not in ("auto", n) or share is not None):
            raise ArgumentError("k= and share= can be used only with method='random-mixing': leave them out")
        if rsquared is not None and not (mixing and k == "auto"):
            raise ArgumentError(
                "rsquared= is used only with k='auto' and method='random-mixing': leave it out"
            )
        columns = plan_columns(parties, centred, diameter, calibration)
        guess = columns.guess(label, DEFAULT_RSQUARED if rsquared is None else rsquared)
        if not mixing:
            return cls(k=n, share=0.0, **common)
        if share is not None:
            check_number(share, "share", low=0.0, high=0.99)
        else:
            share = default_share(max(columns.noise) ** 0.5, n) if centred else 0.0
        if k == "auto":
            k = auto_rows(guess, n=n, features=len(columns.names) - 1, share=share)
        elif k == "paper":
            k = paper_rows(n, min(party.total_mu(calibration) for party in parties.values()))
        return cls(k=check_count(k, "k"), share=share, **common)

    @property
    def width(self) -> int:
        """Number of released columns, summed over all parties."""
        return sum(int(design.private.sum()) for design in self.designs().values())

    @property
    def digest(self) -> str:
        """SHA-256 digest of the plan. Every release of the plan contains this digest."""
        return canonical_digest(self.to_dict())

    def designs(self) -> dict[str, Design]:
        """Return the design of each party.

        Returns
        -------
        dict of str to Design
            Columns, bounds and scaling of each party (`Design`), by the name of the party.
        """
        return party_designs(self.parties, self.intercept)

    def mechanism(
        self, party: str, *, missing: Imputation = "raise", data_bounds: bool = False
    ) -> RandomMixing | GaussianRows:
        """Return the mechanism of one party.

        Parameters
        ----------
        party : str
            Name of the party.
        missing : {"raise", "impute-public"}
            Whether missing values are refused, or replaced by the middle of the bounds (for a factor, by its
            first level).
        data_bounds : bool
            Whether the bounds were computed from the data. If True, the privacy report states that the bounds
            are not public.

        Returns
        -------
        RandomMixing or GaussianRows
            The mechanism of the plan's method, with the columns of this party.

        Raises
        ------
        ArgumentError
            Raised if the plan has no such party.
        """
        schema = self.party(party).schema
        designs = self.designs()
        largest = max(design.diameter for design in designs.values())
        common: dict[str, Any] = {
            "n": self.n,
            "intercept": self.intercept,
            "diameter": largest if self.diameter == "largest" else None,
            "missing": missing,
            "data_bounds": data_bounds,
            "labels": PartyLabels(party, self.digest, self.ids_sha256 or ""),
        }
        if self.method == "gaussian-rows":
            return GaussianRows(schema, **common)
        share = self.share if self.intercept else None
        return RandomMixing(schema, k=self.k, kind=self.kind, seed=self.seed, share=share, **common)

    def party(self, name: str) -> PartyPlan:
        """Return the columns and the budget of one party of the plan.

        Parameters
        ----------
        name : str
            Name of the party.

        Returns
        -------
        PartyPlan
            The party.

        Raises
        ------
        ArgumentError
            Raised if the plan has no such party.
        """
        if not isinstance(name, str) or name not in self.parties:
            raise ArgumentError(
                f"the plan has no party {shown(name)}; its parties are: {', '.join(self.parties)}"
            )
        return self.parties[name]

    def losses(self, party: str) -> tuple[GaussianLoss, ...]:
        """Return the privacy losses of one party's release.

        Parameters
        ----------
        party : str
            Name of the party.

        Returns
        -------
        tuple of GaussianLoss
            Privacy losses of the party's releases.
        """
        mechanism = self.mechanism(party)
        mu = self.party(party).total_mu(self.calibration)
        return (GaussianLoss(mu * mechanism.design.diameter / mechanism.diameter),)

    def release(
        self,
        party: str,
        rows: Table,
        *,
        rng: RngLike = None,
        missing: Imputation = "raise",
        data_bounds: bool = False,
        source: SourceName = "lattice",
        ledger: Ledger | None = None,
    ) -> Release:
        """Release the columns of one party, with the budget that the plan states for this party.

        Parameters
        ----------
        party : str
            Name of the party.
        rows : table, array of shape (n, d), or RowBlocks
            Table of the party, with one row per person in the order of the sorted ids.
        rng : None, int or Generator, optional
            Source of randomness. With None (default) the noise is secure. With a seed or a Generator it is
            simulation noise, which is not private, and the results are marked as NOT PRIVATE.
        missing : {"raise", "impute-public"}
            Whether missing values are refused, or replaced by the middle of the bounds (for a factor, by its
            first level).
        data_bounds : bool
            Whether the bounds were computed from the data. If True, the privacy report states that the bounds
            are not public.
        source : {"lattice", "opendp"}, optional
            Sampler of the secure noise: "lattice" is the sampler of privinf (default), and "opendp" is the
            sampler of OpenDP.
        ledger : Ledger, optional
            Budget ledger that records the cost of the release. If the release would exceed the limit of the
            ledger, it is refused before any row is read. The cost is recorded in the ledger before anything
            is released.

        Returns
        -------
        Release
            Release of the party's columns, with noise.

        Notes
        -----
        **Privacy.** Reads every row of this party once, at the cost that the plan states for this party.
        """
        chosen = self.party(party)
        return self.mechanism(party, missing=missing, data_bounds=data_bounds).release(
            rows, **chosen.spending, calibration=self.calibration, ledger=ledger, rng=rng, source=source
        )

    def check(self, rsquared: float = DEFAULT_RSQUARED) -> PlanCheck:
        """Return the cost of the plan, and forecast whether a regression is identified; no rows are read.

        Parameters
        ----------
        rsquared : float
            Public guess of the R^2 of the regression, in (0, 1).

        Returns
        -------
        plan check
            Object that prints a table with the cost of each party, and the forecast whether a regression is
            identified.

        Notes
        -----
        **Privacy.** Costs nothing: no rows are read.
        """
        columns = plan_columns(self.parties, self.intercept, self.diameter, self.calibration)
        guess = columns.guess(None, rsquared)
        effective_n = round((1.0 - self.share) * self.n)
        features = max(len(columns.names) - 1, 1)
        forecast = identification_forecast(
            guess.noise, guess.signal, n=effective_n, k=self.k, features=features
        )
        deltas = [party.delta for party in self.parties.values() if party.delta is not None]
        delta = max(deltas, default=DEFAULT_DELTA)
        lines = []
        for name, party in self.parties.items():
            mechanism = self.mechanism(name)
            mu = columns.own_mu[name]
            own_delta = delta if party.delta is None else party.delta
            scale = mechanism.noise_scale(party.total_mu(self.calibration))
            epsilon = compose([GaussianLoss(mu)]).epsilon(own_delta)
            lines.append(
                PartyForecast(
                    party=name, columns=mechanism.width, noise_scale=scale, epsilon=epsilon, delta=own_delta
                )
            )
        total = compose([GaussianLoss(mu) for mu in columns.own_mu.values()])
        return PlanCheck(
            plan=self, parties=tuple(lines), epsilon=total.epsilon(delta), delta=delta, forecast=forecast
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON; `from_dict` is its exact inverse.

        Returns
        -------
        dict
            For `from_dict`.
        """
        parties = {name: party.to_dict() for name, party in self.parties.items()}
        rest = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "parties"}
        return {"format": FORMAT, "version": PLAN_VERSION, "parties": parties, **rest}

    @classmethod
    @reads("a mixing plan")
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Make a plan from a dictionary that `to_dict` returned.

        Parameters
        ----------
        content : mapping
            Result of `to_dict`.

        Raises
        ------
        StorageError
            Raised if the dictionary does not describe a plan.
        """
        fields = dict(content)
        if (fields.pop("format", None), fields.pop("version", None)) != (FORMAT, PLAN_VERSION):
            raise StorageError(
                "this version of privinf cannot read the file as a mixing plan; update privinf, or use "
                "another file"
            )
        parties = fields["parties"].items()
        fields["parties"] = {name: PartyPlan.from_dict(party) for name, party in parties}
        return cls(**fields)

    def to_json(self) -> str:
        """Return the plan as JSON text with a checksum.

        Returns
        -------
        str
            For `from_json`.
        """
        return checksummed_json(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a plan from JSON text that `to_json` returned.

        Parameters
        ----------
        text : str
            Result of `to_json`.

        Raises
        ------
        StorageError
            Raised if the text is not a plan, or if its checksum does not match.
        """
        record = parse_json(text, "the text is not a mixing plan: the text")
        names = ("format", "version", *cls.__dataclass_fields__)
        return cls.from_dict(verified_record(record, "a mixing plan", names))

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the plan to a JSON file.

        Parameters
        ----------
        path : path
            The file.
        overwrite : bool
            Whether to replace an existing file.

        Raises
        ------
        ArgumentError
            Raised if the file exists and `overwrite` is not True.
        """
        check_vacant(path, overwrite).write_text(self.to_json() + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a plan from a JSON file.

        Parameters
        ----------
        path : path
            The file.

        Raises
        ------
        StorageError
            Raised if the file cannot be read, or is not a plan.
        """
        return cls.from_json(read_text(path, "a mixing plan"))

    def __reduce__(self) -> tuple[Any, ...]:
        return MixingPlan.from_dict, (self.to_dict(),)
