"""Profiles of the score statistic: its least value where one coefficient is fixed, for many together."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privinf.inference.score_surface import ScoreSurface
from privinf.typing import Flags, Floats, Integers

_GRID = 48  # angles of a line at which its profile is worked out, besides those of free minima
_STARTS = 3  # starting points at each angle
_SWEEPS = 3  # times that minima are sought from the neighbours' points
_SECTIONS = 8  # parts of an interval between angles in which a crossing is looked for
_SECANTS = 60  # steps to a crossing
_NARROW = 1e-11  # angles
_CLOSE = 1e-11  # in shares of the critical value's root


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Lines:
    """The lines of L coefficients, closed by their points at infinity: ``b_j = centre + scale tan(angle)``.

    Angles run from -pi/2 to pi/2; both ends are the point at infinity.
    """

    surface: ScoreSurface
    coordinates: Integers
    centres: Floats
    scales: Floats
    critical: float

    @classmethod
    def from_surface(cls, surface: ScoreSurface, coordinates: Integers, *, critical: float) -> Lines:
        """Centre at the estimate (T = 0), with scales that put Wald intervals at 45 degrees."""
        w = surface.unwhiten @ np.linalg.svd(surface.B)[2][-1]
        lean = w / w[-1] if abs(w[-1]) > 1e-12 * np.abs(w).max() else np.append(np.zeros(len(w) - 1), 1.0)
        slopes = surface.B @ np.linalg.inv(surface.unwhiten)[:, :-1]
        v = np.linalg.solve(surface.unwhiten, lean)
        spreads = float(np.sqrt(v @ v)) * np.linalg.norm(np.linalg.pinv(slopes), axis=1)[coordinates]
        scales = math.sqrt(critical) * spreads
        return cls(
            surface=surface,
            coordinates=coordinates,
            centres=lean[coordinates],
            scales=np.where(scales > 0.0, scales, 1.0),
            critical=critical,
        )

    def value(self, line: Integers, angles: Floats) -> Floats:
        """Return b_j at N angles, strictly inside (-pi/2, pi/2), of N lines."""
        return np.asarray(self.centres[line] + self.scales[line] * np.tan(angles), dtype=np.float64)

    def normals(self, line: Integers, angles: Floats) -> Floats:
        """Return unit normals (N, m) of the hyperplanes {b_j fixed} in whitened coordinates."""
        normal = np.zeros((len(angles), self.surface.B.shape[1]))
        normal[np.arange(len(angles)), self.coordinates[line]] = np.cos(angles)
        normal[:, -1] -= self.centres[line] * np.cos(angles) + self.scales[line] * np.sin(angles)
        normal = normal @ self.surface.unwhiten
        return np.asarray(normal / np.linalg.norm(normal, axis=1, keepdims=True), dtype=np.float64)

    def angles(self) -> list[Floats]:
        """Return each line's grid: even, with both ends, and with the angles of all local minima of T."""
        free = np.zeros((1, self.surface.B.shape[1]))
        starts = self.surface.starts(free, free.shape[1])[0][0]
        _, minima = self.surface.minimise(starts, np.zeros_like(starts))
        w = minima @ self.surface.unwhiten.T
        away = (w[:, self.coordinates] - self.centres * w[:, -1:]) * np.sign(w[:, -1:])
        even = np.linspace(-np.pi / 2, np.pi / 2, _GRID + 1)
        grids = []
        for angles in np.arctan2(away, self.scales * np.abs(w[:, -1:])).T:
            grids.append(np.unique(np.concatenate([even, angles[np.abs(angles) < np.pi / 2 - 1e-9]])))
        return grids


