"""The notebook, cell by cell, and the package's types and docstrings."""

import ast
import json
import pathlib

import pytest

import winnow

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


def test_the_notebook_runs(model_path, monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    pytest.importorskip("pandas")
    matplotlib.use("agg")
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.setenv("WINNOW_MODEL", model_path)
    notebook = json.loads((EXAMPLES / "develop_a_method.ipynb").read_text())
    names = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert not cell["outputs"], "outputs are not kept in the repository"
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    table = names["table"]
    assert len(table) == 10 and (table["failed"] == 0).all()
    assert (table["low"] <= table["mean"]).all() and (table["mean"] <= table["high"]).all()
    means = table[table["budget"] == "20%"].set_index("method")["mean"]
    assert (means > 0).all() and (means < 1).all()
    assert len(names["ax"].containers) == 2
    matplotlib.pyplot.close("all")


def test_types_are_shipped():
    package = pathlib.Path(winnow.__file__).parent
    assert (package / "py.typed").exists()
    stub = ast.parse((package / "_core.pyi").read_text())
    classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
    assert {"Model", "Session", "Engine", "LayerEvidence"} <= set(classes)
    methods = {node.name for node in classes["LayerEvidence"].body if isinstance(node, ast.FunctionDef)}
    assert {"keys", "window_mean", "n_prefix"} <= methods
    for name in winnow.__all__:
        if name != "__version__":
            assert getattr(winnow, name).__doc__, f"{name} has no docstring"
