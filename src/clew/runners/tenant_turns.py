"""Tenant turns: how many of the free slots each tenant with waiting threads is given."""

import heapq
from collections import Counter
from collections.abc import Mapping
from itertools import count


class TenantTurns:
    """Each slot goes to the tenant that has fewest running threads; of several, to the one served longest ago.

    A tenant with a thousand waiting threads delays another's single one by no more than the end of one run.
    """

    def __init__(self) -> None:
        self._turn = count()
        self._served: dict[str, int] = {}

    def share(self, running: Mapping[str, int], free: int) -> Counter[str]:
        """`running` says how many threads of each waiting tenant run now."""
        shares: Counter[str] = Counter()
        heap = [(number, self._served.get(tenant, -1), tenant) for tenant, number in running.items()]
        heapq.heapify(heap)
        for turn, _ in zip(self._turn, range(free if heap else 0), strict=False):
            number, _, tenant = heap[0]
            shares[tenant] += 1
            heapq.heapreplace(heap, (number + 1, turn, tenant))
        # A tenant that waits no longer comes first when it waits again.
        self._served = {tenant: served for _, served, tenant in heap}
        return shares
