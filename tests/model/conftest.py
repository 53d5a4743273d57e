import pytensor
import pytest

pytest.register_assert_rewrite(f"{__package__}.factorise_checks")


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """Compile fast, with no C code."""
    with pytensor.config.change_flags(mode="FAST_COMPILE", cxx=""):
        yield
