"""Runs tests of a suite and writes down at once how each ended: whatever ends the command later, it is known."""

import json
import sys
import time
import unittest


class _Result(unittest.TextTestResult):
    def startTest(self, test):
        super().startTest(test)
        self._began, self._outcome = time.monotonic(), "passed"

    def stopTest(self, test):
        super().stopTest(test)
        _, kind, name = test.id().rsplit(".", 2)
        seconds = round(time.monotonic() - self._began, 2)
        with open(sys.argv[1], "a") as file:
            file.write(json.dumps({"test": f"{kind}.{name}", "outcome": self._outcome, "seconds": seconds}) + "\n")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._outcome = "skipped"

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self._outcome = "failed"

    def addError(self, test, error):
        super().addError(test, error)
        self._outcome = "failed"

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self._outcome = "failed"

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self._outcome = "failed"


def main(*classes):
    """``sys.argv``: a file for the results, and the tests to run; without tests, their names are written to it."""
    path, *names = sys.argv[1:]
    if names:
        by_name = {one.__name__: one for one in classes}
        tests = [by_name[kind](test) for kind, test in (name.split(".") for name in names)]
        run = unittest.TextTestRunner(verbosity=2, resultclass=_Result).run(unittest.TestSuite(tests))
        sys.exit(not run.wasSuccessful())
    with open(path, "w") as file:
        for one in classes:
            for test in unittest.defaultTestLoader.getTestCaseNames(one):
                if not (_skipped(one) or _skipped(getattr(one, test))):
                    file.write(f"{one.__name__}.{test}\n")


def _skipped(what):
    return getattr(what, "__unittest_skip__", False)
