"""Which algorithm oneDNN took is read from its own report."""

import pytest
import torch

from mnistbench.course.studies.convolution.onednn import Case, OneDnnError, algorithms, summary
from mnistbench.course.studies.convolution.sizes import Sizes

HEAD = "onednn_verbose,v1,primitive,exec,cpu"
CONVOLUTION = (
    f"{HEAD},convolution,brgconv:avx512_core,forward_training,src:f32::blocked:acdb::f0,,alg:convolution_direct,mb1_ic3,0.02"
)
REORDER = f"{HEAD},reorder,jit:uni,undef,src:f32::blocked:abcd::f0 dst:f32::blocked:acdb::f0,,,1x3x32x32,0.01"
WEIGHTS = f"{HEAD},convolution,jit:avx512_core,backward_weights,src:f32::blocked:acdb::f0,,alg:convolution_direct,mb1_ic3,0.02"
OLDER = (
    "onednn_verbose,exec,cpu,convolution,jit:avx2,forward_training,src_f32::blocked:acdb:f0,,alg:convolution_direct,mb1,0.02"
)
INFO = "onednn_verbose,v1,info,cpu,runtime:OpenMP,nthr:1"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], ""),
        ([INFO, REORDER], ""),
        ([INFO, CONVOLUTION], "brgconv:avx512_core"),
        ([REORDER, CONVOLUTION, REORDER], "brgconv:avx512_core, 2 reorders"),
        ([WEIGHTS, CONVOLUTION, CONVOLUTION, REORDER], "jit:avx512_core + brgconv:avx512_core, 1 reorder"),
        ([OLDER], "jit:avx2"),
    ],
)
def test_a_report_is_one_line(lines, said):
    assert summary(lines) == said


@pytest.mark.versions
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch is built without oneDNN")
def test_the_library_says_what_it_took_unless_it_is_switched_off():
    sizes = Sizes(1, 32, 26, 26, 64, 3, 3)  # PyTorch computes small ones itself
    cases = [Case("library", sizes, "float32"), Case("im2col", sizes, "float32"), Case("library_backward", sizes, "float32")]
    forward, _, backward = algorithms(cases, 1, {})
    assert forward
    assert backward
    assert algorithms(cases[:1], 1, {"mkldnn": "off"}) == [""]


def test_a_child_that_fails_is_one_line():
    with pytest.raises(OneDnnError, match=r"^oneDNN was not asked for its algorithms: \w+Error: .*float31"):
        algorithms([Case("library", Sizes(1, 1, 3, 3, 1, 3, 3), "float31")], 1, {})
