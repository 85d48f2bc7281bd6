"""Cache misses and time of loops in several orders.

Question: how does the order of the loops change the cache misses, and do the misses tell which
order is fastest? Input: sizes of a matrix product and of a convolution, and two caches
(``caches``). Output: accesses, hits and misses of each loop nest, its time, and its rank by both.

``loops`` are to be read. ``nests`` gives them shapes. ``measurement`` runs them on stand-ins for
arrays that count misses. ``compiled`` compiles the same functions with numba, and times them.
``study`` ranks the nests by misses and by time.
"""
