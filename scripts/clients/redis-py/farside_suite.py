"""A plugin of pytest for redis-py's own tests: which of their failures are what Farside says that it does not have.

Each line of `unsupported.txt`, beside this file, has a kind, a pattern and a reason, apart by two spaces or more:

    command  XLEN                       streams      the server answered "unknown command" or "unknown subcommand"
    answer   DB index is out of range*  one database    another error that says what is not supported
    test     tests/test_x.py::T::test_z what differs    the test fails, for that reason
    omit     tests/test_x.py::T::test_z what it wants   the test is not run

- A test that fails counts as *not supported* if one of its commands was answered so, or if it is listed itself. Whatever else
  fails is a failure.
- The list stays true: a listed test that passes is a failure, and `cargo xtask clients` refuses lines that nothing fits.
"""

import collections
import fnmatch
import os
import pathlib
import re

import pytest
import redis
from redis._parsers.base import BaseParser

LIST = pathlib.Path(__file__).with_name("unsupported.txt")
# What redis-py asks on each connection, and does without.
ASKED_OF_ALL = {"CLIENT|MAINT_NOTIFICATIONS"}
UNKNOWN = re.compile(r"(?:ERR )?unknown command '([^']*)'", re.ASCII)
UNKNOWN_PART = re.compile(r"(?:ERR )?unknown subcommand '([^']*)'\. Try (\S+) HELP", re.ASCII)


def read_list():
    """The patterns of each kind."""
    patterns = {"command": [], "answer": [], "test": [], "omit": []}
    lines = [line for line in LIST.read_text().splitlines() if line and not line.startswith("#")]
    assert lines == sorted(lines), f"{LIST} is not sorted"
    for line in lines:
        kind, pattern, _reason = re.split(r" {2,}", line)
        patterns[kind].append(pattern)
    return patterns


PATTERNS = read_list()
# What the server refused in the test that runs: kind, and command or text.
refused = []
used = set()
unsupported = collections.Counter()
parse_error = BaseParser.parse_error.__func__


def watched_parse_error(own_class, response):
    """Notes what the server says; every parser of redis-py makes its errors here."""
    text = response.decode(errors="replace") if isinstance(response, bytes) else str(response)
    if found := UNKNOWN.match(text):
        refused.append(("command", found[1].upper()))
    elif found := UNKNOWN_PART.match(text):
        refused.append(("command", f"{found[2]}|{found[1]}".upper()))
    else:
        refused.append(("answer", text.removeprefix("ERR ")))
    return parse_error(own_class, response)


BaseParser.parse_error = classmethod(watched_parse_error)


def plain(test):
    """A test's name without its parameters."""
    return test.split("[", 1)[0]


def listed(test):
    """What is listed of what the test was refused, or the test itself."""
    for kind, said in refused:
        for pattern in PATTERNS[kind]:
            if said not in ASKED_OF_ALL and fnmatch.fnmatchcase(said, pattern):
                used.add(pattern)
                return pattern
    if test in PATTERNS["test"]:
        used.add(test)
        return test
    return None


def pytest_sessionstart(session):
    client = redis.Redis.from_url(session.config.getoption("--redis-url"))
    client.config_set("enable-monitor-command", "yes")
    client.close()


def pytest_collection_modifyitems(config, items):
    omitted = [item for item in items if plain(item.nodeid) in PATTERNS["omit"]]
    used.update(plain(item.nodeid) for item in omitted)
    config.hook.pytest_deselected(items=omitted)
    items[:] = [item for item in items if item not in omitted]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    refused.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    test = plain(item.nodeid)
    if report.failed:
        if reason := listed(test):
            unsupported[reason] += 1
            report.outcome, report.wasxfail = "skipped", f"not supported: {reason}"
    elif report.passed and report.when == "call" and test in PATTERNS["test"]:
        report.outcome, report.longrepr = "failed", f"{test} passes, and {LIST.name} says that it does not"
    return report


def pytest_sessionfinish(session):
    if file := os.environ.get("FARSIDE_SUITE_USED"):
        pathlib.Path(file).write_text("".join(f"{each}\n" for each in sorted(used)))


def pytest_terminal_summary(terminalreporter):
    counts = ", ".join(f"{what} ({count})" for what, count in sorted(unsupported.items()))
    terminalreporter.write_line(f"not supported: {counts}")
