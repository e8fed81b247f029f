"""Fake push vendors, written from the vendors' documentation: the second opinion about the sender.

    with FakeFCM() as fcm:
        token = fcm.device()
        ...                          # a sender with fcm.account.json(), fcm.url and the authority fcm.certificate
        assert fcm.sent[0].title == "Hello" and fcm.refused == []
"""

from . import credentials, receipts
from .fcm import FakeFCM
from .harmony import FakeHarmony
from .honor import FakeHonor
from .huawei import FakeHuawei
from .meizu import FakeMeizu
from .oppo import FakeOPPO
from .server import Answer, Request, VendorServer, closing, dropped, html, lost, slow
from .vendor import Sent, find_ids
from .vivo import FakeVivo
from .webpush import FakePushService, Subscription
from .xiaomi import FakeXiaomi

__all__ = [
    "Answer", "FakeFCM", "FakeHarmony", "FakeHonor", "FakeHuawei", "FakeMeizu", "FakeOPPO", "FakePushService", "FakeVivo",
    "FakeXiaomi", "Request", "Sent", "Subscription", "VendorServer", "closing", "credentials", "dropped", "find_ids", "html",
    "lost", "receipts", "slow",
]
