"""Small Python projects with benchmarks, drawn at random, and changes of them.

A project is a mapping of paths to texts: a package whose modules use one another in many ways, and
tests with the fixture ``benchmark``. Each part of a module is a template whose function takes a
number and returns one. ``A`` and ``B`` are small numbers, ``NAME`` is the function, ``CALL`` a
function of an earlier part, ``MODULE`` the module of that.
"""

from __future__ import annotations

import ast
import copy
import re
from dataclasses import dataclass
from random import Random

TESTS = "bench/test_cases.py"
CONFTEST = "bench/conftest.py"
DATA = "pkg/data.json"

_MODULES = ("m0", "m1", "m2", "m3")
#: Modules of the standard library that the templates use.
_LIBRARY = (
    "abc",
    "asyncio",
    "collections",
    "contextlib",
    "copy",
    "dataclasses",
    "decimal",
    "enum",
    "functools",
    "gc",
    "importlib",
    "json",
    "operator",
    "os",
    "pathlib",
    "pkgutil",
    "sys",
    "threading",
    "types",
    "typing",
)

_TEMPLATES = {
    "function": """
def NAME(x):
    y = x * A + B
    if y > 10:
        return CALL(y % 7)
    return CALL(y)
""",
    "two functions": """
def NAME_inner(x):
    return CALL(x) - A

def NAME(x):
    total = 0
    for i in range(x % 3):
        total += NAME_inner(i)
    return total
""",
    "function of another path": """
def NAME_rare(x):
    return CALL(x)

def NAME(x):
    if x < 0:
        return NAME_rare(x)
    return x + A
""",
    "defaults": """
def NAME(x, y=A, *, z=B):
    return CALL(x + y) - z
""",
    "default of a call": """
def NAME(x, y=CALL(A)):
    return x + y
""",
    "global": """
NAME_K = A

def NAME(x):
    return CALL(x) + NAME_K
""",
    "table": """
NAME_T = {i: CALL(i) for i in range(A + 1)}

def NAME(x):
    return NAME_T.get(x, B)
""",
    "table in a loop": """
NAME_T = {}
for _i in range(A + 1):
    NAME_T[_i] = CALL(_i) + B

def NAME(x):
    return NAME_T.get(x, 0)
""",
    "table of functions": """
def NAME_one(x):
    return x + A

def NAME_two(x):
    return CALL(x) + B

NAME_OPS = [NAME_one, NAME_two]

def NAME(x):
    return NAME_OPS[x % 2](x)
""",
    "class": """
class NAMEBase:
    rate = A

    def go(self, x):
        return x + self.rate

    @property
    def size(self):
        return CALL(self.rate)

class NAMEKid(NAMEBase):
    def __init__(self, x):
        self.x = x

    def run(self):
        return self.go(self.x) + self.size

def NAME(x):
    return NAMEKid(x).run()
""",
    "super": """
class NAMEBase:
    def go(self, x):
        return CALL(x)

class NAMEMixin:
    def go(self, x):
        return super().go(x) + A

class NAMEKid(NAMEMixin, NAMEBase):
    pass

def NAME(x):
    return NAMEKid().go(x)
""",
    "class and static methods": """
class NAMEThing:
    step = A

    @classmethod
    def make(cls, x):
        return cls.scale(x) + cls.step

    @staticmethod
    def scale(x):
        return CALL(x) * B

def NAME(x):
    return NAMEThing.make(x)
""",
    "class attribute of another class": """
class NAMEConfig:
    limit = A
    other = B

def NAME(x):
    return CALL(min(x, NAMEConfig.limit))
""",
    "nested class": """
class NAMEOuter:
    class Inner:
        value = A

        def get(self):
            return CALL(self.value)

def NAME(x):
    return NAMEOuter.Inner().get() + x
""",
    "closure": """
def NAME_make(n):
    def inner(x):
        return CALL(x) + n
    return inner

NAME = NAME_make(A)
""",
    "decorator": """
def NAME_twice(function):
    @functools.wraps(function)
    def wrapper(x):
        return function(function(x) % 5)
    return wrapper

@NAME_twice
def NAME(x):
    return CALL(x) + A
""",
    "decorator with arguments": """
def NAME_adding(n):
    def decorate(function):
        def wrapper(*args):
            return function(*args) + n
        return wrapper
    return decorate

@NAME_adding(A)
def NAME(x):
    return CALL(x)
""",
    "lambda": """
NAME = lambda x: CALL(x) + A
""",
    "lambda as key": """
def NAME(x):
    return sorted(range(x % 5 + 1), key=lambda i: CALL(i) % (A + 1))[0]
""",
    "partial": """
def NAME_add(n, x):
    return CALL(x) + n

NAME = functools.partial(NAME_add, A)
""",
    "lru_cache": """
@functools.lru_cache
def NAME(x):
    return CALL(x) + A
""",
    "own cache": """
NAME_CACHE = {}

def NAME(x):
    if x not in NAME_CACHE:
        NAME_CACHE[x] = CALL(x) + A
    return NAME_CACHE[x]
""",
    "lazy global": """
_NAME_value = None

def NAME_build():
    return [CALL(i) for i in range(A + 1)]

def NAME(x):
    global _NAME_value
    if _NAME_value is None:
        _NAME_value = NAME_build()
    return _NAME_value[x % len(_NAME_value)]
""",
    "lazy attribute": """
class NAMELazy:
    def __init__(self):
        self._value = None

    def value(self):
        if self._value is None:
            self._value = CALL(A)
        return self._value

NAME_lazy = NAMELazy()

def NAME(x):
    return NAME_lazy.value() + x
""",
    "lazy class attribute": """
class NAMESingle:
    instance = None

    def __init__(self):
        self.number = CALL(A)

    @classmethod
    def get(cls):
        if cls.instance is None:
            cls.instance = cls()
        return cls.instance

def NAME(x):
    return NAMESingle.get().number + x
""",
    "cached property": """
class NAMEThing:
    @functools.cached_property
    def value(self):
        return CALL(A)

NAME_thing = NAMEThing()

def NAME(x):
    return NAME_thing.value + x
""",
    "generator": """
def NAME_items(n):
    for i in range(n):
        yield CALL(i) + A

def NAME(x):
    return sum(NAME_items(x % 4))
""",
    "generator expression": """
def NAME(x):
    return sum(CALL(i) + A for i in range(x % 4))
""",
    "coroutine": """
async def NAME_wait(x):
    await asyncio.sleep(0)
    return CALL(x) + A

def NAME(x):
    return asyncio.run(NAME_wait(x))
""",
    "__getattr__": """
class NAMEProxy:
    def __init__(self, target):
        self.target = target

    def __getattr__(self, name):
        return getattr(self.target, name)

class NAMETarget:
    def go(self, x):
        return CALL(x) + A

def NAME(x):
    return NAMEProxy(NAMETarget()).go(x)
""",
    "__getattr__ of a module": """
def __getattr__(name):
    if name.startswith("made_"):
        return lambda x: CALL(x) + A
    raise AttributeError(name)

def NAME(x):
    return getattr(sys.modules[__name__], "made_NAME")(x)
""",
    "dataclass": """
@dataclasses.dataclass(order=True)
class NAMEPoint:
    x: int
    y: int = A

    def __post_init__(self):
        self.y += CALL(self.x)

def NAME(x):
    return max(NAMEPoint(x), NAMEPoint(x + 1)).y
""",
    "field factory": """
def NAME_default():
    return [CALL(A)]

@dataclasses.dataclass
class NAMEBag:
    items: list = dataclasses.field(default_factory=NAME_default)

def NAME(x):
    return NAMEBag().items[0] + x
""",
    "enum": """
class NAMEColor(enum.Enum):
    RED = A
    BLUE = B + 10

    @property
    def twice(self):
        return CALL(self.value)

def NAME(x):
    return NAMEColor.RED.twice + len(NAMEColor)
""",
    "namedtuple": """
class NAMEPair(typing.NamedTuple):
    left: int
    right: int = A

    def total(self):
        return CALL(self.left) + self.right

def NAME(x):
    return NAMEPair(x).total()
""",
    "registry by decorator": """
NAME_REGISTRY = {}

def NAME_register(function):
    NAME_REGISTRY[function.__name__] = function
    return function

@NAME_register
def NAME_first(x):
    return CALL(x) + A

@NAME_register
def NAME_second(x):
    return x + B

def NAME(x):
    return sum(function(x) for function in NAME_REGISTRY.values())
""",
    "registry by call": """
NAME_HANDLERS = []

def NAME_handle(x):
    return CALL(x) + A

def NAME_add(handler, weight=1):
    NAME_HANDLERS.append((handler, weight))

NAME_add(NAME_handle)
NAME_add(abs, B)

def NAME(x):
    return sum(weight * handler(x) for handler, weight in NAME_HANDLERS)
""",
    "registry of an object": """
class NAMERegistry:
    def __init__(self):
        self.items = []

    def add(self, item):
        self.items.append(item)
        return item

NAME_registry = NAMERegistry()

@NAME_registry.add
def NAME_item(x):
    return CALL(x) + A

def NAME(x):
    return sum(item(x) for item in NAME_registry.items)
""",
    "__init_subclass__": """
class NAMEPlugin:
    known = []

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        NAMEPlugin.known.append(cls)

class NAMEPluginA(NAMEPlugin):
    def go(self, x):
        return CALL(x) + A

class NAMEPluginB(NAMEPlugin):
    def go(self, x):
        return x - B

def NAME(x):
    return sum(plugin().go(x) for plugin in NAMEPlugin.known)
""",
    "__subclasses__": """
class NAMEShape:
    weight = 1

class NAMESquare(NAMEShape):
    weight = A

def NAME(x):
    return CALL(x) + sum(kind.weight for kind in NAMEShape.__subclasses__())
""",
    "metaclass": """
class NAMEMeta(type):
    def __new__(mcls, name, bases, namespace):
        made = super().__new__(mcls, name, bases, namespace)
        made.added = CALL(A)
        return made

    def __call__(cls, x):
        return cls.added + x + B

class NAMEMade(metaclass=NAMEMeta):
    pass

def NAME(x):
    return NAMEMade(x)
""",
    "descriptor": """
class NAMEField:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner):
        return CALL(getattr(instance, self.name)) + A

    def __set__(self, instance, value):
        setattr(instance, self.name, value + B)

class NAMERecord:
    value = NAMEField()

def NAME(x):
    record = NAMERecord()
    record.value = x
    return record.value
""",
    "operators": """
class NAMENumber:
    def __init__(self, n):
        self.n = n

    def __add__(self, other):
        return NAMENumber(self.n + CALL(other.n))

    def __len__(self):
        return A

    def __bool__(self):
        return self.n > B

    def __lt__(self, other):
        return self.n < other.n

    def __iter__(self):
        yield self.n
        yield A

def NAME(x):
    result = sum([NAMENumber(x), NAMENumber(1)], NAMENumber(0))
    biggest = max([NAMENumber(x), result])
    return sum(biggest) + len(result) + bool(result)
""",
    "equality": """
class NAMEKey:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n % (A + 1) == other.n % (A + 1)

    def __hash__(self):
        return CALL(self.n % (A + 1))

def NAME(x):
    return len({NAMEKey(i) for i in range(x % 6)})
""",
    "callable object": """
class NAMECaller:
    def __call__(self, x):
        return CALL(x) + A

NAME = NAMECaller()
""",
    "object at import": """
class NAMEThing:
    def __init__(self, n):
        self.n = CALL(n)

    def go(self, x):
        return self.n + x

NAME_thing = NAMEThing(A)

def NAME(x):
    return NAME_thing.go(x)
""",
    "bound method": """
class NAMEAdder:
    def __init__(self, n):
        self.n = n

    def add(self, x):
        return CALL(x) + self.n

NAME = NAMEAdder(A).add
""",
    "slots": """
class NAMESlot:
    __slots__ = ("left", "right")

    def __init__(self, x):
        self.left = CALL(x)
        self.right = A

def NAME(x):
    return sum(getattr(NAMESlot(x), name) for name in NAMESlot.__slots__)
""",
    "singledispatch": """
@functools.singledispatch
def NAME(x):
    return A

@NAME.register
def _(x: int):
    return CALL(x) + B

@NAME.register(str)
def _(x):
    return len(x)
""",
    "context manager": """
class NAMEScope:
    depth = 0

    def __enter__(self):
        NAMEScope.depth += A
        return NAMEScope.depth

    def __exit__(self, *error):
        NAMEScope.depth = 0

def NAME(x):
    with NAMEScope() as depth:
        return CALL(x) + depth
""",
    "contextlib": """
@contextlib.contextmanager
def NAME_scope(n):
    yield CALL(n)

def NAME(x):
    with NAME_scope(A) as value:
        return value + x
""",
    "exceptions": """
class NAMEError(Exception):
    code = A

class NAMESpecialError(NAMEError):
    pass

def NAME_check(x):
    if x % 2:
        raise NAMESpecialError
    return CALL(x)

def NAME(x):
    try:
        return NAME_check(x)
    except NAMEError as error:
        return error.code
""",
    "thread": """
def NAME_work(x, results):
    results.append(CALL(x) + A)

def NAME(x):
    results = []
    thread = threading.Thread(target=NAME_work, args=(x, results))
    thread.start()
    thread.join()
    return results[0]
""",
    "reduce": """
def NAME_step(a, b):
    return (a + CALL(b)) % (A + 9)

def NAME(x):
    return functools.reduce(NAME_step, range(x % 5), 0)
""",
    "data file": """
def NAME(x):
    path = pathlib.Path(__file__).with_name("data.json")
    return CALL(x) + json.loads(path.read_text())["number"] + A
""",
    "data file at import": """
with open(pathlib.Path(__file__).with_name("data.json")) as _stream:
    NAME_DATA = json.load(_stream)

def NAME(x):
    return CALL(x) + NAME_DATA["number"] + A
""",
    "importlib": """
def NAME(x):
    module = importlib.import_module(MODULE)
    return getattr(module, "CALLEE", abs)(x) + A
""",
    "importlib at import": """
NAME_module = importlib.import_module(MODULE)

def NAME(x):
    return getattr(NAME_module, "CALLEE", abs)(x) + A
""",
    "computed name": """
def NAME_do_even(x):
    return CALL(x) + A

def NAME_do_odd(x):
    return x - B

def NAME(x):
    return globals()["NAME_do_" + ("odd" if x % 2 else "even")](x)
""",
    "method by computed name": """
class NAMEVisitor:
    def visit_even(self, x):
        return CALL(x) + A

    def visit_odd(self, x):
        return x - B

    def visit(self, x):
        return getattr(self, "visit_" + ("odd" if x % 2 else "even"))(x)

def NAME(x):
    return NAMEVisitor().visit(x)
""",
    "deepcopy": """
class NAMENode:
    def __init__(self, x):
        self.x = x

    def __deepcopy__(self, memo):
        return NAMENode(CALL(self.x) + A)

def NAME(x):
    return copy.deepcopy([NAMENode(x)])[0].x
""",
    "format": """
class NAMEText:
    def __format__(self, spec):
        return "x" * (CALL(len(spec)) % 9 + A)

def NAME(x):
    return len(f"{NAMEText():{'a' * (x % 3)}}")
""",
    "constants of a class": """
class NAMEUnits:
    KILO = A
    MEGA = KILO * B

    table = {"k": KILO, "m": MEGA}

def NAME(x):
    return CALL(x) + sum(NAMEUnits.table.values())
""",
    "monkeypatch at import": """
class NAMETarget:
    def go(self, x):
        return x

def NAME_better(self, x):
    return CALL(x) + A

NAMETarget.go = NAME_better

def NAME(x):
    return NAMETarget().go(x)
""",
    "setattr at import": """
class NAMETarget:
    pass

for _name, _value in {"left": A, "right": B}.items():
    setattr(NAMETarget, _name, _value)

def NAME(x):
    return CALL(x) + NAMETarget.left
""",
    "type()": """
def NAME_go(self, x):
    return CALL(x) + A

NAMEMade = type("NAMEMade", (), {"go": NAME_go, "extra": B})

def NAME(x):
    return NAMEMade().go(x) + NAMEMade.extra
""",
    "condition": """
if sys.version_info >= (3, A):
    NAME_LIMIT = A

    def NAME(x):
        return CALL(x) + NAME_LIMIT
else:
    def NAME(x):
        return B
""",
    "try": """
try:
    import json as NAME_json
except ImportError:
    NAME_json = None

def NAME(x):
    return CALL(x) + len(NAME_json.dumps([A] * B))
""",
    "counter": """
NAME_count = 0

def NAME(x):
    global NAME_count
    NAME_count += A
    return CALL(x)
""",
    "match": """
def NAME(x):
    match x % 4:
        case 0:
            return CALL(x)
        case 1 | 2:
            return A
        case other:
            return other + B
""",
    "alias": """
def NAME_original(x):
    return CALL(x) + A

NAME = NAME_original
""",
    "abstract class": """
class NAMEAbstract(abc.ABC):
    @abc.abstractmethod
    def part(self, x): ...

    def whole(self, x):
        return self.part(x) + A

class NAMEConcrete(NAMEAbstract):
    def part(self, x):
        return CALL(x) - B

def NAME(x):
    return NAMEConcrete().whole(x)
""",
    "iterator": """
class NAMECount:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if not self.n:
            raise StopIteration
        self.n -= 1
        return CALL(self.n) + A

def NAME(x):
    return sum(NAMECount(x % 4))
""",
    "defaultdict": """
def NAME_missing():
    return CALL(A)

def NAME(x):
    return collections.defaultdict(NAME_missing)[x]
""",
    "attrgetter": """
class NAMEThing:
    weight = A
    height = B

NAME_get = operator.attrgetter("weight")

def NAME(x):
    return CALL(x) + NAME_get(NAMEThing)
""",
    "submodules": """
def NAME(x):
    package = sys.modules["pkg"]
    names = sorted(info.name for info in pkgutil.iter_modules(package.__path__))
    return CALL(x) + len(names) + A
""",
    "namespace": """
NAME_settings = types.SimpleNamespace(rate=A, other=B)

def NAME(x):
    return CALL(x) + NAME_settings.rate
""",
    "settings of another part": """
class NAMESettings:
    def __init__(self):
        self.rate = B

    def update(self, **values):
        self.__dict__.update(values)

NAME_settings = NAMESettings()
NAME_settings.update(rate=A)

def NAME(x):
    return CALL(x) + NAME_settings.rate
""",
    "registry by classmethod": """
class NAMERegistry:
    known = []

    @classmethod
    def register(cls, *values):
        cls.known.extend(values)

NAMERegistry.register(A, B)

def NAME(x):
    return CALL(x) + sum(NAMERegistry.known)
""",
    "registry by operator": """
class NAMEStep:
    def __init__(self):
        self.after = []

    def __rshift__(self, other):
        self.after.append(other)
        return other

NAME_first = NAMEStep()
NAME_first >> A
NAME_last = NAME_first >> B

def NAME(x):
    return CALL(x) + NAME_first.after[0] + len(NAME_first.after)
""",
    "registry by condition": """
NAME_VALUES = []

def NAME_add(*values):
    NAME_VALUES.extend(values)
    return True

if not NAME_add(A, B):
    raise RuntimeError

def NAME(x):
    return CALL(x) + sum(NAME_VALUES)
""",
    "registry of a closure": """
def NAME_make():
    values = []

    def register(*more):
        values.extend(more)

    return register, values

NAME_register, NAME_VALUES = NAME_make()
NAME_register(A, B)

def NAME(x):
    return CALL(x) + sum(NAME_VALUES)
""",
    "registry behind a function": """
_NAME_values = []

def NAME_values():
    return _NAME_values

NAME_table = NAME_values()
NAME_table.append(A)

def NAME(x):
    return CALL(x) + sum(NAME_values())
""",
    "patch of a module": """
NAME_K = A

def NAME_patch():
    sys.modules[__name__].NAME_K = B

NAME_patch()

def NAME(x):
    return CALL(x) + NAME_K
""",
    "attribute of a function": """
def NAME_inner(x, y=A):
    return CALL(x) + y

NAME_inner.__defaults__ = (B,)

def NAME(x):
    return NAME_inner(x)
""",
    "context of decimal": """
NAME_context = decimal.getcontext()
NAME_context.prec = A + 20

def NAME(x):
    return CALL(x) + len(str(decimal.Decimal(1) / 3))
""",
    "garbage collector": """
def NAME_configure():
    gc.set_threshold(700 + A)

NAME_configure()

def NAME(x):
    return CALL(x) + B
""",
    "environment": """
os.environ["NAME"] = str(A)

def NAME(x):
    return CALL(x) + int(os.environ["NAME"])
""",
    "pool": """
NAME_POOL = []

def NAME_make():
    return [CALL(A)]

def NAME(x):
    taken = NAME_POOL.pop() if NAME_POOL else NAME_make()
    NAME_POOL.append(taken)
    return taken[0] + x
""",
    "memo in a closure": """
def NAME_remember(function):
    store = {}

    def wrapper(*args):
        if args not in store:
            store[args] = function(*args)
        return store[args]

    return wrapper

@NAME_remember
def NAME_value(n):
    return CALL(n) + A

def NAME(x):
    return NAME_value(B) + x
""",
    "table with __missing__": """
class NAMECache(dict):
    def __missing__(self, key):
        self[key] = value = CALL(key) + A
        return value

NAME_T = NAMECache()

def NAME(x):
    return NAME_T[B] + x
""",
    "table with a default factory": """
def NAME_make():
    return CALL(A)

NAME_T = collections.defaultdict(NAME_make)

def NAME(x):
    return NAME_T[B] + x
""",
    "setdefault": """
NAME_T = {}

def NAME_make():
    return [CALL(A)]

def NAME(x):
    return (NAME_T.get(B) or NAME_T.setdefault(B, NAME_make()))[0] + x
""",
    "lazy names of a module": """
_NAME_LAZY = {"NAME_late": A}

def NAME_load(name):
    globals()[name] = _NAME_LAZY[name]

def NAME(x):
    if "NAME_late" not in globals():
        NAME_load("NAME_late")
    return CALL(x) + NAME_late
""",
    "cached code that exec makes": """
@functools.cache
def NAME_compiled():
    names = {}
    exec("def made(x):\\n    return x + A", names)
    return names["made"]

def NAME(x):
    return NAME_compiled()(CALL(x))
""",
    "exec at import": """
exec("NAME_K = A", globals())

def NAME(x):
    return CALL(x) + NAME_K
""",
    "cached loader": """
@functools.cache
def NAME_data():
    return json.loads(pathlib.Path(__file__).with_name("data.json").read_text())

def NAME(x):
    return CALL(x) + NAME_data()["number"]
""",
    "loader into a global": """
_NAME_data = None

def NAME(x):
    global _NAME_data
    if _NAME_data is None:
        with open(pathlib.Path(__file__).with_name("data.json")) as stream:
            _NAME_data = json.load(stream)
    return CALL(x) + _NAME_data["number"] + A
""",
    "virtual subclass": """
class NAMEBase(abc.ABC):
    rate = A

class NAMEOther:
    rate = B

NAMEBase.register(NAMEOther)

def NAME(x):
    return CALL(x) + isinstance(NAMEOther(), NAMEBase)
""",
    "class decorator": """
NAME_KNOWN = []

def NAME_keep(cls):
    NAME_KNOWN.append(cls)
    return cls

@NAME_keep
class NAMEKept:
    rate = A

def NAME(x):
    return CALL(x) + sum(cls.rate for cls in NAME_KNOWN)
""",
}

