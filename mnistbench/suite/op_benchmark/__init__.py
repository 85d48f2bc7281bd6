"""The fixture ``op_benchmark``: measures phases of workloads in tests of pytest.

``plugin`` parametrizes the tests and makes the fixture, ``session`` has the workloads and the
curves of a session, ``fixture`` measures and records a case. Only the last one imports torch when
it is imported.
"""
