"""The pytest plug-in: options, hooks and the fixture ``op_benchmark``.

``plugin`` is the entry point.

Question: how do pytest and pytest-benchmark run, save and compare the cases? Input: pytest's
configuration, the tests that use ``op_benchmark``, and the hooks of a user's conftest.py. Output:
records in the files of pytest-benchmark, a summary on the terminal, and pytest's exit code.

pytest loads the plug-in in every session where mnistbench is installed, so torch is imported only
for tests that use the fixture.
"""