_TESTS_HEADER = """
import importlib

import pytest
"""

_TEST_TEMPLATES = (
    """
def test_NUMBER(benchmark):
    benchmark(CALL, ARGUMENT)
""",
    """
def test_NUMBER(benchmark):
    benchmark(lambda: CALL(ARGUMENT))
""",
    """
def test_NUMBER(benchmark, number):
    benchmark(CALL, number)
""",
    """
def test_NUMBER(benchmark, table):
    benchmark(CALL, table[1])
""",
    """
def test_NUMBER(benchmark, request):
    benchmark(CALL, request.getfixturevalue("number"))
""",
    """
LIMIT_NUMBER = ARGUMENT


def test_NUMBER(benchmark):
    benchmark(CALL, LIMIT_NUMBER)
""",
    """
def helper_NUMBER(x):
    return CALL(x) + 1


def test_NUMBER(benchmark):
    benchmark(helper_NUMBER, ARGUMENT)
""",
    """
class TestClassNUMBER:
    size = ARGUMENT

    def test_NUMBER(self, benchmark):
        benchmark(CALL, self.size)
""",
    """
@pytest.mark.parametrize("n", [1, 2])
def test_NUMBER(benchmark, n):
    benchmark(CALL, n)
""",
    """
def test_NUMBER(benchmark, monkeypatch):
    monkeypatch.setattr("pkg.m0.SHARED", ARGUMENT)
    benchmark(CALL, 3)
""",
)

