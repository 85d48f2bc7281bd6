"""Which cases run code that differs: pairs of small projects, surveyed as the gate does."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from changed_projects import BOTH, FIRST, PROJECT, SECOND, Change

CHANGES = {
    "nothing": Change(
        base="",
        head="",
        reached=set(),
    ),
    "a body": Change(
        base="",
        head="""
## pkg/b.py
def run():
    return 2 - 1
""",
        reached={SECOND},
    ),
    "a comment": Change(
        base="",
        head="""
## pkg/a.py
def run():
    return 1
# comment
""",
        reached=set(),
    ),
    "a global of one of two equal files": Change(
        base="""
## pkg/a.py
K = 1

def run():
    return K
## pkg/b.py
K = 1

def run():
    return K
""",
        head="""
## pkg/b.py
K = 2

def run():
    return K
""",
        reached={SECOND},
    ),
    "a global": Change(
        base="""
## pkg/a.py
K = 1

def run():
    return K
""",
        head="""
## pkg/a.py
K = 2

def run():
    return K
""",
        reached={FIRST},
    ),
    "a global of a condition": Change(
        base="""
## pkg/a.py
from pkg.c import FAST
if FAST:
    K = []
else:
    K = ()

def run():
    len(K)
## pkg/c.py
FAST = True
""",
        head="""
## pkg/c.py
FAST = False
""",
        reached=BOTH,
    ),
    "a function of data that two tests pass": Change(
        base="""
## bench/test_x.py
from pkg import a, b

DATA = [1]

def test_first(benchmark):
    benchmark(a.run, DATA)

def test_second(benchmark):
    benchmark(b.run, DATA)
## pkg/a.py
def run(data):
    return 1
## pkg/b.py
def run(data):
    return 1
""",
        head="""
## pkg/a.py
def run(data):
    return 2 - 1
""",
        reached={FIRST},
    ),
    "a function of a condition": Change(
        base="""
## pkg/a.py
from pkg.c import fast
if fast():
    K = []
else:
    K = ()

def run():
    len(K)
## pkg/c.py
def fast():
    return True
""",
        head="""
## pkg/c.py
def fast():
    return False
""",
        reached=BOTH,
    ),
    "a module that one side alone has": Change(
        base="""
## pkg/a.py
try:
    from pkg import fast
    FAST = True
except ImportError:
    FAST = False

def run():
    bool(FAST)
""",
        head="""
## pkg/fast.py
""",
        reached=BOTH,
    ),
    "an attribute that another module sets": Change(
        base="""
## pkg/a.py
LIMIT = 1

def run():
    bool(LIMIT)
""",
        head="""
## pkg/b.py
from pkg import a
a.LIMIT = 2

def run():
    return 1
""",
        reached=BOTH,
    ),
    "an item that another module sets": Change(
        base="""
## pkg/a.py
T = {}

def run():
    len(T)
## pkg/b.py
import pkg.a
pkg.a.T[1] = 1

def run():
    return 1
""",
        head="""
## pkg/b.py
import pkg.a
pkg.a.T[1] = 2

def run():
    return 1
""",
        reached=BOTH,
    ),
    "what a function sets at an import": Change(
        base="""
## pkg/a.py
LIMIT = 1

def run():
    bool(LIMIT)
## pkg/b.py
from pkg import a

def patch():
    a.LIMIT = 2
patch()

def run():
    return 1
""",
        head="""
## pkg/b.py
from pkg import a

def patch():
    a.LIMIT = 3
patch()

def run():
    return 1
""",
        reached=BOTH,
    ),
    "a global that a function makes at an import": Change(
        base="""
## pkg/a.py
def start():
    global LIMIT
    LIMIT = 1
start()

def run():
    bool(LIMIT)
""",
        head="""
## pkg/a.py
def start():
    global LIMIT
    LIMIT = 2
start()

def run():
    bool(LIMIT)
""",
        reached=BOTH,
    ),
    "what a method sets at an import": Change(
        base="""
## pkg/a.py
from pkg.c import settings

def run():
    bool(settings.rate)
## pkg/b.py
from pkg import c
c.settings.load()

def run():
    return 1
## pkg/c.py
class Settings:

    def load(self):
        self.rate = 1
settings = Settings()
""",
        head="""
## pkg/c.py
class Settings:

    def load(self):
        self.rate = 2
settings = Settings()
""",
        reached=BOTH,
    ),
    "a class in a registry of classes": Change(
        base="""
## pkg/a.py
class Plugin:
    known = []

    def __init_subclass__(cls):
        Plugin.known.append(cls)

def run():
    len(Plugin.known)
""",
        head="""
## pkg/a.py
class Plugin:
    known = []

    def __init_subclass__(cls):
        Plugin.known.append(cls)

