"""From raw samples to tested quantities, as pure functions.

In the order of the data: ``raw_samples`` reads the file of a gate, with the ``case_profile`` of a
changed case and the ``case_names`` of reports; ``differences`` compares the two
sides of a build; ``quantities`` chooses what is compared, operations alone or together, and has the
difference of each in every trial; ``permutation`` tests them.
``shards`` joins the files of several machines. ``gate.decide.verdict`` goes on from there.
"""
