"""From raw samples to tested quantities, as pure functions.

In the order of the data: ``differences`` compares the two sides of a build; ``quantities`` chooses
what is compared, operations alone or together, and has the difference of each in every trial;
``permutation`` tests them. ``shards`` joins the files of several machines.
``gate.decide.verdict`` goes on from there.
"""
