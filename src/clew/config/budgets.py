"""Settings of budgets: what models may use and cost in a period, and the prices of models."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from clew.config.declare import Section, setting
from clew.config.kinds import amount, choice, whole
from clew.config.tree import ConfigNode
from clew.domain.errors import ConfigError
from clew.domain.profile import Price, SpendingLimit, SpendingLimits, SpendingPeriod

_TOKENS, _MONEY = 10**15, 10**9


class BudgetSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_BUDGETS_"

    period: Annotated[str, choice("day", "month")] = setting(
        "month", "How long a budget lasts, in UTC, before the next one begins."
    )
    tokens_per_tenant: Annotated[int, whole(0, _TOKENS)] = setting(
        0,
        "Tokens that models read and write for one tenant; then its next round gets a 429. 0 is any number.",
    )
    tokens_per_user: Annotated[int, whole(0, _TOKENS)] = setting(0, "The same for one user; 0 is any number.")
    tokens_per_graph: Annotated[int, whole(0, _TOKENS)] = setting(
        0, "The same for one graph, for all tenants together; 0 is any number."
    )
    cost_per_tenant: Annotated[float, amount(0, _MONEY)] = setting(
        0, "Money by `prices` that models cost one tenant; 0 is any amount."
    )
    cost_per_user: Annotated[float, amount(0, _MONEY)] = setting(0, "The same for one user; 0 is any amount.")
    cost_per_graph: Annotated[float, amount(0, _MONEY)] = setting(
        0, "The same for one graph, for all tenants together; 0 is any amount."
    )

    @property
    def limits(self) -> SpendingLimits:
        return SpendingLimits(
            period=SpendingPeriod(self.period),
            tenant=SpendingLimit(tokens=self.tokens_per_tenant, cost=self.cost_per_tenant),
            user=SpendingLimit(tokens=self.tokens_per_user, cost=self.cost_per_user),
            graph=SpendingLimit(tokens=self.tokens_per_graph, cost=self.cost_per_graph),
        )


def read_prices(place: ConfigNode) -> dict[str, Price]:
    """Of a million tokens, by the names of models. Raises ConfigError."""
    return {str(name): _price(entry) for name, entry in place.entries().items()}


def _price(place: ConfigNode) -> Price:
    given = place.known(("input", "output"))
    if not given:
        raise place.expected("input and output: the prices of a million tokens")
    kind = amount(0, _MONEY)
    found = {}
    for name, entry in given.items():
        try:
            found[name] = kind.read(entry.value)
        except ValueError:
            raise entry.expected(kind.expected) from None
    return Price(**found)


def require_prices(budgets: BudgetSettings, prices: Mapping[str, Price], sources: Mapping[str, str]) -> None:
    """Raises ConfigError for a budget of money where nothing has a price: it would never be spent."""
    for name in ("cost_per_tenant", "cost_per_user", "cost_per_graph"):
        if getattr(budgets, name) and not prices:
            raise ConfigError(
                f"{sources[f'budgets.{name}']}: needs the section `prices` of clew.yaml beside it"
            )
