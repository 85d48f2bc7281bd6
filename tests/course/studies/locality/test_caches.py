"""Caches are read from an option or from Linux, and refused if they cannot exist."""

import pytest

from mnistbench.course.studies.locality.caches import USUAL, cache_of, of_this_machine


def described(directory, *caches):
    """Write the description of caches as Linux does."""
    names = ("level", "type", "size", "coherency_line_size", "ways_of_associativity")
    for number, values in enumerate(caches):
        index = directory / f"index{number}"
        index.mkdir()
        for name, value in zip(names, values, strict=True):
            (index / name).write_text(f"{value}\n")
    return directory


DATA = ("1", "Data", "48K", "64", "12")
CODE = ("1", "Instruction", "64K", "64", "16")
SECOND = ("2", "Unified", "1280K", "64", "20")


def values(caches):
    return [(cache.size, cache.line, cache.ways, cache.sets) for cache in (caches.l1, caches.l2)]


@pytest.mark.parametrize("first", [(DATA, CODE), (CODE, DATA), (DATA,)])
def test_the_caches_for_data_are_read(first, tmp_path):
    caches = of_this_machine(described(tmp_path, *first, SECOND))
    assert values(caches) == [(48 * 1024, 64, 12, 64), (1280 * 1024, 64, 20, 1024)]
    assert str(tmp_path) in caches.l1.source


@pytest.mark.parametrize(
    "caches",
    [
        (),
        (DATA,),
        (CODE, SECOND),
        (DATA, (*SECOND[:4], "0")),
        (DATA, (*SECOND[:2], "many", *SECOND[3:])),
    ],
)
def test_what_linux_does_not_describe_is_assumed(caches, tmp_path):
    assert of_this_machine(described(tmp_path, *caches)) == USUAL


@pytest.mark.parametrize(
    ("text", "cache"),
    [
        ("32K:64:8", (32768, 64, 8, 64)),
        ("1M:128:16", (1048576, 128, 16, 512)),
        ("4096:64:64", (4096, 64, 64, 1)),
        ("12K:64:3", (12288, 64, 3, 64)),
    ],
)
def test_an_option_is_size_line_and_ways(text, cache):
    parsed = cache_of("--l1")(text)
    assert (parsed.size, parsed.line, parsed.ways, parsed.sets) == cache


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("32K", "is not of the form SIZE:LINE:WAYS"),
        ("32k:64:8", "is not of the form"),
        ("32K:48:8", "has a line of 48 bytes; give a power of two"),
        ("32K:64:0", "has 0 ways; give 1 to"),
        ("32K:64:4096", "has 4096 ways"),
        ("32K:64:7", "has 32768 bytes; give a multiple of line times ways, 448"),
        ("0:64:1", "has 0 bytes"),
        ("2048M:64:16", "has 2147483648 bytes"),
    ],
)
def test_a_cache_that_cannot_be_simulated_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        cache_of("--l1")(text)
