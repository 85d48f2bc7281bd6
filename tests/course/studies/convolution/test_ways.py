"""Every way computes the same convolution, or refuses it by name."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mnistbench.core.errors import UsageError
from mnistbench.course.studies.convolution.sizes import GRID, ConvolutionSizes
from mnistbench.course.studies.convolution.ways import WAYS, bound_of_sum, reference

FORWARD = [way for way in WAYS.values() if not way.backward]
SUMS = [way for way in FORWARD if way.adds_products]
BACKWARD = [way for way in WAYS.values() if way.backward]


@st.composite
def drawn_sizes(draw):
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    kernel_height, kernel_width = draw(st.sampled_from([(3, 3), (3, 3), (1, 1), (2, 3), (5, 5)]))
    padding = draw(st.integers(0, 2))
    stride = draw(st.integers(1, 3))
    height, width = (
        draw(st.integers(max(1, side - 2 * padding), 9)) for side in (kernel_height, kernel_width)
    )
    channels, filters = (groups * draw(st.integers(1, 3)) for _ in range(2))
    return ConvolutionSizes(
        draw(st.integers(1, 3)),
        channels,
        height,
        width,
        filters,
        kernel_height,
        kernel_width,
        stride,
        padding,
        groups,
    )


def error_of(way, sizes, seed=0, dtype=torch.float32):
    """The error of each output."""
    inputs, weights = sizes.tensors(dtype, seed=seed)
    output = way.compute(inputs, weights, sizes)
    assert output.dtype == dtype
    assert output.shape == sizes.output_shape
    return (output.double() - reference(inputs, weights, sizes)).abs()


def largest_error(sizes, seed=0, dtype=torch.float32):
    """The bound of the error of each output, if it is a sum of products."""
    return bound_of_sum(*sizes.tensors(dtype, seed=seed), sizes)


@settings(deadline=None)  # the first call loads a library
@given(drawn_sizes(), st.sampled_from(FORWARD), st.integers(0, 99))
def test_every_way_computes_the_same(sizes, way, seed):
    if way.refusal(sizes):
        return
    assert (error_of(way, sizes, seed, torch.float64) < 1e-12).all()
    if way.adds_products:
        assert (error_of(way, sizes, seed) <= largest_error(sizes, seed)).all()


@pytest.mark.parametrize("way", SUMS, ids=lambda way: way.name)
def test_the_bound_of_the_errors_of_a_real_layer_is_small(way):
    layer = GRID["conv1-b1" if way.refusal(GRID["chapter"]) else "chapter"]
    bound = largest_error(layer)
    assert (error_of(way, layer) <= bound).all()
    assert bound.max() < 0.1


def test_the_library_in_bfloat16_is_below_its_bound():
    layer = GRID["conv1-b1"]
    error = error_of(WAYS["library"], layer, dtype=torch.bfloat16)
    assert (error <= largest_error(layer, dtype=torch.bfloat16)).all()


@pytest.mark.parametrize(
    "way", [way for way in FORWARD if way.name != "seven_loops"], ids=lambda way: way.name
)
def test_the_output_is_on_the_device_of_the_inputs(way):
    small = ConvolutionSizes(1, 2, 6, 6, 3, 3, 3)
    # A device that every machine has.
    inputs, weights = (tensor.to("meta") for tensor in small.tensors())
    assert way.compute(inputs, weights, small).device.type == "meta"


def test_winograd_and_fourier_are_less_exact_than_a_short_sum():
    errors = {
        name: error_of(WAYS[name], GRID["conv1-b1"]).square().mean()
        for name in ("im2col", "winograd", "fourier")
    }
    assert errors["im2col"] < errors["winograd"] < errors["fourier"]


@settings(deadline=None)
@given(drawn_sizes(), st.sampled_from(BACKWARD))
def test_gradients_are_those_of_autograd(sizes, way):
    if way.refusal(sizes):
        return
    inputs, weights = (tensor.double().requires_grad_() for tensor in sizes.tensors())
    output = WAYS["library"].compute(inputs, weights, sizes)
    gradient = torch.randn(
        sizes.output_shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    input_gradient, weight_gradient = torch.autograd.grad(output, [inputs, weights], gradient)
    gradients = way.compute(gradient, inputs.detach(), weights.detach(), sizes)
    if isinstance(gradients, tuple):
        torch.testing.assert_close(gradients[0], input_gradient)
        gradients = gradients[1]
    torch.testing.assert_close(gradients, weight_gradient)


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("winograd", {"kernel_height": 5, "kernel_width": 5}, "it needs kernels of 3x3"),
        ("winograd", {"stride": 2}, "it needs stride 1"),
        ("fourier", {"stride": 2}, "it needs stride 1"),
        ("seven_loops", {"groups": 2}, "it needs one group"),
        ("im2col", {"groups": 2}, "it needs one group"),
        ("fourier", {"groups": 2}, "it needs one group"),
        ("exchanged_weight_gradient", {"groups": 2}, "it needs one group"),
        (
            "seven_loops",
            {"batch": 64},
            "it needs at most 200,000 passes of its loops, and this has 2,654,208",
        ),
    ],
)
def test_what_a_way_cannot_compute_is_refused_by_name(name, changed, message):
    sizes = ConvolutionSizes(
        **{
            "batch": 1,
            "channels": 4,
            "height": 26,
            "width": 26,
            "filters": 2,
            "kernel_height": 3,
            "kernel_width": 3,
        }
        | changed
    )
    assert WAYS[name].refusal(sizes) == f"{name}: cannot compute {sizes}; {message}"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((1, 1, 2, 2, 1, 3, 3), "the kernel is larger than the padded image"),
        ((0, 1, 5, 5, 1, 3, 3), "a size is below 1"),
        ((1, 3, 5, 5, 2, 3, 3, 1, 0, 2), "2 groups do not divide"),
    ],
)
def test_sizes_without_an_output_are_refused(values, message):
    with pytest.raises(UsageError, match=message):
        ConvolutionSizes(*values)


def test_flops_are_those_of_the_sources():
    chapter = GRID["chapter"]
    conv2 = GRID["conv2-b1"]
    assert WAYS["library"].flops(chapter) == 2 * 2 * 28 * 28 * 3 * 5 * 5
    # Lavin and Gray: 16 products for four outputs instead of 36, and transforms of tiles, kernels
    # and results.
    tiles = 12 * 12
    assert (
        WAYS["winograd"].flops(conv2)
        == 2 * 16 * tiles * 64 * 32 + 32 * tiles * 32 + 28 * 64 * 32 + 24 * tiles * 64
    )
    assert WAYS["winograd"].flops(conv2) < WAYS["library"].flops(conv2) / 2
