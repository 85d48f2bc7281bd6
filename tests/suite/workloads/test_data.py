from __future__ import annotations

import errno
import gzip
import hashlib
import http.client
import http.server
import importlib.util
import os
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Thread
from urllib.error import URLError

import numpy as np
import platformdirs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from real_mnist import REAL_MNIST, needs_mnist
from torch_builders import generator

from mnistbench.core.errors import DataError, UsageError
from mnistbench.suite.workloads import data
from mnistbench.suite.workloads.data import Dataset, Split, load

Files = dict[str, bytes]
TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS = data._MNIST_FILES


def idx_images(n: int, seed: int) -> bytes:
    header = b"".join(value.to_bytes(4, "big") for value in (0x0803, n, 28, 28))
    return (
        header + np.random.default_rng(seed).integers(0, 256, n * 28 * 28, dtype=np.uint8).tobytes()
    )


def idx_labels(labels: list[int]) -> bytes:
    return b"".join(value.to_bytes(4, "big") for value in (0x0801, len(labels))) + bytes(labels)


# Seven samples to train, three to test, every label of a split another one: a sample is known by
# its label.
FILES: Files = {
    TRAIN_IMAGES: idx_images(7, seed=1),
    TRAIN_LABELS: idx_labels([3, 1, 4, 0, 5, 9, 2]),
    TEST_IMAGES: idx_images(3, seed=2),
    TEST_LABELS: idx_labels([8, 6, 7]),
}


def download_must_not_run(url: str) -> bytes:
    pytest.fail(f"a download of {url} was started")


