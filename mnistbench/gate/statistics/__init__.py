"""From raw samples to a verdict, as pure functions.

In the order of the data: ``raw_samples`` reads the file of a gate; ``differences`` compares the two
sides of a build; ``groups`` chooses which operations are compared together; ``quantities`` has the
difference of each quantity in every launch; ``permutation`` tests them; ``decision`` gives the
verdicts; ``result`` has what a report needs. ``shards`` joins the files of several machines.
"""
