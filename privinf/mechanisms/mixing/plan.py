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
    """Public plan of a multi-party release, made by `MixingPlan.new` or read from JSON.

    Attributes
    ----------
    parties : mapping of str to PartyPlan
        Released columns and budget of each party, by the party's name.
    n : int
        Number of people, the same at every party.
    method : {"random-mixing", "gaussian-rows"}
        k mixed rows (RMGMOLS) or all n rows with noise (DGMOLS, BGMOLS).
    k : int
        Number of mixed rows; n for "gaussian-rows".
    kind : {"signs", "hadamard", "countsketch"}
        Kind of the random mixing matrix.
    seed : int
        Public seed of the mixing matrix.
    intercept : bool
        Whether the all-ones row is released as well.
    share : float
        Share of the all-ones row; 0 without one.
    id : str or None
        Name of the id column by which the parties' files are aligned. None if all files are already in the
        same order.
    ids_sha256 : str or None
        Digest of the sorted ids, where the parties agreed on a roster.
    diameter : {"own", "largest"}
        Diameter that determines the noise: each party's own, or the largest of all parties (d_max of the
        paper).
    calibration : {"exact", "classic"}
        How `epsilon` and `delta` of a party determine its noise; "classic" is the textbook formula.

    Raises
    ------
    SchemaError
        Two parties have columns of the same name, or the id column is one of the released columns.
    ArgumentError
        A number is out of its range: k above n, or too few mixed rows for the columns.

    Notes
    -----
    **Privacy.** Everything in the plan is public, and no rows are read.

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
        """Make a plan; `k`, `intercept` and `share` follow from public numbers unless they are passed.

        Parameters
        ----------
        parties : mapping of str to PartyPlan
            Released columns and budget of each party, by the party's name.
        n : int
            Number of people, the same at every party.
        method : {"random-mixing", "gaussian-rows"}
            Whether each party releases k random sums over all people, or every row with noise.
        k : int, "auto" or "paper"
            Number of mixed rows. "auto" chooses it from n, the noise and the guess of R^2. "paper" is the
            paper's rule, sqrt(n)/sigma rounded down, with sigma the noise per unit of sensitivity.
        intercept : bool, optional
            Whether the all-ones row is released as well. By default True for random mixing and False for
            single rows.
        share : float, optional
            Share of the all-ones row; by default it follows from n and the largest noise of a party.
        rsquared : float, optional
            Public guess of R^2, in (0, 1), for k="auto"; default 0.8.
        label : str, optional
            Released column that will be the response, for k="auto". By default any released column may be the
            response.
        kind : {"signs", "hadamard", "countsketch"}
            Kind of the random mixing matrix.
        seed : int
            Public seed of the mixing matrix.
        id : str, optional
            Name of the id column by which the parties' files are aligned. None if all files are already in
            the same order.
        ids_sha256 : str, optional
            SHA-256 of the sorted ids, where the parties agreed on a roster.
        diameter : {"own", "largest"}
            Diameter that scales the noise of a party: its own (default), or the largest of all parties (d_max
            of the paper).
        calibration : {"exact", "classic"}
            How `epsilon` and `delta` of a party determine its noise. "exact" (default) is the exact account
            of Gaussian noise. "classic" is the textbook formula, to reproduce published results only.

        Returns
        -------
        MixingPlan
            The plan, with `k`, `intercept` and `share` chosen.

        Raises
        ------
        ArgumentError
            A number is out of range, or an option is passed that the method or the given k does not use.
        SchemaError
            Two parties have a column of the same name.

        Notes
        -----
        **Privacy.** Everything in the plan is public, and no rows are read.
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
        """Number of released columns of all parties."""
        return sum(int(design.private.sum()) for design in self.designs().values())

    @property
    def digest(self) -> str:
        """SHA-256 of the plan, which every release contains."""
        return canonical_digest(self.to_dict())

    def designs(self) -> dict[str, Design]:
        """Return every party's design.

        Returns
        -------
        dict of str to Design
            Designs by the names of the parties.
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
            Whether the bounds come from the data: the privacy report then states that they are not public.

        Returns
        -------
        RandomMixing or GaussianRows
            The mechanism for the method of the plan.

        Raises
        ------
        ArgumentError
            The plan has no such party.
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
        """Return one party of the plan.

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
            The plan has no such party.
        """
        if not isinstance(name, str) or name not in self.parties:
            raise ArgumentError(
                f"the plan has no party {shown(name)}; its parties are: {', '.join(self.parties)}"
            )
        return self.parties[name]

    def losses(self, party: str) -> tuple[GaussianLoss, ...]:
        """Return the cost of one party's release.

        Parameters
        ----------
        party : str
            Name of the party.

        Returns
        -------
        tuple of GaussianLoss
            One loss per release.
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
        """Release one party's rows as the plan states, with the budget that the plan gives this party.

        Parameters
        ----------
        party : str
            Name of the party.
        rows : table, array of shape (n, d), or RowBlocks
            One row per person, in the order of the sorted ids.
        rng : None, int or Generator, optional
            None (default) draws secure noise. A seed or a Generator draws simulation noise, which is not
            private; the results are marked as such.
        missing : {"raise", "impute-public"}
            Whether missing values are refused, or replaced by the middle of the bounds (for a factor, by its
            first level).
        data_bounds : bool
            Whether the bounds come from the data: the privacy report then states that they are not public.
        source : {"lattice", "opendp"}, optional
            Sampler of secure noise: privinf's own (default), or OpenDP's.
        ledger : Ledger, optional
            Budget ledger. If its limit would be exceeded, the ledger refuses the release before any row is
            read. The cost is recorded in the ledger before anything is released.

        Returns
        -------
        Release
            Release of the mechanism of the plan.

        Notes
        -----
        **Privacy.** Reads the rows of this party once, at the cost stated in its `PartyPlan`.
        """
        chosen = self.party(party)
        return self.mechanism(party, missing=missing, data_bounds=data_bounds).release(
            rows, **chosen.spending, calibration=self.calibration, ledger=ledger, rng=rng, source=source
        )

    def check(self, rsquared: float = DEFAULT_RSQUARED) -> PlanCheck:
        """Return the cost of the plan and whether it can identify a regression, before any row is read.

        Parameters
        ----------
        rsquared : float
            Public guess of R^2, in (0, 1).

        Returns
        -------
        plan check
            The returned object prints the cost of each party as a table, and whether a regression can be
            identified.

        Notes
        -----
        **Privacy.** Reads no rows.
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
        """Return a JSON-able description; `from_dict` is its exact inverse.

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
        """Return the plan that `to_dict` described.

        Parameters
        ----------
        content : mapping
            Result of `to_dict`.

        Raises
        ------
        StorageError
            The content does not describe a plan.
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
        """Return the plan as JSON text, with its checksum.

        Returns
        -------
        str
            For `from_json`.
        """
        return checksummed_json(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the plan of a JSON text.

        Parameters
        ----------
        text : str
            Result of `to_json`.

        Raises
        ------
        StorageError
            The text is not a plan, or its checksum does not match.
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
            Whether an existing file is replaced.

        Raises
        ------
        ArgumentError
            The file exists and `overwrite` is not True.
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
            The file cannot be read, or is not a plan.
        """
        return cls.from_json(read_text(path, "a mixing plan"))

    def __reduce__(self) -> tuple[Any, ...]:
        return MixingPlan.from_dict, (self.to_dict(),)
