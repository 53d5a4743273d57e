pytest_plugins = ["tests.core_seconds"]
