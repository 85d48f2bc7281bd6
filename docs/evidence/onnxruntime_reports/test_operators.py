"""Operators of ONNX Runtime that became slower, as plain tests of pytest-benchmark.

Reports say so of each of them.

The project that has this file needs onnx and onnxruntime, and is a repository of its own::

    cp docs/evidence/onnxruntime_reports/test_operators.py PROJECT
    cd PROJECT && git init && git add . && git commit -m tests
    mnistbench gate --base HEAD --base-with onnxruntime==1.20.0 --head-with onnxruntime==1.21.0
        -- test_operators.py
"""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

FLOAT = TensorProto.FLOAT
INT = TensorProto.INT64

#: Shapes of an image and its grid, and of the result.
SMALL = [(2, 3, 32, 32), (2, 32, 32, 2)], (2, 3, 32, 32)
LARGE = [(2, 3, 56, 56), (2, 56, 56, 2)], (2, 3, 56, 56)

#: Name -> operator, opset, type, shapes of the inputs, shape of the result, attributes. The number
#: is that of the report.
OPERATORS = {
    "26962_selu": ("Selu", 21, FLOAT, [(2, 64, 28, 28)], (2, 64, 28, 28), {}),
    "27093_reduce_l1": ("ReduceL1", 18, FLOAT, [(2, 64, 56, 56)], (1, 64, 56, 56), {"keepdims": 1}),
    "27115_sign": ("Sign", 13, INT, [(64, 32, 32)], (64, 32, 32), {}),
    "27117_softplus": ("Softplus", 21, FLOAT, [(1024,)], (1024,), {}),
    "27153_matmul": ("MatMul", 13, INT, [(3, 128, 256), (256, 64)], (3, 128, 64), {}),
    "27153_matmul_small": ("MatMul", 13, INT, [(32, 24), (24, 10)], (32, 10), {}),
    "27155_grid_sample": ("GridSample", 22, FLOAT, *SMALL, {"align_corners": 0}),
    "27155_grid_sample_large": ("GridSample", 22, FLOAT, *LARGE, {"align_corners": 1}),
    "27155_grid_sample_nearest": (
        "GridSample",
        22,
        FLOAT,
        *SMALL,
        {"mode": "nearest", "padding_mode": "reflection"},
    ),
    "27188_gru": (
        "GRU",
        21,
        FLOAT,
        [(1, 1, 16), (1, 96, 16), (1, 96, 32)],
        (1, 1, 1, 32),
        {"hidden_size": 32},
    ),
    "27188_gru_long": (
        "GRU",
        21,
        FLOAT,
        [(16, 4, 64), (1, 384, 64), (1, 384, 128)],
        (16, 1, 4, 128),
        {"hidden_size": 128},
    ),
}

#: Operators that no report names.
CONTROLS = {
    "relu": ("Relu", 14, FLOAT, [(2, 64, 28, 28)], (2, 64, 28, 28), {}),
    "add": ("Add", 14, FLOAT, [(2, 64, 28, 28), (2, 64, 28, 28)], (2, 64, 28, 28), {}),
    "concat": ("Concat", 13, FLOAT, [(64, 256), (64, 256)], (64, 512), {"axis": 1}),
    "max_pool": (
        "MaxPool",
        12,
        FLOAT,
        [(2, 16, 56, 56)],
        (2, 16, 28, 28),
        {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
}


def session(node, inputs, outputs, constants=()):
    graph = helper.make_graph([node], "one", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    if node.domain == "":
        opsets[0] = helper.make_opsetid("", int(node.doc_string))
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


@pytest.mark.parametrize("name", [*OPERATORS, *CONTROLS])
def test_operator(benchmark, name):
    operator, opset, kind, shapes, result, attributes = {**OPERATORS, **CONTROLS}[name]
    values = np.random.default_rng(0)
    names = [f"x{number}" for number in range(len(shapes))]
    feed = {
        input_name: values.random(shape, np.float32)
        if kind == FLOAT
        else values.integers(-100, 100, shape)
        for input_name, shape in zip(names, shapes, strict=True)
    }
    constants = []
    if operator == "ReduceL1":
        constants.append(helper.make_tensor("axes", INT, [1], [0]))
    input_names = [*names, *(constant.name for constant in constants)]
    node = helper.make_node(operator, input_names, ["y"], doc_string=str(opset), **attributes)
    inputs = [
        helper.make_tensor_value_info(input_name, kind, shape)
        for input_name, shape in zip(names, shapes, strict=True)
    ]
    run = session(node, inputs, [helper.make_tensor_value_info("y", kind, result)], constants).run
    benchmark(run, None, feed)


def test_27187_tree_ensemble(benchmark):
    """One tree with 31 leaves, a split of the one feature at each node."""
    inner = 15
    leaves = 16
    ids = list(range(inner + leaves))
    node = helper.make_node(
        "TreeEnsembleRegressor",
        ["x0"],
        ["y"],
        domain="ai.onnx.ml",
        aggregate_function="SUM",
        n_targets=1,
        nodes_treeids=[0] * len(ids),
        nodes_nodeids=ids,
        nodes_featureids=[0] * len(ids),
        nodes_modes=["BRANCH_LEQ"] * inner + ["LEAF"] * leaves,
        nodes_values=[(number + 1) / (inner + 1) for number in range(inner)] + [0.0] * leaves,
        nodes_truenodeids=[2 * number + 1 for number in range(inner)] + [0] * leaves,
        nodes_falsenodeids=[2 * number + 2 for number in range(inner)] + [0] * leaves,
        target_treeids=[0] * leaves,
        target_nodeids=ids[inner:],
        target_ids=[0] * leaves,
        target_weights=[float(number) for number in range(leaves)],
    )
    inputs = [helper.make_tensor_value_info("x0", FLOAT, (1000, 1))]
    run = session(node, inputs, [helper.make_tensor_value_info("y", FLOAT, (1000, 1))]).run
    benchmark(run, None, {"x0": np.random.default_rng(0).random((1000, 1), np.float32)})
