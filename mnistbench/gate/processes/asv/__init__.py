"""The cases of an asv suite: what pytest collects in the folder that an asv.conf.json names.

``suites`` finds the suite that a file belongs to. ``collecting`` is a plug-in of pytest in the
sessions of a side: it makes a test of each benchmark and each set of its parameters, which gives
its calls to pytest-benchmark's fixture. ``benchmarks`` discovers the benchmarks and calls what asv
calls around them, by asv-runner. It is the only module here that imports asv-runner.
"""
