"""From raw samples to tested quantities, as pure functions.

In the order of the data: ``raw_samples`` reads the file of a gate; ``differences`` compares the two
sides of a build; ``operations`` chooses which operations are compared together, and compares them;
``quantities`` has the difference of each quantity in every launch; ``permutation`` tests them.
``shards`` joins the files of several machines. ``gate.verdict`` goes on from there.
"""
