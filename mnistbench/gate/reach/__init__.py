"""Which cases run code that differs between the sides.

``definitions`` reads what a file defines, with what its ``parts`` and their ``expressions`` use;
``changes`` compares the definitions of both trees. ``following`` sees in a survey which code each
case runs. ``side_code`` joins both for a side, with its ``files`` and the ``calls`` in their text;
``compared`` joins the sides, and ``cases`` decides. Uncertain means reached.
"""
