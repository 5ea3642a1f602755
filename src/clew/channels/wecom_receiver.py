"""WeCom webhook receiver: decrypts the envelope, parses its message and admits it."""

from collections.abc import Callable
from dataclasses import dataclass

from clew.channels import wecom
from clew.channels.admission import Admission
from clew.channels.wecom_crypto import Envelope
from clew.domain.errors import Invalid, Unauthenticated
from clew.domain.records import Delivery
from clew.ports.channels import Became
from clew.ports.clock import Clock

APP, CUSTOMER_SERVICE, AI_BOT = KINDS = ("app", "customer_service", "ai_bot")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeComReceiver:
    """The WebhookReceiver of one app, customer service or AI bot. `account`, if set, is the only one it serves."""

    source: str
    kind: str
    envelope: Envelope
    account: str
    clock: Clock
    # Raises above the rate limit. Called after the provider is authenticated.
    pace: Callable[[str], None]
    admission: Admission

    @property
    def thanks(self) -> str:
        return "" if self.kind == AI_BOT else "success"

    def greet(self, delivery: Delivery) -> str:
        """WeCom's URL verification: returns the decrypted challenge."""
        echo = self._opened(delivery, delivery.query.get("echostr", ""))
        try:
            return echo.decode("utf-8")
        except UnicodeDecodeError:
            raise Invalid("expected text", field="echostr") from None

    async def receive(self, delivery: Delivery) -> Became:
        content = self._opened(delivery, self._sealed(delivery.body))
        self.pace(self.source)
        if self.kind == AI_BOT:
            return await self.admission.admit(self.source, wecom.read_ai_bot(wecom.read_json(content)))
        fields = wecom.read_xml(content)
        if self.kind == APP:
            return await self.admission.admit(self.source, wecom.read_direct(fields))
        event = wecom.read_event(fields)
        if event is not None and self.account not in ("", event.said.to["open_kfid"]):
            event = None
        return await self.admission.admit(self.source, event, led=False)

    def _sealed(self, body: bytes) -> str:
        """The only part read before the signature check. An unreadable body is not signed either."""
        try:
            outer = wecom.read_json(body) if self.kind == AI_BOT else wecom.read_xml(body)
        except Invalid as exc:
            raise Unauthenticated(str(exc)) from None
        sealed = (
            outer.get("encrypt" if self.kind == AI_BOT else "Encrypt") if isinstance(outer, dict) else None
        )
        return sealed if isinstance(sealed, str) else ""

    def _opened(self, delivery: Delivery, sealed: str) -> bytes:
        query = delivery.query
        if "msg_signature" not in query:
            raise Unauthenticated("the signature is missing")
        return self.envelope.open(
            sealed,
            signature=query["msg_signature"],
            timestamp=query.get("timestamp", ""),
            nonce=query.get("nonce", ""),
            now=self.clock(),
        )
