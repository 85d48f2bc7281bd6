"""Which cases run code that differs between the sides.

``definitions`` reads what a file defines, ``changes`` compares the definitions of both trees, and
``cases`` joins them with the code that the surveys saw each case run. Uncertain means reached.
"""