def run():
    len(Plugin.known)

class Other(Plugin):
    pass
""",
        reached=BOTH,
    ),
    "the order of registrations": Change(
        base="""
## pkg/a.py
known = []

def run():
    for f in known:
        pass

@known.append
def one():
    pass

@known.append
def two():
    pass
""",
        head="""
## pkg/a.py
known = []

def run():
    for f in known:
        pass

@known.append
def two():
    pass

@known.append
def one():
    pass
""",
        reached=BOTH,
    ),
    "the order of classes that a base registers": Change(
        base="""
## pkg/a.py
class Plugin:
    known = []

    def __init_subclass__(cls):
        Plugin.known.append(cls)

class First(Plugin):
    pass

class Second(Plugin):
    pass

def run():
    len(Plugin.known)
""",
        head="""
## pkg/a.py
class Plugin:
    known = []

    def __init_subclass__(cls):
        Plugin.known.append(cls)

class Second(Plugin):
    pass

class First(Plugin):
    pass

def run():
    len(Plugin.known)
""",
        reached=BOTH,
    ),
    "the order of a registration and a read": Change(
        base="""
## pkg/a.py
known = []
N = len(known)
known.append(1)

def run():
    bool(N)
""",
        head="""
## pkg/a.py
known = []
known.append(1)
N = len(known)

def run():
    bool(N)
""",
        reached={FIRST},
    ),
    "a dunder that is no function": Change(
        base="""
## pkg/a.py
from pkg.c import X

def run():
    hash(X.make())
## pkg/c.py
class X:

    def make():
        return X()
""",
        head="""
## pkg/c.py
class X:
    __slots__ = ()

    def make():
        return X()
""",
        reached=BOTH,
    ),
    "what a star import brings": Change(
        base="""
## pkg/a.py
from pkg.c import *
from pkg.d import *

def run():
    bool(LIMIT)
## pkg/c.py
LIMIT = 1
## pkg/d.py
__all__ = ["LIMIT"]
LIMIT = 2
""",
        head="""
## pkg/d.py
__all__ = []
LIMIT = 2
""",
        reached=BOTH,
    ),
    "the order of star imports": Change(
        base="""
## pkg/a.py
from pkg.c import *
from pkg.d import *

def run():
    bool(LIMIT)
## pkg/c.py
LIMIT = 1
## pkg/d.py
LIMIT = 2
""",
        head="""
## pkg/a.py
from pkg.d import *
from pkg.c import *

def run():
    bool(LIMIT)
""",
        reached=BOTH,
    ),
    "a table of a module that a case imports": Change(
        base="""
## pkg/a.py
def run():
    from pkg import c
    len(c.T)
## pkg/b.py
def run():
    from pkg import c
    len(c.T)
## pkg/c.py
from pkg.d import f
T = [f(1)]
## pkg/d.py
def f(x):
    return x
""",
        head="""
## pkg/d.py
def f(x):
    return [x]
""",
        reached=BOTH,
    ),
    "a file that a module reads which a case imports": Change(
        base="""
## pkg/a.py
def run():
    from pkg import c
    len(c.T)
## pkg/b.py
def run():
    from pkg import c
    len(c.T)
## pkg/c.py
T = [open("t.txt").read()]
## t.txt
1
""",
        head="""
## t.txt
2
""",
        reached=BOTH,
    ),
    "a global that an earlier test fills": Change(
        base="""
## pkg/a.py
from pkg.c import get

def run():
    len(get())
## pkg/b.py
from pkg.c import get

def run():
    len(get())
## pkg/c.py
_T = None

def get():
    global _T
    if _T is None:
        _T = make()
    return _T

def make():
    return [1]
""",
        head="""
## pkg/c.py
_T = None

def get():
    global _T
    if _T is None:
        _T = make()
    return _T

def make():
    return (1,)
""",
        reached=BOTH,
    ),
    "a cache that an earlier test fills": Change(
        base="""
## pkg/a.py
from pkg.c import get

def run():
    len(get(1))
## pkg/b.py
from pkg.c import get

def run():
    len(get(1))
## pkg/c.py
_T = {}

def get(x):
    if x not in _T:
        _T[x] = Maker().make()
    return _T[x]

class Maker:

    def make(self):
        return [1]
""",
        head="""
## pkg/c.py
_T = {}

def get(x):
    if x not in _T:
        _T[x] = Maker().make()
    return _T[x]

class Maker:

    def make(self):
        return (1,)
""",
        reached=BOTH,
    ),
    "an attribute that an earlier test fills": Change(
        base="""
## pkg/a.py
from pkg.c import thing

def run():
    len(thing.value)
## pkg/b.py
from pkg.c import thing

def run():
    len(thing.value)
## pkg/c.py
class Thing:
    _value = None

    @property
    def value(self):
        if self._value is None:
            self._value = make()
        return self._value

