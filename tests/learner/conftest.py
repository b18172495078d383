from learning import module  # noqa: F401 -- the fixture
