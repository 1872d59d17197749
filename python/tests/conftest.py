"""With ONEHOT_REQUIRE_ALL=1 whatever would be skipped fails: where everything is installed, nothing goes unrun unseen."""

import os

import pytest

REQUIRE_ALL = os.environ.get("ONEHOT_REQUIRE_ALL", "") not in ("", "0")


def _fail_instead(report):
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: must not be skipped where ONEHOT_REQUIRE_ALL is set ({reason})"


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    """A file that skips itself, as by pytest.importorskip."""
    outcome = yield
    _fail_instead(outcome.get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    _fail_instead(outcome.get_result())


def pytest_sessionfinish(session, exitstatus):
    if REQUIRE_ALL and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