@pytest.fixture(autouse=True)
def no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MNISTBENCH_DATA", raising=False)
    monkeypatch.setattr(data, "_fetch", download_must_not_run)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make mnistbench take FILES for MNIST."""
    tiny_files = {
        name: data._MnistFile(len(body), hashlib.md5(body, usedforsecurity=False).hexdigest())
        for name, body in FILES.items()
    }
    monkeypatch.setattr(data, "_MNIST_FILES", tiny_files)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def write_raw(root: Path, names: tuple[str, ...] = tuple(FILES), *, packed: bool = False) -> Path:
    raw = root / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for name in names:
        file, content = (
            (f"{name}.gz", gzip.compress(FILES[name])) if packed else (name, FILES[name])
        )
        (raw / file).write_bytes(content)
    return raw


write_gz = partial(write_raw, packed=True)


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in [folder, *folder.rglob("*")]
    }


def numbered(n: int) -> Dataset:
    """Return a dataset whose training sample i has label i and all pixels i."""
    labels = torch.arange(n)
    split = Split(labels.to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 28, 28), labels)
    return Dataset("numbered", split, split, mean=0.5, std=0.25)


def labels_of(batches: Iterator[data.Batch]) -> list[list[int]]:
    return [labels.tolist() for _, labels in batches]


def flat(batches: list[list[int]]) -> list[int]:
    return list(chain.from_iterable(batches))


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load("digits")


@pytest.mark.versions
class TestDigits:
    def test_sizes_shapes_and_types(self, digits: Dataset) -> None:
        assert digits.name == "digits"
        for split, n in ((digits.train, 1437), (digits.test, 360)):
            assert len(split) == n
            assert (split.images.shape, split.images.dtype) == ((n, 1, 28, 28), torch.uint8)
            assert (split.labels.shape, split.labels.dtype) == ((n,), torch.int64)
            assert split.images.is_contiguous()
            assert set(split.labels.tolist()) == set(range(10))

    def test_bytes_are_the_same_on_every_machine(self, digits: Dataset) -> None:
        digest = hashlib.sha256()
        for split in (digits.train, digits.test):
            digest.update(split.images.numpy().tobytes())
            digest.update(split.labels.to(torch.uint8).numpy().tobytes())
        assert (
            digest.hexdigest() == "b37c94c9467004f4bf2b9fd4d8848308493bd9f7d8160f93f1934d7390a06e4f"
        )

    def test_constants_are_those_of_the_training_images(self, digits: Dataset) -> None:
        scaled = digits.train.images.double() / 255
        assert round(scaled.mean().item(), 4) == digits.mean == data.DIGITS_MEAN
        assert round(scaled.std().item(), 4) == digits.std == data.DIGITS_STD

    def test_loading_leaves_the_random_state(self) -> None:
        before = torch.get_rng_state()
        numpy_before = repr(np.random.get_state())
        load("digits")
        assert torch.equal(before, torch.get_rng_state())
        assert repr(np.random.get_state()) == numpy_before


def test_unknown_dataset_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"^dataset 'fashion' is not known: one of digits, mnist$"):
        load("fashion")


def test_load_puts_the_data_on_the_device() -> None:
    digits = load("digits", device="meta")
    assert {
        tensor.device.type
        for split in (digits.train, digits.test)
        for tensor in (split.images, split.labels)
    } == {"meta"}


class TestBatch:
    def test_gathers_in_the_order_of_the_indices_and_normalises(self) -> None:
        dataset = numbered(200)
        images, labels = dataset.batch(dataset.train, torch.tensor([199, 0, 51, 51]))
        assert labels.tolist() == [199, 0, 51, 51]
        assert (images.shape, images.dtype, labels.dtype) == (
            (4, 1, 28, 28),
            torch.float32,
            torch.int64,
        )
        expected = torch.tensor([(x / 255 - 0.5) / 0.25 for x in (199, 0, 51, 51)])
        torch.testing.assert_close(images, expected.view(-1, 1, 1, 1).expand(-1, 1, 28, 28))

    def test_takes_the_split_it_is_given(self, digits: Dataset) -> None:
        images, labels = digits.batch(digits.test, torch.arange(5))
        assert torch.equal(labels, digits.test.labels[:5])
        torch.testing.assert_close(images * digits.std + digits.mean, digits.test.images[:5] / 255)

    def test_does_not_change_the_dataset(self, digits: Dataset) -> None:
        before = digits.train.images.clone()
        digits.batch(digits.train, torch.arange(100))
        assert torch.equal(before, digits.train.images)

    def test_is_made_on_the_splits_device_from_indices_on_the_cpu(self) -> None:
        there = numbered(9).to("meta")
        moved: list[torch.Tensor] = []

        class Indices(torch.Tensor):
            def to(self, device: torch.device) -> torch.Tensor:  # type: ignore[override]
                moved.append(torch.arange(3).to(device))
                return moved[-1]

        images, labels = there.batch(there.train, torch.arange(3).as_subclass(Indices))
        assert images.device.type == labels.device.type == "meta"
        assert [indices.device.type for indices in moved] == ["meta"]


def test_to_moves_both_splits_and_leaves_the_original() -> None:
    here = numbered(4)
    there = here.to("meta")
    for split in (there.train, there.test):
        assert split.images.device.type == split.labels.device.type == "meta"
    assert here.train.images.device.type == here.test.labels.device.type == "cpu"
    assert (there.name, there.mean, there.std) == (here.name, here.mean, here.std)


class TestDraw:
    @settings(deadline=None)  # a busy machine is no failure
    @given(n=st.integers(1, 20), batch_size=st.integers(1, 70), seed=st.integers(0, 2**32))
    def test_is_whole_permutations_one_after_the_other(
        self, n: int, batch_size: int, seed: int
    ) -> None:
        dataset = numbered(n)
        indices = dataset.draw(dataset.train, batch_size, generator(seed))
        assert (indices.shape, indices.dtype, indices.device.type) == (
            (batch_size,),
            torch.int64,
            "cpu",
        )
        for chunk in torch.split(indices, n):
            seen = chunk.tolist()
            assert len(set(seen)) == len(seen)
            assert set(seen) <= set(range(n))
        assert torch.equal(indices, dataset.draw(dataset.train, batch_size, generator(seed)))

    def test_continues_with_another_permutation(self) -> None:
        dataset = numbered(50)
        first, second = torch.split(dataset.draw(dataset.train, 100, generator(1)), 50)
        assert first.tolist() != second.tolist()
        assert first.tolist() != sorted(first.tolist())

    def test_follows_the_generator_and_nothing_else(self) -> None:
        dataset = numbered(50)
        before = torch.get_rng_state()
        seeded = generator(1)
        first, second = (dataset.draw(dataset.train, 16, seeded).tolist() for _ in range(2))
        assert first != second
        assert first != dataset.draw(dataset.train, 16, generator(2)).tolist()
        assert torch.equal(before, torch.get_rng_state())


class TestEpoch:
    @settings(deadline=None)  # a busy machine is no failure
    @given(
        n=st.integers(1, 40),
        batch_size=st.integers(1, 50),
        seed=st.none() | st.integers(0, 2**32),
        percent=st.integers(1, 100),
    )
    def test_has_each_sample_once(
        self, n: int, batch_size: int, seed: int | None, percent: int
    ) -> None:
        dataset = numbered(n)

        def run(fraction: float) -> list[list[int]]:
            order = None if seed is None else generator(seed)
            return labels_of(dataset.epoch(dataset.train, batch_size, order, fraction))

        whole = flat(run(1.0))
        assert sorted(whole) == list(range(n))
        if seed is None:
            assert whole == list(range(n))
        part = run(percent / 100)
        n_part = -(-percent * n // 100)
        assert flat(part) == whole[:n_part]
        assert [len(batch) for batch in part[:-1]] == [batch_size] * (len(part) - 1)
        assert len(part[-1]) == (n_part - 1) % batch_size + 1

    def test_batches_are_those_of_batch(self) -> None:
        dataset = numbered(10)
        for images, labels in dataset.epoch(dataset.train, 4, generator(1)):
            again, _ = dataset.batch(dataset.train, labels)
            assert torch.equal(images, again)

    def test_takes_the_split_it_is_given(self, digits: Dataset) -> None:
        assert flat(labels_of(digits.epoch(digits.test, 64))) == digits.test.labels.tolist()

    def test_shuffles_by_the_generator_and_nothing_else(self) -> None:
        dataset = numbered(50)
        before = torch.get_rng_state()
        seeded = generator(1)
        first, second = (labels_of(dataset.epoch(dataset.train, 16, seeded)) for _ in range(2))
        assert flat(first) != list(range(50))
        assert first != second
        assert first == labels_of(dataset.epoch(dataset.train, 16, generator(1)))
        assert torch.equal(before, torch.get_rng_state())

    def test_the_order_is_fixed_when_it_is_asked_for(self) -> None:
        dataset = numbered(50)
        seeded = generator(1)
        first = dataset.epoch(dataset.train, 16, seeded)
        second = dataset.epoch(dataset.train, 16, seeded)
        later = labels_of(second)
        assert labels_of(first) == labels_of(dataset.epoch(dataset.train, 16, generator(1)))
        assert later != labels_of(dataset.epoch(dataset.train, 16, generator(1)))

    @pytest.mark.parametrize(
        ("fraction", "n"), [(0.07, 7), (0.071, 8), (1e-9, 1), (0.5, 50), (1, 100), (1.0, 100)]
    )
    def test_a_fraction_is_rounded_up_as_it_is_written(self, fraction: float, n: int) -> None:
        dataset = numbered(100)
        assert len(flat(labels_of(dataset.epoch(dataset.train, 64, None, fraction)))) == n

    @pytest.mark.parametrize("fraction", [0, -0.1, 1.01, float("nan"), float("inf")])
    def test_another_fraction_is_a_usage_error_at_once(self, fraction: float) -> None:
        dataset = numbered(10)
        with pytest.raises(
            UsageError,
            match=f"^fraction {fraction} of an epoch: give a number above 0 and up to 1$",
        ):
            dataset.epoch(dataset.train, 4, None, fraction)

    def test_moves_its_order_once_and_not_once_a_batch(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        there = numbered(9).to("meta")
        devices = []
        batch = Dataset.batch

        def spy(self: Dataset, split: Split, indices: torch.Tensor) -> data.Batch:
            devices.append(indices.device.type)
            return batch(self, split, indices)

        monkeypatch.setattr(Dataset, "batch", spy)
        list(there.epoch(there.train, 4, generator(1)))
        assert devices == ["meta"] * 3


@pytest.mark.versions
class TestDataRoot:
    @pytest.fixture(autouse=True)
    def _cache(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(platformdirs, "user_cache_path", lambda app: Path("/cache") / app)

    def test_option_then_variable_then_cache(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert data.data_root(None) == Path("/cache/mnistbench")
        monkeypatch.setenv("MNISTBENCH_DATA", "/variable")
        assert data.data_root(None) == Path("/variable")
        assert data.data_root("/option") == data.data_root(Path("/option")) == Path("/option")
        monkeypatch.setenv("MNISTBENCH_DATA", "")
        assert data.data_root("") == Path("/cache/mnistbench")

    def test_home_is_expanded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", "/home/me")
        assert data.data_root("~/sets") == Path("/home/me/sets")
        assert data.data_root("~no-such-user/sets") == Path("~no-such-user/sets")
        monkeypatch.setenv("MNISTBENCH_DATA", "~/mine")
        assert data.data_root(None) == Path("/home/me/mine")


def check_tiny(mnist: Dataset) -> None:
    assert (mnist.name, mnist.mean, mnist.std) == ("mnist", 0.1307, 0.3081)
    for split, images, labels in (
        (mnist.train, TRAIN_IMAGES, [3, 1, 4, 0, 5, 9, 2]),
        (mnist.test, TEST_IMAGES, [8, 6, 7]),
    ):
        assert (split.images.shape, split.images.dtype) == ((len(labels), 1, 28, 28), torch.uint8)
        assert split.images.numpy().tobytes() == FILES[images][16:]
        assert (split.labels.tolist(), split.labels.dtype) == (labels, torch.int64)


@pytest.mark.versions
@pytest.mark.usefixtures("tiny")
class TestReadMnist:
    @pytest.mark.parametrize("write", [write_raw, write_gz])
    def test_reads_what_is_there_and_writes_nothing(
        self, root: Path, write: Callable[[Path], Path]
    ) -> None:
        write(root)
        before = snapshot(root)
        check_tiny(load("mnist", root))
        assert snapshot(root) == before

    def test_reads_some_unpacked_and_some_gz(self, root: Path) -> None:
        write_raw(root, (TRAIN_IMAGES, TEST_LABELS))
        write_gz(root, (TRAIN_LABELS, TEST_IMAGES))
        check_tiny(load("mnist", root))

    def test_prefers_the_unpacked_file(self, root: Path) -> None:
        raw = write_raw(root)
        (raw / f"{TRAIN_IMAGES}.gz").write_bytes(b"never read")
        check_tiny(load("mnist", str(root)))

    def test_the_bytes_may_be_written_to(self, root: Path) -> None:
        """A tensor over read-only memory warns when it is made and crashes when it is written."""
        write_raw(root)
        load("mnist", root).train.images.zero_()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.usefixtures("tiny")
def test_files_of_another_dataset_are_not_taken_for_mnist(root: Path, *, packed: bool) -> None:
    """As those of Fashion-MNIST, whose names and sizes are the same; one has a label above 9."""
    raw = write_raw(root, packed=packed)
    labels = idx_labels([3, 1, 4, 0, 5, 200, 2])
    path = raw / (f"{TRAIN_LABELS}.gz" if packed else TRAIN_LABELS)
    path.write_bytes(gzip.compress(labels) if packed else labels)
    with pytest.raises(DataError) as error:
        load("mnist", root)
    unpacked = " unpacked" if packed else ""
    assert str(error.value).startswith(f"{path}: is not of MNIST: expected the MD5{unpacked} ")
    assert ". Three ways out: (1) " in str(error.value)


def replace_file(name: str, body: bytes) -> Callable[[Path], None]:
    def damage(raw: Path) -> None:
        (raw / name).unlink(missing_ok=True)
        (raw / name.removesuffix(".gz")).unlink(missing_ok=True)
        (raw / name).write_bytes(body)

    return damage


def replace_by_folder(name: str) -> Callable[[Path], None]:
    def damage(raw: Path) -> None:
        (raw / name).unlink()
        (raw / name).mkdir()

    return damage


def replace_by_pipe(name: str) -> Callable[[Path], None]:
    def damage(raw: Path) -> None:
        (raw / name).unlink()
        os.mkfifo(raw / name)

    return damage


def keep_only(*names: str) -> Callable[[Path], None]:
    def damage(raw: Path) -> None:
        for path in raw.iterdir():
            if path.name not in names:
                path.unlink()

    return damage


def only_another_file(raw: Path) -> None:
    keep_only()(raw)
    (raw / "notes.txt").write_text("mine")


LABELS = FILES[TRAIN_LABELS]
PACKED = gzip.compress(LABELS)
CORRUPT = PACKED[:10] + b"\xff" * (len(PACKED) - 18) + PACKED[-8:]

NO_FILE = "is not a file; "

BROKEN = [
    pytest.param(
        replace_file(TRAIN_LABELS, LABELS[:-1]),
        TRAIN_LABELS,
        "expected 15 bytes, found 14.",
        id="truncated",
    ),
    pytest.param(
        replace_file(TEST_IMAGES, b"html"),
        TEST_IMAGES,
        "expected 2,368 bytes, found 4.",
        id="another page",
    ),
    pytest.param(
        replace_file(TRAIN_LABELS, LABELS + b"\0"),
        TRAIN_LABELS,
        "expected 15 bytes, found more.",
        id="longer",
    ),
    pytest.param(
        replace_file(f"{TRAIN_LABELS}.gz", gzip.compress(bytes(10_000_000))),
        f"{TRAIN_LABELS}.gz",
        "expected 15 bytes unpacked, found more.",
        id="longer in gz",
    ),
    pytest.param(
        replace_file(f"{TRAIN_LABELS}.gz", PACKED[:-3]),
        f"{TRAIN_LABELS}.gz",
        "ended before",
        id="half gz",
    ),
    pytest.param(
        replace_file(f"{TRAIN_LABELS}.gz", b"<html>"),
        f"{TRAIN_LABELS}.gz",
        "Not a gzipped file",
        id="not gz",
    ),
    pytest.param(
        replace_file(f"{TRAIN_LABELS}.gz", CORRUPT),
        f"{TRAIN_LABELS}.gz",
        "decompressing data",
        id="corrupt gz",
    ),
    pytest.param(replace_by_folder(TEST_LABELS), TEST_LABELS, NO_FILE, id="a folder"),
    pytest.param(replace_by_pipe(TEST_LABELS), TEST_LABELS, NO_FILE, id="a pipe"),
    pytest.param(
        keep_only(TRAIN_IMAGES),
        TRAIN_LABELS,
        "missing, and no .gz of it either.",
        id="only one file",
    ),
    pytest.param(
        only_another_file, TRAIN_IMAGES, "missing, and no .gz of it either.", id="another file"
    ),
]


def check_failure(
    root: Path, path: Path, problem: str, read: Callable[[Path], object] | None = None
) -> str:
    """Reading fails with one line: the file, what is wrong, three ways out.

    And no second traceback above it.
    """
    with pytest.raises(DataError) as caught:
        (read or partial(load, "mnist"))(root)
    error = caught.value
    raw = root / "MNIST" / "raw"
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert problem in text
    assert "\n" not in text
    assert text.count(str(path)) <= 2  # said once, and once more where it is the folder
    ways = text.partition("Three ways out: ")[2]
    first, second, third = (ways.index(f"({number}) ") for number in (1, 2, 3))
    assert str(raw) in ways[first:second]
    assert f"the four .gz files of {data._MNIST_URL}" in ways[first:second]
    assert "MNISTBENCH_DATA or --data-dir (pytest: --bench-data-dir)" in ways[second:third]
    assert "--dataset digits (pytest: --bench-dataset digits)" in ways[third:]
    assert error.__cause__ is None
    assert error.__suppress_context__
    return text


@pytest.mark.usefixtures("tiny")
class TestBrokenMnist:
    @pytest.mark.parametrize(("damage", "name", "problem"), BROKEN)
    def test_a_broken_folder_is_one_line_and_stays_as_it_is(
        self, root: Path, damage: Callable[[Path], None], name: str, problem: str
    ) -> None:
        raw = write_raw(root)
        damage(raw)
        before = snapshot(root)
        check_failure(root, raw / name, problem)
        assert snapshot(root) == before

    @pytest.mark.parametrize("place", ["", "MNIST", "MNIST/raw"])
    def test_a_file_in_place_of_a_folder(self, root: Path, place: str) -> None:
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text("a file")
        raw = root / "MNIST" / "raw"
        check_failure(root, raw, os.strerror(errno.ENOTDIR))


def packed(url: str) -> bytes:
    """Return what a server sends."""
    return gzip.compress(FILES[url.rpartition("/")[2].removesuffix(".gz")])


@pytest.mark.usefixtures("tiny")
class TestDownload:
    @pytest.mark.parametrize("there", ["", "MNIST", "MNIST/raw"])
    def test_happens_once_where_no_file_is_there(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, there: str
    ) -> None:
        (root / there).mkdir(parents=True)
        raw = root / "MNIST" / "raw"
        downloads = []

        def fetch(url: str) -> bytes:
            downloads.append(url)
            assert not raw.exists() or not list(raw.iterdir())
            return packed(url)

        monkeypatch.setattr(data, "_fetch", fetch)
        check_tiny(load("mnist", root))
        check_tiny(load("mnist", root))
        assert downloads == [f"{data._MNIST_URL}{name}.gz" for name in FILES]
        assert [path.name for path in raw.parent.iterdir()] == ["raw"]
        assert {path.name for path in raw.iterdir()} == set(FILES)

    @pytest.mark.parametrize(
        ("error", "cause"),
        [
            (
                URLError("[Errno -2] Name or service not known"),
                "<urlopen error [Errno -2] Name or service not known>",
            ),
            (
                RuntimeError("Error on t.gz:\nTried https://a/, got:\nHTTP 403\n"),
                "Error on t.gz: Tried https://a/, got: HTTP 403",
            ),
            (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
            (EOFError(), "EOFError"),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
    )
    def test_failure_is_one_line_and_leaves_no_file(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, cause: str
    ) -> None:
        def fetch(url: str) -> bytes:
            if TRAIN_IMAGES in url:
                return packed(url)
            raise error

        monkeypatch.setattr(data, "_fetch", fetch)
        raw = root / "MNIST" / "raw"
        check_failure(root, raw, f"nothing there, and the download failed ({cause})")
        assert list(raw.parent.iterdir()) == []

    def test_a_long_error_is_cut(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fetch(url: str) -> bytes:
            raise RuntimeError("a proxy's page of text " * 1000)

        monkeypatch.setattr(data, "_fetch", fetch)
        with pytest.raises(DataError) as caught:
            load("mnist", root)
        assert " ...). Three ways out" in str(caught.value)
        assert len(str(caught.value)) < 1000

    def test_interrupt_leaves_no_file(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fetch(url: str) -> bytes:
            if TEST_IMAGES in url:
                raise KeyboardInterrupt
            return packed(url)

        monkeypatch.setattr(data, "_fetch", fetch)
        with pytest.raises(KeyboardInterrupt):
            load("mnist", root)
        assert list((root / "MNIST").iterdir()) == []

    @pytest.mark.parametrize(
        ("sent", "problem"),
        [
            (gzip.compress(FILES[TEST_LABELS][:-1]), "expected 11 bytes unpacked, found 10)"),
            (gzip.compress(FILES[TEST_LABELS])[:-9], "ended before the end-of-stream"),
            (gzip.compress(FILES[TEST_LABELS][:-1] + b"9"), "is not of MNIST: expected the MD5"),
            (b"<html>blocked</html>", "Not a gzipped file"),
            (b"", "expected 11 bytes unpacked, found 0)"),
        ],
        ids=["short", "truncated", "other", "page", "empty"],
    )
    def test_wrong_content_is_not_kept(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes, problem: str
    ) -> None:
        monkeypatch.setattr(data, "_fetch", lambda url: sent if TEST_LABELS in url else packed(url))
        raw = root / "MNIST" / "raw"
        check_failure(root, raw, problem)
        assert list(raw.parent.iterdir()) == []

    def test_the_download_of_another_process_is_used(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fetch(url: str) -> bytes:
            write_raw(root)
            return packed(url)

        monkeypatch.setattr(data, "_fetch", fetch)
        check_tiny(load("mnist", root))
        assert sorted(path.name for path in (root / "MNIST" / "raw").iterdir()) == sorted(FILES)

    def test_failure_to_move_the_files_is_one_line(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(path: Path, target: Path) -> Path:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

        monkeypatch.setattr(data, "_fetch", packed)
        monkeypatch.setattr(Path, "rename", refuse)
        raw = root / "MNIST" / "raw"
        check_failure(root, raw, os.strerror(errno.EXDEV))
        assert list(raw.parent.iterdir()) == []

    def test_a_read_only_folder_is_one_line(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(path: Path, *args: object, **kwargs: object) -> None:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

        monkeypatch.setattr(Path, "mkdir", refuse)
        raw = root / "MNIST" / "raw"
        check_failure(root, raw, f"the download failed ({os.strerror(errno.EACCES)})")


FETCH = data._fetch


class SilentHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.mark.usefixtures("tiny")
class TestFetch:
    """The download itself, with a server on this machine in place of the network."""

    @pytest.fixture(autouse=True)
    def mirror(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        served = write_gz(tmp_path / "mirror")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setattr(data, "_fetch", FETCH)
        with http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), partial(SilentHandler, directory=served)
        ) as server:
            monkeypatch.setattr(data, "_MNIST_URL", f"http://127.0.0.1:{server.server_port}/")
            Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            yield
            server.shutdown()

    def test_downloads_without_printing(
        self, root: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        check_tiny(load("mnist", root))
        assert capsys.readouterr() == ("", "")
        assert set(FILES) == {path.name for path in (root / "MNIST" / "raw").iterdir()}

    def test_an_endless_answer_is_cut(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(data, "_LARGEST_DOWNLOAD", 20)
        check_failure(root, root / "MNIST" / "raw", "ended before the end-of-stream")

    def test_without_the_file_is_one_line(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(data, "_MNIST_URL", f"{data._MNIST_URL}nowhere/")
        check_failure(root, root / "MNIST" / "raw", "HTTP Error 404")

    def test_without_a_network_is_one_line(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        raw = root / "MNIST" / "raw"
        with socket.socket() as nobody_listens:
            nobody_listens.bind(("127.0.0.1", 0))
            monkeypatch.setattr(
                data, "_MNIST_URL", f"http://127.0.0.1:{nobody_listens.getsockname()[1]}/"
            )
            text = check_failure(root, raw, "the download failed (")
        assert os.strerror(errno.ECONNREFUSED) in text
        assert list(raw.parent.iterdir()) == []

    def test_a_server_that_sends_nothing_ends_it(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(data, "_NETWORK_TIMEOUT_S", 0.01)
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            monkeypatch.setattr(data, "_MNIST_URL", f"http://127.0.0.1:{silent.getsockname()[1]}/")
            check_failure(root, root / "MNIST" / "raw", "timed out")


def test_importing_needs_none_of_the_slow_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torchvision", "platformdirs", "numpy"):
        monkeypatch.setitem(sys.modules, name, None)
    assert data.__file__
    spec = importlib.util.spec_from_file_location("a_second_data", data.__file__)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "a_second_data", module)
    spec.loader.exec_module(module)


@pytest.fixture(scope="module")
def mnist() -> Dataset:
    return load("mnist", REAL_MNIST)


@needs_mnist
class TestRealMnist:
    def test_sizes_and_labels(self, mnist: Dataset) -> None:
        assert (len(mnist.train), len(mnist.test)) == (60_000, 10_000)
        assert mnist.train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
        assert mnist.test.labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
        assert mnist.train.labels.bincount().tolist() == [
            5923,
            6742,
            5958,
            6131,
            5842,
            5421,
            5918,
            6265,
            5851,
            5949,
        ]

    def test_constants_are_those_of_the_training_images(self, mnist: Dataset) -> None:
        scaled = mnist.train.images.double() / 255
        assert round(scaled.mean().item(), 4) == mnist.mean
        assert round(scaled.std().item(), 4) == mnist.std
