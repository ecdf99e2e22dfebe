"""Long computations show their progress, on a terminal or not."""
import winnow.progress


def test_lines_where_there_is_no_terminal(monkeypatch, capsys):
    monkeypatch.setattr(winnow.progress, "SECONDS_BETWEEN_LINES", 0.0)
    with winnow.progress.progress("prefill 100 tokens") as update:
        update(0, 100)
        update(25, 100)
    said = capsys.readouterr().err
    assert said.startswith("prefill 100 tokens: 25%, ") and said.endswith(" s left\n") and said.count("\n") == 1


def test_nothing_soon_or_where_nothing_is_wanted(monkeypatch, capsys):
    with winnow.progress.progress("prefill") as update:
        update(25, 100)
    monkeypatch.setattr(winnow.progress, "SECONDS_BETWEEN_LINES", 0.0)
    with winnow.progress.progress("prefill", wanted=False) as update:
        assert update is None
    assert capsys.readouterr().err == ""


def test_an_evaluation_tells_its_work(model_path, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(winnow.progress, "SECONDS_BETWEEN_LINES", 0.0)
    winnow.evaluate(model_path, ["full"], tasks="fidelity", lengths=[300], limit=1, n_threads=2, out=tmp_path / "run")
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("answers: ")]
    assert lines and int(lines[0].split()[1].rstrip("%,")) < 100
