"""Scorers in Python: their evidence, their effect, and the messages for wrong ones."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import winnow

SEEN = {}  # the evidence of layer 4 that `looker` was given


@winnow.scorer(
    "looker",
    needs=[
        "window_queries",
        "window_mean",
        "window_m2",
        "window_max",
        "window_last",
        "window_entropy",
        "query_moments",
        "all_queries",
        "log_sum_exp",
        "reference_queries",
        "output_projection",
    ],
)
def looker(layer):
    """looks at all there is"""
    if layer.layer == 4:
        names = ["n_tokens", "n_head", "n_kv_head", "n_group", "scale", "n_entries", "n_prefix", "window_queries"]
        names += ["all_queries", "log_sum_exp", "reference_queries", "query_mean", "query_covariance"]
        names += ["output_projection", "options"]
        SEEN.update({name: getattr(layer, name) for name in names}, layer=layer)
        for name in ("positions", "keys", "values", "value_l1_norms", "projected_value_norms", "reference_rms"):
            SEEN[name] = getattr(layer, name)(1)
        for name in ("window_mean", "window_m2", "window_max", "window_last", "window_entropy"):
            SEEN[name] = getattr(layer, name)(1)
    return [np.arange(n) for n in layer.n_prefix]


@winnow.scorer("mean-attention", needs=["window_mean"], is_attention=True)
def mean_attention(layer):
    """snapkv's score without pooling"""
    return [layer.window_mean(head).mean(axis=0) for head in range(layer.n_kv_head)]


@winnow.scorer(
    "value-norm",
    options={"power": winnow.Number(1.0, 0.1, 10, "the norm to the power of this"), "mode": winnow.Choice("up", ("up", "down"))},
    preset="snapkv:scorer=value-norm,sinks=4",
    is_non_negative=True,
)
def value_norm(layer, power, mode):
    """values of large norm"""
    sign = {"up": 1, "down": -1}[mode]
    return [layer.value_l1_norms(head) ** (power * sign) for head in range(layer.n_kv_head)]


def softmax(x):
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def seen(shared_llm, text):
    """Returns the evidence that `looker` was given, after the call that it is valid for."""
    text = text[:1500]
    SEEN["context"] = shared_llm.compress(text, "looker:window=16", budget="50%")
    return SEEN


def test_what_a_scorer_sees(seen):
    n = seen["n_tokens"]
    assert (seen["n_head"], seen["n_kv_head"], seen["n_group"]) == (9, 3, 3)
    assert seen["n_entries"].tolist() == [n] * 3 and seen["n_prefix"].tolist() == [n - 16] * 3
    assert seen["options"]["window"] == "16"
    shapes = {name: value.shape for name, value in seen.items() if isinstance(value, np.ndarray)}
    rows = shapes["reference_queries"][0]
    assert shapes == {
        "n_entries": (3,),
        "n_prefix": (3,),
        "window_queries": (16, 9, 64),
        "all_queries": (n, 9, 64),
        "log_sum_exp": (n, 9),
        "reference_queries": (rows, 9, 64),
        "query_mean": (9, 64),
        "query_covariance": (9, 64, 64),
        "output_projection": (9, 64, 576),
        "positions": (n,),
        "keys": (n, 64),
        "values": (n, 64),
        "value_l1_norms": (n,),
        "projected_value_norms": (n,),
        "reference_rms": (n - 16,),
        "window_mean": (3, n - 16),
        "window_m2": (3, n - 16),
        "window_max": (3, n - 16),
        "window_last": (3, n - 16),
        "window_entropy": (3,),
    }
    assert seen["positions"].tolist() == list(range(n))
    np.testing.assert_array_equal(seen["window_queries"], seen["all_queries"][-16:])


def as_bfloat16(numbers):
    bits = np.asarray(numbers, np.float32).view(np.uint32)
    nearest = (bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)  # ties to even
    return nearest.view(np.float32).astype(np.float64)