_CONFTEST = """
import pytest

from pkg.m0 import SHARED


@pytest.fixture
def number():
    return SHARED + 1


@pytest.fixture(scope="session")
def table():
    return {i: i * SHARED for i in range(5)}


@pytest.fixture(autouse=True)
def around(request):
    yield
"""


@dataclass(frozen=True)
class Part:
    """A function of a module."""

    module: str
    name: str


def draw_project(random: Random, *, parts: int = 7, cases: int = 4) -> dict[str, str]:
    """Return a project: path -> text."""
    texts: dict[str, list[str]] = {module: [] for module in _MODULES}
    texts["m0"].append("SHARED = 2\n")
    written: list[Part] = []
    for number in range(parts):
        module = _MODULES[min(len(_MODULES) - 1, number * len(_MODULES) // parts)]
        part = Part(module, f"f{number}")
        texts[module].append(_part(random, part, written))
        written.append(part)
    files = {f"pkg/{module}.py": _with_imports("\n".join(texts[module])) for module in _MODULES}
    files["pkg/__init__.py"] = "".join(
        f"from pkg.{part.module} import {part.name}\n" for part in random.sample(written, 2)
    )
    files["pkg/api.py"] = "".join(f"from .{module} import *\n" for module in _MODULES)
    files[DATA] = '{"number": 3}\n'
    files[CONFTEST] = _CONFTEST
    files[TESTS] = _tests(random, written, cases)
    files["pytest.ini"] = "[pytest]\npythonpath = .\n"
    return files


def _with_imports(text: str) -> str:
    used = [module for module in _LIBRARY if re.search(rf"\b{module}\.", text)]
    return "".join(f"import {module}\n" for module in used) + text


def _part(random: Random, part: Part, written: list[Part]) -> str:
    kind = random.choice(sorted(_TEMPLATES))
    text = _TEMPLATES[kind]
    callee = random.choice(written[-4:]) if written and random.random() < 0.8 else None
    imports = ""
    call = random.choice(["abs", "int"])
    if callee:
        imports, call = _import(random, part.module, callee)
    if callee and random.random() < 0.1 and "lambda" not in kind and callee.module != part.module:
        imports = ""
        call = f'importlib.import_module("pkg.{callee.module}").{callee.name}'
    replacements = {
        "CALLEE": callee.name if callee else "abs",
        "MODULE": f'"pkg.{callee.module}"' if callee else '"builtins"',
        "CALL": call,
        "NAME": part.name,
    }
    for word, replacement in replacements.items():
        text = text.replace(word, replacement)
    text = re.sub(r"\bA\b", lambda _: str(random.randint(1, 4)), text)
    text = re.sub(r"\bB\b", lambda _: str(random.randint(1, 4)), text)
    return imports + text


def _import(random: Random, module: str, callee: Part) -> tuple[str, str]:
    """Return the statement that imports a function, and the expression for it."""
    if module == callee.module:
        return "", callee.name
    return random.choice(
        [
            (f"from pkg.{callee.module} import {callee.name}\n", callee.name),
            (f"from .{callee.module} import {callee.name}\n", callee.name),
            (
                f"from pkg.{callee.module} import {callee.name} as g_{callee.name}\n",
                f"g_{callee.name}",
            ),
            (f"from pkg import {callee.module}\n", f"{callee.module}.{callee.name}"),
            (f"from . import {callee.module} as mod\n", f"mod.{callee.name}"),
            (f"import pkg.{callee.module}\n", f"pkg.{callee.module}.{callee.name}"),
            (f"from pkg.{callee.module} import *\n", callee.name),
            (f"from .{callee.module} import *\n", callee.name),
            (f"from pkg import {callee.module}\n", f'getattr({callee.module}, "{callee.name}")'),
        ]
    )


def _tests(random: Random, written: list[Part], cases: int) -> str:
    text = _TESTS_HEADER
    called = random.sample(written, min(cases, len(written)))
    for number, part in enumerate(called):
        imports, call = random.choice(
            [
                (f"from pkg.{part.module} import {part.name}\n", part.name),
                (f"from pkg import {part.module}\n", f"{part.module}.{part.name}"),
                (f"import pkg.{part.module}\n", f"pkg.{part.module}.{part.name}"),
                (f"from pkg.api import {part.name}\n", part.name),
                ("from pkg import api\n", f"api.{part.name}"),
                ("", f'importlib.import_module("pkg.{part.module}").{part.name}'),
            ]
        )
        test = random.choice(_TEST_TEMPLATES)
        test = test.replace("CALL", call).replace("NUMBER", str(number))
        text += f"\n\n{imports}\n" + test.replace("ARGUMENT", str(random.randint(0, 6)))
    return text


# ---- Changes -------------------------------------------------------------------------------------


def draw_change(random: Random, files: dict[str, str]) -> tuple[dict[str, str], str]:
    """Return the files after one change of what they do, and a description of it."""
    modules = [f"pkg/{module}.py" for module in _MODULES]
    path = random.choice([*modules, *modules, *modules, "pkg/__init__.py", DATA, TESTS, CONFTEST])
    if path == DATA:
        return {**files, path: '{"number": 4}\n'}, "data"
    tree = ast.parse(files[path])
    changed = copy.deepcopy(tree)
    kinds = list(_CHANGES)
    random.shuffle(kinds)
    for kind in kinds:
        if _CHANGES[kind](random, changed):
            text = ast.unparse(ast.fix_missing_locations(changed)) + "\n"
            if text != ast.unparse(tree) + "\n":
                return {**files, path: text}, f"{path}: {kind}"
        changed = copy.deepcopy(tree)
    return dict(files), "nothing"


def draw_harmless_change(random: Random, files: dict[str, str]) -> tuple[dict[str, str], str]:
    """Return the files after a change of what no case sees, and a description of it."""
    path = f"pkg/{random.choice(_MODULES)}.py"
    tree = ast.parse(files[path])
    kind = random.choice(list(_HARMLESS_CHANGES))
    _HARMLESS_CHANGES[kind](random, tree)
    text = ast.unparse(ast.fix_missing_locations(tree))
    comment = random.choice(["", "# A comment.\n\n"])
    return {**files, path: f"{comment}{text}\n"}, f"{path}: {kind}"


def _change_nothing(random: Random, tree: ast.Module) -> None:
    """Leave the formatter's changes alone."""


def _add_docstrings(random: Random, tree: ast.Module) -> None:
    for node in (tree, *_nodes(tree, ast.FunctionDef, ast.ClassDef)):
        if random.random() < 0.5:
            node.body.insert(0, ast.Expr(ast.Constant("What it does.")))


def _add_annotations(random: Random, tree: ast.Module) -> None:
    for function in _nodes(tree, ast.FunctionDef):
        if not function.decorator_list:  # a decorator may read them
            for argument in function.args.args:
                argument.annotation = ast.Constant("int")


def _add_unused(random: Random, tree: ast.Module) -> None:
    text = "def unused_function(x):\n    return unused_limit + x\n\nunused_limit = 3\n"
    place = random.randrange(len(tree.body) + 1)
    tree.body[place:place] = ast.parse(text).body


def _sort_imports(random: Random, tree: ast.Module) -> None:
    """Change the order of imports of the standard library."""
    imports = [node for node in tree.body if isinstance(node, ast.Import)]
    imports = [node for node in imports if "." not in node.names[0].name]
    others = [node for node in tree.body if node not in imports]
    random.shuffle(imports)
    tree.body = [*imports, *others]


_HARMLESS_CHANGES = {
    "formatting": _change_nothing,
    "docstrings": _add_docstrings,
    "annotations": _add_annotations,
    "unused": _add_unused,
    "order of imports": _sort_imports,
}


def _blocks(tree: ast.Module) -> list[list[ast.stmt]]:
    """Return the lists of statements of a module that may be rearranged."""
    return [
        block
        for node in ast.walk(tree)
        for name in ("body", "orelse")
        if isinstance(block := getattr(node, name, None), list) and len(block) > 1
    ]


def _nodes(tree: ast.Module, *kinds: type[ast.AST]) -> list[ast.AST]:
    return [node for node in ast.walk(tree) if isinstance(node, kinds)]


def _change_constant(random: Random, tree: ast.Module) -> bool:
    constants = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and type(node.value) in (int, str)
    ]
    if not constants:
        return False
    constant = random.choice(constants)
    constant.value += 1 if isinstance(constant.value, int) else "x"
    return True


def _change_operator(random: Random, tree: ast.Module) -> bool:
    operations = _nodes(tree, ast.BinOp, ast.AugAssign)
    if not operations:
        return False
    operation = random.choice(operations)
    operation.op = ast.Sub() if isinstance(operation.op, ast.Add) else ast.Add()
    return True


def _change_name(random: Random, tree: ast.Module) -> bool:
    """Use another function of the module."""
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    loads = [node for node in _nodes(tree, ast.Name) if isinstance(node.ctx, ast.Load)]
    if not functions or not loads:
        return False
    random.choice(loads).id = random.choice([*functions, "abs"])
    return True


def _delete_statement(random: Random, tree: ast.Module) -> bool:
    blocks = _blocks(tree)
    if not blocks:
        return False
    block = random.choice(blocks)
    del block[random.randrange(len(block))]
    return True


def _repeat_statement(random: Random, tree: ast.Module) -> bool:
    blocks = _blocks(tree)
    if not blocks:
        return False
    block = random.choice(blocks)
    block.insert(random.randrange(len(block) + 1), random.choice(block))
    return True


def _swap_statements(random: Random, tree: ast.Module) -> bool:
    blocks = _blocks(tree)
    if not blocks:
        return False
    block = random.choice(blocks)
    place = random.randrange(len(block) - 1)
    block[place : place + 2] = reversed(block[place : place + 2])
    return True


def _change_decorators(random: Random, tree: ast.Module) -> bool:
    definitions = _nodes(tree, ast.FunctionDef, ast.ClassDef)
    if not definitions:
        return False
    definition = random.choice(definitions)
    if definition.decorator_list:
        del definition.decorator_list[random.randrange(len(definition.decorator_list))]
    else:
        tree.body[:0] = ast.parse("import functools\n").body
        kind = random.choice(["functools.lru_cache", "staticmethod", "property"])
        definition.decorator_list = [ast.parse(kind, mode="eval").body]
    return True


def _change_bases(random: Random, tree: ast.Module) -> bool:
    classes = _nodes(tree, ast.ClassDef)
    if not classes:
        return False
    definition = random.choice(classes)
    if definition.bases and random.random() < 0.5:
        del definition.bases[random.randrange(len(definition.bases))]
    else:
        tree.body[:0] = ast.parse(
            "class Added:\n    rate = 9\n    def go(self, x):\n        return 77\n"
        ).body
        definition.bases.insert(0, ast.Name("Added", ast.Load()))
    return True


def _add_method(random: Random, tree: ast.Module) -> bool:
    classes = _nodes(tree, ast.ClassDef)
    if not classes:
        return False
    name = random.choice(
        (
            "go",
            "run",
            "__getattribute__",
            "__init__",
            "__eq__",
            "__len__",
            "__bool__",
            "__call__",
            "__getattr__",
            "__init_subclass__",
            "__set_name__",
            "__hash__",
            "__iter__",
            "__add__",
            "__radd__",
            "__new__",
            "__del__",
        )
    )
    method = ast.parse(
        f"def {name}(self, *args, **options):\n    return super().{name}(*args, **options)\n"
        if random.random() < 0.5
        else f"def {name}(self, *args, **options):\n    return 1\n"
    ).body
    random.choice(classes).body.extend(method)
    return True


def _add_global(random: Random, tree: ast.Module) -> bool:
    """Bind a name of the module, or of builtins, once more."""
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    loads = [node.id for node in _nodes(tree, ast.Name) if isinstance(node.ctx, ast.Load)]
    name = random.choice([*names, *loads, "abs", "len", "sum"])
    text = random.choice(
        [
            f"def {name}(*args, **options):\n    return 5\n",
            f"{name} = lambda *args: 6\n",
            f"from builtins import abs as {name}\n",
        ]
    )
    place = random.choice([0, len(tree.body), random.randrange(len(tree.body) + 1)])
    tree.body[place:place] = ast.parse(text).body
    return True


_CLEARING = """
for key, value in list(vars(patched).items()):
    if isinstance(value, dict) and key.startswith("f"):
        value.clear()
"""


def _add_effect(random: Random, tree: ast.Module) -> bool:
    """Change something of another module when this one is imported."""
    number = random.randrange(7)
    module = random.choice(_MODULES)
    text = random.choice(
        [
            f"import pkg.{module}\npkg.{module}.f{number} = lambda *args: 8\n",
            f"from pkg import {module} as patched\nsetattr(patched, 'f{number}', abs)\n",
            f"import sys\nvars(sys.modules.get('pkg.{module}', sys))['f{number}'] = abs\n",
            f"from pkg.{module} import *\n",
            "import builtins\nbuiltins.abs = lambda x: 9\n",
            "import json\njson.load = lambda stream: {'number': 1}\n",
            f"import gc\ngc.set_threshold({600 + number})\n",
            f"import decimal\ndecimal.getcontext().prec = {50 + number}\n",
            f"import os\nos.environ['f{number}'] = '5'\n",
            f"from pkg import {module} as patched\n{_CLEARING}",
        ]
    )
    tree.body.extend(ast.parse(text).body)
    return True


def _add_wrapper(random: Random, tree: ast.Module) -> bool:
    """Replace a function by one that calls it."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    if not functions:
        return False
    name = random.choice(functions).name
    text = (
        f"{name} = (lambda function: lambda *args, **options: function(*args, **options))({name})\n"
    )
    tree.body.extend(ast.parse(text).body)
    return True


def _rename_method(random: Random, tree: ast.Module) -> bool:
    """Take a method away from a class, so that a base or __getattr__ has it."""
    classes = _nodes(tree, ast.ClassDef)
    if not classes:
        return False
    methods = [node for node in random.choice(classes).body if isinstance(node, ast.FunctionDef)]
    if not methods:
        return False
    random.choice(methods).name += "_x"
    return True


def _add_subclass(random: Random, tree: ast.Module) -> bool:
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    if not classes:
        return False
    text = f"class AddedKid({random.choice(classes)}):\n    def go(self, x):\n        return 2\n"
    tree.body.extend(ast.parse(text).body)
    return True


def _change_default(random: Random, tree: ast.Module) -> bool:
    arguments = [node for node in _nodes(tree, ast.arguments) if node.args]
    if not arguments:
        return False
    changed = random.choice(arguments)
    if changed.defaults:
        changed.defaults.pop()
    else:
        changed.defaults.append(ast.Constant(7))
    return True


def _inline_condition(random: Random, tree: ast.Module) -> bool:
    conditions = _nodes(tree, ast.If, ast.IfExp)
    if not conditions:
        return False
    condition = random.choice(conditions)
    condition.test = ast.UnaryOp(ast.Not(), condition.test)
    return True


_CHANGES = {
    "constant": _change_constant,
    "operator": _change_operator,
    "name": _change_name,
    "deleted statement": _delete_statement,
    "repeated statement": _repeat_statement,
    "swapped statements": _swap_statements,
    "decorators": _change_decorators,
    "bases": _change_bases,
    "new method": _add_method,
    "new global": _add_global,
    "effect at import": _add_effect,
    "wrapper": _add_wrapper,
    "renamed method": _rename_method,
    "new subclass": _add_subclass,
    "default": _change_default,
    "condition": _inline_condition,
}
