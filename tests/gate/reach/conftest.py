import pytest
from surveyed import Surveyor


@pytest.fixture(scope="session")
def surveyor(tmp_path_factory):
    """One process that surveys trees in forks."""
    surveyor = Surveyor(tmp_path_factory.mktemp("surveys"))
    yield surveyor
    surveyor.close()
