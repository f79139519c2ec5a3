import pytest

from headscan.model import Lens
from tests.attribution.attribution_cases import build


@pytest.fixture(scope="session")
def gpt2():
    return build("gpt2")


@pytest.fixture(scope="session")
def llama():
    return build("llama")


@pytest.fixture(scope="session")
def stories(assets):
    return Lens.load(str(assets / "models" / "stories260K"))