def make():
    return [1]
thing = Thing()
""",
        head="""
## pkg/c.py
class Thing:
    _value = None

    @property
    def value(self):
        if self._value is None:
            self._value = make()
        return self._value

def make():
    return (1,)
thing = Thing()
""",
        reached=BOTH,
    ),
    "a cached function that calls a method": Change(
        base="""
## pkg/a.py
from pkg.c import get

def run():
    len(get(1))
## pkg/b.py
from pkg.c import get

def run():
    len(get(1))
## pkg/c.py
import functools

@functools.cache
def get(x):
    return Maker().make()

class Maker:

    def make(self):
        return [1]
""",
        head="""
## pkg/c.py
import functools

@functools.cache
def get(x):
    return Maker().make()

class Maker:

    def make(self):
        return (1,)
""",
        reached=BOTH,
    ),
    "a fixture that a test asks for by its name": Change(
        base="""
## bench/test_x.py
from pkg import a, b

def test_first(benchmark, request):
    request.getfixturevalue("other")
    benchmark(a.run)

def test_second(benchmark):
    benchmark(b.run)
## bench/conftest.py
import pytest

@pytest.fixture
def other():
    return helper()

def helper():
    return 1
""",
        head="""
## bench/conftest.py
import pytest

@pytest.fixture
def other():
    return helper()

def helper():
    return 2
""",
        reached={FIRST},
    ),
    "names from dir": Change(
        base="""
## pkg/a.py
from pkg import c

def run():
    len(dir(c))
## pkg/c.py
A = 1
""",
        head="""
## pkg/c.py
A = 1
B = 2
""",
        reached={FIRST},
    ),
    "a Python file that is read as data": Change(
        base="""
## pkg/a.py
def run():
    len(open("pkg/c.py").read())
## pkg/c.py
A = 1
""",
        head="""
## pkg/c.py
A = 2
""",
        reached={FIRST},
    ),
    "a file with a name of bytes": Change(
        base="""
## pkg/a.py
def run():
    len(open(b"t.txt").read())
## t.txt
1
""",
        head="""
## t.txt
2
""",
        reached={FIRST},
    ),
    "a database": Change(
        base="""
## pkg/a.py
import sqlite3

def run():
    sqlite3.connect("t.txt").close()
## t.txt
""",
        head="""
## t.txt
2
""",
        reached={FIRST},
    ),
    "a method of a computed name": Change(
        base="""
## pkg/a.py
class V:

    def go_a(self):
        return 1

    def go(self, x):
        return getattr(self, "go_" + x)()

def run():
    V().go("a")
""",
        head="""
## pkg/a.py
class V:

    def go_a(self):
        return 2

    def go(self, x):
        return getattr(self, "go_" + x)()

def run():
    V().go("a")
""",
        reached={FIRST},
    ),
    "the default of a fixture": Change(
        base="""
## bench/conftest.py
import pytest
K = 1

@pytest.fixture(autouse=True)
def around():
    return K
""",
        head="""
## bench/conftest.py
import pytest
K = 2

@pytest.fixture(autouse=True)
def around():
    return K
""",
        reached=BOTH,
    ),
}


def test_a_function_that_differs_is_the_first_reason(surveyor):
    text = """
def run():
    return [{}(number) for number in range(3)] and used()

def used():
    return K

K = {}
"""
    base = {**PROJECT, "pkg/a.py": text.format("abs", 1)}
    head = {**base, "pkg/a.py": text.format("int", 2)}
    reasons = surveyor.reached(base, head).reasons[FIRST]
    assert reasons[0] == "runs pkg/a.py:run (changed)"
    assert any("which uses K" in reason for reason in reasons)


def test_a_compiled_module_that_differs_reaches_all(surveyor):
    compiled = Path(importlib.import_module("_random").__file__)
    projects = []
    for more_bytes in (b"", b"another build"):
        tree = surveyor.write(
            {**PROJECT, "pkg/a.py": "import pkg._random\n\ndef run():\n    return 1\n"}
        )
        copied = tree / "pkg" / compiled.name
        copied.write_bytes(compiled.read_bytes() + more_bytes)
        projects.append(tree)
    reasons = surveyor.compared(*projects).reasons
    assert {*reasons} == BOTH
    # That the system opens its file says no more, nor is it data of a test.
    assert reasons[SECOND] == (f"the project loads pkg/{compiled.name} (changed)",)


@pytest.mark.parametrize("name", CHANGES)
def test_cases_that_run_what_differs_are_reached(surveyor, name):
    change = CHANGES[name]
    reach = surveyor.reached(*change.sides)
    assert {*reach.reasons} == change.reached, reach.reasons
    assert {*reach.same} == BOTH - change.reached
