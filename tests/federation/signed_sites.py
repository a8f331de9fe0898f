"""Sites with keys, a roster of version 2 and ledgers in files, each behind a socket, and their attackers."""

import shutil
from contextlib import ExitStack

from federation_sites import design_of, rows_of

from privinf.accounting import Budget
from privinf.federation import (
    IdentityKey,
    RemoteSite,
    Roster,
    SecureServer,
    Site,
    SiteDaemon,
    SiteLedger,
    SitePolicy,
    SocketFederation,
)

NAMES = ("north", "south", "west")
SCORE = {"columns": [0, 1, 2, 3], "clip": 2.0, "residual_clip": 1.5}
QUICK = {"timeout": 600.0, "patience": 600.0}
KEYS = {name: IdentityKey(bytes([at]) * 32) for at, name in enumerate(NAMES, start=1)}
ROSTER = Roster(
    {name: key.public for name, key in KEYS.items()}, {name: key.verifying for name, key in KEYS.items()}
)
ANALYST = IdentityKey(bytes([9]) * 32)
LISTED = [{"name": "ada", "key": ANALYST.verifying}]


class World:
    """Three daemons whose ledgers and anchors are files in folders of their own."""

    def __init__(self, folder, **policy):
        self.folder, self.policy = folder, SitePolicy(secure_sums=True, **policy)
        self.stacks = {}
        for name in NAMES:
            (folder / name / "anchor").mkdir(parents=True)
            self.up(name)

    def ledger(self, name):
        return self.folder / name / "ledger"

    def anchor(self, name):
        return self.folder / name / "anchor" / "file"

    def up(self, name):
        seed, self.stacks[name] = NAMES.index(name), ExitStack()
        enter = self.stacks[name].enter_context
        ledger = enter(SiteLedger(self.ledger(name), Budget(mu=50.0), anchor=self.anchor(name)))
        site = Site(
            rows_of(60 + 10 * seed, seed),
            design_of(),
            policy=self.policy,
            ledger=ledger,
            key=KEYS[name],
            roster=ROSTER,
        )
        enter(SiteDaemon(site, name, self.folder / f"{name}.sock", timeout=600.0).started())

    def down(self, name):
        self.stacks.pop(name).close()

    def restarted(self, name):
        self.down(name)
        self.up(name)

    def close(self):
        for name in list(self.stacks):
            self.down(name)

    def kept(self, *paths):
        """Copy files, and return how to put the copies back."""
        copies = {path: path.read_bytes() for path in paths}

        def put_back():
            for path, content in copies.items():
                path.unlink()
                path.write_bytes(content)
                shutil.copymode(path.parent, path)
                path.chmod(0o600)

        return put_back

    def federation(self, **ends):
        return SocketFederation({name: self.folder / f"{name}.sock" for name in NAMES}, **QUICK, **ends)

    def remote(self, name):
        return RemoteSite(self.folder / f"{name}.sock", timeout=600.0)


def asked(federation, **options):
    """Release a secure sum by a new server."""
    return SecureServer(federation, **options).vector_sum("clipped_score", SCORE, mu=1.0, label="s").values


def charged(name, world):
    return sum(line.count(b'"charge"') for line in world.ledger(name).read_bytes().split(b"\n"))