def test_statistics_are_numpys_own(seen):
    n = seen["n_tokens"]
    queries = seen["window_queries"][:, 3:6].astype(np.float64)  # of KV head 1
    visible = np.arange(n)[None] <= np.arange(n - 16, n)[:, None]

    def scores_of(queries, keys):
        return np.where(visible, np.einsum("rgd,nd->grn", queries, keys), -np.inf)

    def log_sums(scores):
        return np.log(np.exp(scores).sum(axis=2)).T  # [rows][group]

    scores = scores_of(queries * seen["scale"], seen["keys"].astype(np.float64))
    # A prefill's attention uses bfloat16 products if the processor has them.
    unit = seen["scale"] / np.log(2)
    rounded = scores_of(as_bfloat16(queries * unit) * np.log(2), as_bfloat16(seen["keys"]))
    error = min(np.abs(seen["log_sum_exp"][-16:, 3:6] - log_sums(s)).max() for s in (scores, rounded))
    assert error < 2e-3
    weights = softmax(scores)[:, :, : n - 16]
    np.testing.assert_allclose(seen["window_mean"], weights.mean(axis=1), atol=1e-3)
    np.testing.assert_allclose(seen["window_max"], weights.max(axis=1), atol=3e-3)
    np.testing.assert_allclose(seen["window_last"], weights[:, -1], atol=3e-3)
    np.testing.assert_allclose(seen["window_m2"], weights.var(axis=1) * 16, atol=3e-3)
    np.testing.assert_allclose(seen["value_l1_norms"], np.abs(seen["values"]).sum(axis=1), rtol=1e-4)
    projected = np.abs(seen["values"] @ seen["output_projection"][3:6]).sum(axis=2)  # [group][n]
    assert np.corrcoef(projected.mean(axis=0), seen["projected_value_norms"])[0, 1] > 0.99


def test_scores_decide(seen):
    """The last entries are kept, since `looker` gives them the highest scores."""
    context = seen["context"]
    n = context.n_tokens
    for layer in (0, 29):
        kept = context.kept[layer, 0]
        assert context.positions(layer, 0).tolist() == list(range(n - kept, n))


def test_evidence_ends_with_the_call(seen):
    with pytest.raises(winnow.InvalidArgument, match="looker.*not behind it"):
        seen["layer"].keys(0)
    with pytest.raises(winnow.InvalidArgument):
        seen["layer"].n_tokens  # noqa: B018
    # Arrays that the evidence gave keep their contents.
    before = seen["keys"].copy()
    np.ones(1 << 20).sum()
    np.testing.assert_array_equal(seen["keys"], before)


def test_it_chooses_what_the_built_in_one_does(llm, text):
    mine = llm.compress(text, "mean-attention", budget="20%")
    built_in = llm.compress(text, "snapkv:pool=none", budget="20%")
    same = total = 0
    for layer in range(30):
        for head in range(3):
            a, b = mine.positions(layer, head), built_in.positions(layer, head)
            assert len(a) == len(b)
            same += len(np.intersect1d(a, b))
            total += len(a)
    assert same / total > 0.999


def test_usable_by_name_everywhere(llm, model_path, text):
    assert "value-norm" in {row["name"] for row in winnow.methods()}
    plain = llm.compress(text, "value-norm", budget="20%")
    assert plain.statistics["method"] == "value-norm" and plain.positions(3, 0)[:4].tolist() == [0, 1, 2, 3]
    assert (llm.compress(text, "value-norm:power=2", budget="20%").positions(3, 0) == plain.positions(3, 0)).all()
    other = llm.compress(text, "value-norm:mode=down", budget="20%")
    assert (other.positions(3, 0) != plain.positions(3, 0)).any()
    lava = llm.compress(text, "lava:scorer=value-norm", budget="20%")
    assert lava.kept.sum() == plain.kept.sum() and len(np.unique(lava.kept)) > 3
    own = winnow.Llama(model_path, n_ctx=2048, n_threads=2, kv_evict="ada-snapkv:scorer=mean-attention", kv_budget=64)
    own("Once upon a time there was " * 40, max_tokens=2)
    assert own.statistics["entries_kept"] < own.statistics["entries_full"] / 2
    with pytest.raises(winnow.InvalidArgument, match="power"):
        llm.compress(text, "value-norm:power=100", budget="20%")
    with pytest.raises(winnow.InvalidArgument):
        llm.compress(text, "lava:scorer=looker", budget="20%")  # not declared non-negative


