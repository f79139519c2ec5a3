"""Repositories of the hub that hold .gguf files and nothing else (the hub's client is replaced:
there is no network).
"""

import huggingface_hub
import pytest
from huggingface_hub.errors import EntryNotFoundError

from headscan.model import finding, source
from headscan.run import BadInput


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub with one repository of two .gguf files."""
    files = ["README.md", "q4.gguf", "deep/q8.gguf"]

    def download(repository, file, **_):
        if file not in files:
            raise EntryNotFoundError(f"404: {file}")
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
        return str(tmp_path / file)

    def no_config(name, **_):
        raise OSError(f"{name} does not appear to have a file named config.json")

    monkeypatch.setattr(source, "_hub_has_address", lambda: True)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(huggingface_hub, "list_repo_files", lambda *_, **__: files)
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", no_config)


@pytest.mark.parametrize("file", ["q4.gguf", "deep/q8.gguf"])
def test_a_file_of_a_repository_is_fetched_and_read_as_a_local_one(hub, tmp_path, file):
    found = finding.find_source(f"org/model/{file}")
    assert found.gguf == tmp_path / file
    assert (found.reference, found.folder) == (f"org/model/{file}", (tmp_path / file).parent)


def test_a_file_that_is_not_there_is_named(hub):
    with pytest.raises(BadInput, match=r"'org/model' has no file 'q5\.gguf'"):
        finding.find_source("org/model/q5.gguf")


def test_a_repository_without_a_configuration_says_which_files_it_has(hub):
    with pytest.raises(
        BadInput,
        match=r"as .gguf only \(q4.gguf, deep/q8.gguf\): name one of them, org/model/q4.gguf",
    ):
        finding.find_source("org/model").config(trust_remote_code=False)


def test_a_local_path_is_not_looked_for_on_the_hub(hub):
    with pytest.raises(BadInput, match=r"There is no folder '\./a/b/c\.gguf'"):
        finding.find_source("./a/b/c.gguf")