@dataclass(slots=True, eq=False, kw_only=True)
class Profiles:
    """Least T on N hyperplanes {b_j fixed} of all lines: the lowest points that are known on them.

    Whether a hyperplane has a point inside is decided without a search on most: one point inside is a proof,
    and so is a lower bound outside, ``min |B v|^2`` over its unit vectors against `ScoreSurface.largest`. On
    the others, and on both sides of every end, minima are sought from several points and from those of the
    neighbors.

    Attributes
    ----------
    lines : Lines
    line : (N,) int array
        Line of each hyperplane; one line's stand together, in the order of their angles.
    angles : (N,) array
    normals : (N, m) array
    starts : (N, s, m) array
        Where minima are sought from.
    values, points : (N,), (N, m) arrays
        Lowest T so far, and where.
    beyond : (N,) bool array
        Whether all of the hyperplane is proved to be outside.
    sought : (N,) bool array
        Whether a minimum has been sought.
    neighbors : (2, N) int array
        The hyperplane before and after, in a ring.
    """

    lines: Lines
    line: Integers
    angles: Floats
    normals: Floats
    starts: Floats
    values: Floats
    points: Floats
    beyond: Flags
    sought: Flags
    neighbors: Integers

    @classmethod
    def from_lines(cls, lines: Lines) -> Profiles:
        """Return the grid with what is known without a search."""
        surface = lines.surface
        angles = lines.angles()
        sizes = np.array([len(grid) for grid in angles])
        line = np.repeat(np.arange(len(sizes)), sizes)
        flat = np.concatenate(angles)
        normals = lines.normals(line, flat)
        starts, smallest = surface.starts(normals, min(surface.B.shape[1] - 1, _STARTS))
        firsts = np.cumsum(sizes) - sizes
        place = np.arange(len(flat)) - firsts[line]
        ring = np.array([place - 1, place + 1]) % sizes[line] + firsts[line]
        points = starts[:, 0].copy()
        outside = smallest > lines.critical * surface.largest
        return cls(
            lines=lines,
            line=line,
            angles=flat,
            normals=normals,
            starts=starts,
            values=surface.values(points),
            points=points,
            beyond=outside,
            sought=np.zeros(len(flat), dtype=np.bool_),
            neighbors=ring,
        )

    @property
    def inside(self) -> Flags:
        """Whether each hyperplane has a point that is inside."""
        return np.asarray((self.values <= self.lines.critical) & ~self.beyond)

    def edges(self) -> Integers:
        """Return the hyperplanes of which the next one of the same line is in another state."""
        changes = (self.inside[1:] != self.inside[:-1]) & (self.line[1:] == self.line[:-1])
        return np.flatnonzero(changes)

    def settle(self) -> None:
        """Seek minima wherever the state is not proved, and on both sides of every edge."""
        to_search = ~self.inside & ~self.beyond
        while True:
            edges = self.edges()
            to_search[edges] = to_search[edges + 1] = True
            new = np.flatnonzero(to_search & ~self.sought)
            if not new.size:
                return
            self._lower(
                np.repeat(new, self.starts.shape[1]), self.starts[new].reshape(-1, self.points.shape[1])
            )
            self.sought[new] = True
            self._sweep()

    def _sweep(self) -> None:
        """Seek minima from the neighbors' points too, as long as there are new ones."""
        news = np.ones((2, len(self.angles)), dtype=np.bool_)
        for _ in range(_SWEEPS):
            for side, neighbors in enumerate(self.neighbors):
                rows = np.flatnonzero(self.sought & news[side][neighbors])
                news[side] = False
                lower = self._lower(rows, self.points[neighbors[rows]])
                news[:, lower] = True
            self._close_rings()

    def _lower(self, rows: Integers, starts: Floats) -> Integers:
        """Seek minima on hyperplanes from starting points, and return the rows that became lower."""
        values, points = self.lines.surface.minimise(starts, self.normals[rows])
        order = np.argsort(values, kind="stable")[::-1]  # the lowest of a row is written last
        better = order[values[order] < (self.values - 1e-9 * (1.0 + self.values))[rows[order]]]
        self.values[rows[better]] = values[better]
        self.points[rows[better]] = points[better]
        return np.unique(rows[better])

    def _close_rings(self) -> None:
        """Let both ends of a line, one hyperplane at infinity, know what the other one knows."""
        last = np.flatnonzero(np.append(self.line[1:] != self.line[:-1], True))
        first = self.neighbors[1][last]
        lower = self.values[first] < self.values[last]
        source = np.where(lower, first, last)
        target = np.where(lower, last, first)
        self.values[target] = self.values[source]
        self.points[target] = self.points[source]

    def crossings(self, edges: Integers) -> Floats:
        """Return the angle, after each edge, at which least T crosses the critical value.

        The first of `_SECTIONS` sections in which it does; there by secants (Illinois), every third a half.
        """
        if not edges.size:
            return np.zeros(0)
        line = self.line[edges]
        root = math.sqrt(self.lines.critical)
        angles, values, points = self._first_sections(edges)
        weights = np.ones((2, len(edges)))
        last = np.full(len(edges), -1)
        active = np.arange(len(edges))
        for step in range(_SECANTS):
            excess = np.sqrt(np.maximum(values[:, active], 0.0)) - root
            width = angles[1, active] - angles[0, active]
            going = (width > _NARROW) & (np.abs(excess).min(axis=0) > _CLOSE * root)
            active, excess, width = active[going], excess[:, going] * weights[:, active[going]], width[going]
            if not active.size:
                break
            share = excess[0] / (excess[0] - excess[1]) if step % 3 < 2 else 0.5
            middle = angles[0, active] + share * width
            value, point = self._between(line[active], middle, points[:, active])
            side = np.where(
                (value <= self.lines.critical) == (values[0, active] <= self.lines.critical), 0, 1
            )
            weights[side, active] = 1.0
            weights[1 - side, active] *= np.where(last[active] == side, 0.5, 1.0)
            last[active] = side
            angles[side, active] = middle
            values[side, active] = value
            points[side, active] = point
        nearest = np.abs(np.sqrt(np.maximum(values, 0.0)) - root).argmin(axis=0)
        return np.asarray(angles[nearest, np.arange(len(edges))], dtype=np.float64)

    def _first_sections(self, edges: Integers) -> tuple[Floats, Floats, Floats]:
        """Return angles, T and points at both ends of the first section in which the state changes."""
        count = len(edges)
        m = self.points.shape[1]
        ends = np.array([edges, edges + 1])
        low, high = self.angles[ends]
        inner = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, _SECTIONS + 1)
        near = np.repeat(self.points[ends], _SECTIONS - 1, axis=1)
        line = np.repeat(self.line[edges], _SECTIONS - 1)
        value, point = self._between(line, inner[:, 1:-1].ravel(), near)
        first, second = self.values[ends]
        values = np.column_stack([first, value.reshape(count, -1), second])
        points = np.concatenate(
            [self.points[edges][:, None], point.reshape(count, -1, m), self.points[edges + 1][:, None]],
            axis=1,
        )
        changed = (values <= self.lines.critical) != self.inside[edges][:, None]
        at = changed.argmax(axis=1) + np.array([[-1], [0]])
        rows = np.arange(count)
        return inner[rows, at], values[rows, at], points[rows, at]

    def _between(self, line: Integers, angles: Floats, near: Floats) -> tuple[Floats, Floats]:
        """Return least T on hyperplanes, sought from two points each; `near` has the shape (2, N, m)."""
        count = len(angles)
        m = near.shape[2]
        normals = np.tile(self.lines.normals(line, angles), (2, 1))
        values, points = self.lines.surface.minimise(near.reshape(-1, m), normals)
        best = values.reshape(2, count).argmin(axis=0), np.arange(count)
        return values.reshape(2, count)[best], points.reshape(2, count, m)[best]
