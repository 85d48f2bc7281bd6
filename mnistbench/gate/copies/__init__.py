"""What the copies of two trees consist of, and what the processes of both sides still share.

``trees`` copies the base and the working tree; the gate calls it alone. ``copying`` copies files,
``repositories`` reads git's repositories with their submodules, ``generated`` knows what a build
has written, and ``places`` moves the paths of environment variables into a copy.
"""
