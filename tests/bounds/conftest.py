from tests.model.conftest import quick_compilation  # noqa: F401 - for all tests of the folder
