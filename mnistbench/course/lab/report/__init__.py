"""The report of the lab: the findings, explained in English or Chinese, with figures.

Question: which statements do the findings support?
Input: the findings of one machine, or of several (``merged``).
Output: chapters (``chapters``), written as Markdown and HTML (``document``). ``sheets`` selects the numbers, ``explain`` and
``claims`` choose the statements, ``texts`` has their wording, ``figures`` draws.

Nothing here measures or imports torch.
"""
