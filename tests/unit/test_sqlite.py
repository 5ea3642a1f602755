"""SQLite as it is found: what its library must be able to do."""

import pytest

from clew.domain.errors import ConfigError
from clew.stores.sqlite import require_version


@pytest.mark.parametrize("version", [(3, 34, 1), (2, 99)])
def test_a_library_that_is_too_old_is_named(version: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=f"is {version[0]}.{version[1]}.* needs 3.35 or newer"):
        require_version(version)
    require_version((3, 35, 0))
