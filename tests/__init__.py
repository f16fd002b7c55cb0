import pytest

pytest.register_assert_rewrite(f'{__name__}.suites')  # a failed assertion of a suite shows the compared values
