"""A grid of Flower in this process: real messages and their serialisation, without engine and network."""

from flwr.app import Context, Error, Message, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from privinf.federation.flower import FlowerFederation


def act_as_runner(monkeypatch):
    """Say of this process what Flower's runner says, and lose no time between looks for answers."""
    monkeypatch.setitem(FlowerFederation.__init__.__wrapped__.__kwdefaults__, "poll", 0.01)
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def carried(message):
    """Return the message after a journey."""
    return message_from_proto(message_to_proto(message))


class LocalGrid(Grid):
    """Nodes in this process: each has a ClientApp and a configuration."""

    def __init__(self, app, configs, *, silent=(), broken=()):
        self.app, self.configs = app, dict(enumerate(configs, start=10))
        self.silent, self.broken = set(silent), set(broken)
        self.replies, self.asked = {}, []

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, *parts, **options):
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None):
        raise NotImplementedError

    def get_node_ids(self):
        return list(self.configs)

    def push_messages(self, messages):
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = f"m{len(self.asked)}"
            ids.append(message.metadata.message_id)
            self.asked.append(message.metadata)
            node = message.metadata.dst_node_id
            if node in self.broken:
                reply = Message(Error(5, "Node unavailable"), reply_to=message)
            elif node in self.silent:
                continue
            else:
                context = Context(1, node, self.configs[node], RecordDict(), {})
                reply = self.app(carried(message), context)
            reply.metadata.__dict__["_message_id"] = f"r{len(self.asked)}"
            self.replies[ids[-1]] = carried(reply)
        return ids

    def pull_messages(self, message_ids):
        return [self.replies.pop(name) for name in message_ids if name in self.replies]
