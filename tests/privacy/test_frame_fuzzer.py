"""Hostile frames, reduced (all: `benchmarks/hostile_frames.py`): nothing charged, nothing unforeseen."""

import json
import logging
from collections import Counter

import frame_fuzzer
import numpy as np
import pytest
from frame_fuzzer import DESIGN, KINDS, NAME, framed, hostile, put, question, site_of

from privinf.federation import Query, RemoteSite, SiteDaemon


@pytest.fixture
def daemon(tmp_path):
    site = site_of(200)
    with SiteDaemon(site, NAME, tmp_path / "s", timeout=600.0).started() as found:
        remote = RemoteSite(found.path, timeout=600.0)
        assert not remote.handle(Query("design", args={"design": DESIGN.to_dict()}), NAME).error
        assert not remote.handle(question(0), NAME).error
        yield found, site, remote


def test_hostile_frames_charge_nothing_and_raise_nothing(daemon, caplog):
    found, site, remote = daemon
    caplog.set_level(logging.INFO)
    rng, kept = np.random.default_rng(3), framed(question(0))
    sent = Counter()
    for _ in range(250):
        kind, content = hostile(rng, kept)
        sent[kind] += 1
        put(str(found.path), content, 600.0)
    for kind, (_, make) in KINDS.items():
        put(str(found.path), make(rng, kept), 600.0)
        sent[kind] += 1
    assert len(site.ledger) == 1
    assert not remote.handle(question(1), NAME).error
    assert len(site.ledger) == 2
    events = Counter(json.loads(line)["event"] for line in caplog.messages)
    assert events["failed"] == 0
    assert not any("failed at" in line or "Unforeseen" in line for line in caplog.messages)


def test_the_kinds_are_those_of_the_benchmark():
    assert set(KINDS) == {
        "truncated",
        "random",
        "bits flipped",
        "quadratic headers",
        "huge lengths",
        "replays",
        "underpriced",
        "as many values as fit",
        "large bodies",
        "large designs",
    }
    assert len(frame_fuzzer.framed(question(0))) > 500