def test_what_is_wrong_is_said(llm, text):
    @winnow.scorer("wrong")
    def wrong(layer):
        return WRONG(layer)

    def fails(function, error, words):
        global WRONG
        WRONG = function
        with pytest.raises(error, match=words):
            llm.compress(text, "wrong", budget="20%")

    fails(lambda layer: 1 / 0, ZeroDivisionError, "division")
    fails(lambda layer: None, winnow.InvalidArgument, "3 KV heads of a layer, not nothing")
    fails(lambda layer: [np.zeros(3)] * 2, winnow.InvalidArgument, "not 2")
    fails(lambda layer: [np.zeros(3)] * 3, winnow.InvalidArgument, r"KV head 0 of layer 0 .*shape \[3\]")
    fails(lambda layer: ["a"] * 3, ValueError, "could not convert")
    fails(lambda layer: [np.full(n, np.nan) for n in layer.n_prefix], winnow.InvalidArgument, "finite|NaN|number")
    fails(lambda layer: layer.window_mean(0), winnow.InvalidArgument, "'wrong' reads window_mean without saying so")
    fails(lambda layer: layer.keys(7), winnow.InvalidArgument, "no KV head 7")
    fails(lambda layer: sys.exit(3), SystemExit, "3")
    assert llm.compress(text, "snapkv", budget="20%").kept.sum() > 0  # the model still works
    with pytest.raises(winnow.InvalidArgument, match="cannot need 'everything', only window_mean"):
        winnow.scorer("needy", needs=["everything"])(wrong)
    with pytest.raises(winnow.InvalidArgument, match="option 'x' of the scorer 'needy' is a winnow.Number, Integer or Choice, not 5"):
        winnow.scorer("needy", options={"x": 5})(wrong)
    with pytest.raises(winnow.InvalidArgument, match="lower-case"):
        winnow.scorer("Bad Name")(wrong)
    with pytest.raises(winnow.InvalidArgument, match="snapkv"):
        winnow.scorer("snapkv")(wrong)


def test_a_cell_that_runs_twice(llm, text):
    def define(reverse):
        @winnow.scorer("again", needs=["window_mean"] if reverse else [])
        def again(layer):
            return [np.arange(n) * (-1 if reverse else 1) for n in layer.n_prefix]

    define(False)
    late = llm.compress(text, "again", budget="20%").positions(0, 0)
    define(True)
    early = llm.compress(text, "again", budget="20%").positions(0, 0)
    assert late[0] > 100 and early[0] == 0
    with pytest.raises(winnow.InvalidArgument, match="another name"):
        winnow.scorer("again", options={"x": winnow.Integer(1)})(lambda layer, x: None)


def test_a_cell_that_is_put_right(llm, text):
    def define(preset, options):
        @winnow.scorer("corrected", preset=preset, options=options)
        def corrected(layer, **_):
            return [np.arange(n) for n in layer.n_prefix]

    with pytest.raises(winnow.NotFound, match="bogus"):
        define("snapkv:scorer=corrected,bogus=1", {"strength": winnow.Integer(1)})
    with pytest.raises(winnow.InvalidArgument, match="other options"):
        define("snapkv:scorer=corrected,window=8", {})
    define("snapkv:scorer=corrected,window=8", {"strength": winnow.Integer(1)})
    assert llm.compress(text, "corrected:strength=2", budget="20%").positions(0, 0)[0] > 100


def test_scorers_run_in_any_thread(llm, text):
    kept = []
    threads = [
        threading.Thread(target=lambda: kept.append(llm.compress(text[:1000], "value-norm", budget="20%").kept))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kept) == 3 and (kept[0] == kept[1]).all() and (kept[0] == kept[2]).all()


def test_questions_wait_for_a_scorer(short_llm, text):
    # The scorer has let go of Python, and the engine is its caller's, when a question forks the other session.
    entered = threading.Event()

    @winnow.scorer("slow")
    def slow(layer):
        entered.set()
        time.sleep(0.02)
        return [np.arange(n) for n in layer.n_prefix]

    context = short_llm.compress(text[:500], "snapkv", budget="20%")
    reader = threading.Thread(target=lambda: short_llm.compress(text[:500], "slow", budget="20%"))
    reader.start()
    entered.wait()
    context.ask("Where is it?", max_tokens=1)
    reader.join()


def test_it_ends_quietly_with_a_scorer(model_path):
    code = f"""
import winnow
@winnow.scorer("mine")
def mine(layer):
    return [range(n) for n in layer.n_prefix]
llm = winnow.Llama({model_path!r}, n_ctx=256, kv_evict="mine", kv_budget=0.5)
llm("a b c d e f g h", max_tokens=1)
print(llm.statistics["method"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "mine\n", "")
