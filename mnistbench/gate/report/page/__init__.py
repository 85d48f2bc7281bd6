"""The report of a gate as an HTML page.

``view`` has what the template ``gate.html`` shows, ``operations`` the rows of the tables of
operations, which the page's script draws, ``forest`` the intervals of both, and ``icicles`` the
call paths, of which the script makes a picture and a table of functions.
"""
