"""The pytest plug-in: what all sessions need.

``plugin`` is the entry point, and loads the plug-ins of providers; that of the fixture
``op_benchmark`` is in ``mnistbench.suite.op_benchmark``. ``plain_tests`` attaches tables to tests
of pytest-benchmark's own fixture, ``session`` has the state, and ``terminal_summary`` prints it.

Question: how do pytest and pytest-benchmark run, save and compare benchmarks? Input: pytest's
configuration and the tests. Output: a record in ``extra_info`` of each benchmark and a header,
which pytest-benchmark saves, a summary on the terminal, and pytest's exit code.

pytest loads the plug-in in every session where mnistbench is installed, so nothing here imports
torch.
"""
