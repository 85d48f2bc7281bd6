"""Reports: rows are built once (``rows``, ``comparison``, ``gate``, ``bisection``, ...), then drawn in a format.

Question: how is a result shown?
Input: a judgement, a verdict of the gate, a profile, saved runs, or records.
Output: text; ``terminal`` and ``markdown`` draw rows, ``data`` writes JSON and CSV, ``html_page`` the HTML page.

Nothing here measures or imports torch.
"""
