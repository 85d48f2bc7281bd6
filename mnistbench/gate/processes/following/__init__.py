"""What a survey sees of the tests of a side: the code that they run, and the files that they open.

``follower`` is the plug-in of pytest that says which test it was. ``calls`` reports the calls of
functions, ``fetched`` the names that the code of the tree gets, and ``opened`` the files that are
opened, by whatever program. ``callers`` finds the code that calls a function, and ``outliving``
what goes on after a call.
"""
