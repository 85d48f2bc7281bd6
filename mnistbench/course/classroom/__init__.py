"""What a class does with labs.

Make a training step faster for a ``score`` (``score_command``, and ``score_worker`` in the process
of each side), check a lab (``check_command``) and hand in a ``submission``; ``teacher`` grades.
"""
