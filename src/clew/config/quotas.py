"""Settings of quotas: how much of what is stored each tenant may have."""

from typing import Annotated, ClassVar

from clew.config.declare import Section, setting
from clew.config.kinds import whole


class QuotaSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_QUOTAS_"

    threads: Annotated[int, whole(0, 1_000_000_000)] = setting(
        0, "Threads of one tenant, those in the trash included. 0 is any number."
    )
    stored_bytes: Annotated[int, whole(0, 2**50)] = setting(
        0, "Bytes of one tenant in files, store items and chat histories. 0 is any number."
    )
    assistants: Annotated[int, whole(0, 1_000_000)] = setting(
        0, "Assistants that one tenant created. 0 is any number."
    )
    crons: Annotated[int, whole(0, 1_000_000)] = setting(0, "Crons of one tenant. 0 is any number.")
